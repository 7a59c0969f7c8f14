/*
 * cublaslt.c -- plain products D = A B^T by cuBLASLt.
 *
 * cuBLASLt speaks column-major, where a row-major matrix is its own transpose. So it is asked for
 * D^T = B A^T: its first operand is our B, its second our A, its M our N.
 *
 *     ours, row-major      cuBLASLt, column-major     op
 *     B [N,K] pitch ldb    [K,N] ld ldb               T    (b_t: [K,N] row-major is [N,K]: N)
 *     A [M,K] pitch lda    [K,M] ld lda               N    (a_t: [K,M] row-major is [M,K]: T)
 *     D [M,N] pitch ldd    [N,M] ld ldd
 *
 * Sums are fp32, of fp32 operands too (no TF32).
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "compile.h"

struct jit_lt {
    const struct cublaslt *api;
    const struct driver *driver;
    CUcontext context;
    cublasLtHandle_t handle; /* the context's, shared */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace; /* bytes */
    bool empty;       /* D has no elements */
};

static coda_status lt_fail(const struct cublaslt *api, cublasStatus_t r, const char *what, char *err)
{
    coda_status status = r == CUBLAS_STATUS_ALLOC_FAILED ? CODA_E_MEMORY : CODA_E_DEVICE;
    return jit_fail(err, status, "cuBLASLt: %s: %s", what, api->cublasLtGetStatusString(r));
}

/* ---- One handle for each context, for the life of the process ---- */

struct handle {
    CUcontext context;
    cublasLtHandle_t handle;
    struct handle *next;
};

static coda_status new_handle(struct handle **out, const struct jit_lt *lt, char *err)
{
    struct handle *h = calloc(1, sizeof *h);
    if (!h) return jit_fail(err, CODA_E_MEMORY, "out of memory for cuBLASLt");
    cublasStatus_t r = lt->api->cublasLtCreate(&h->handle);
    if (r) {
        free(h);
        return lt_fail(lt->api, r, "cublasLtCreate", err);
    }
    h->context = lt->context;
    *out = h;
    return CODA_OK;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;

static coda_status find_handle(struct jit_lt *lt, char *err)
{
    coda_status status = CODA_OK;
    process_keeps();
    pthread_mutex_lock(&lock);
    struct handle *h = handles;
    while (h && h->context != lt->context) h = h->next;
    if (!h && !(status = new_handle(&h, lt, err))) {
        h->next = handles;
        handles = h;
    }
    if (!status) lt->handle = h->handle;
    pthread_mutex_unlock(&lock);
    return status;
}

/* A handle of a context that is gone goes unasked. */
void cublaslt_drop(void)
{
    char err[JIT_ERROR_SIZE];
    while (handles) {
        struct handle *h = handles;
        CUcontext popped;
        handles = h->next;
        const struct driver *d = driver_open(err);
        if (d && !d->cuCtxPushCurrent_v2(h->context)) {
            cublaslt_open(err)->cublasLtDestroy(h->handle);
            d->cuCtxPopCurrent_v2(&popped);
        }
        free(h);
    }
}

/* ---- Descriptors ---- */

static cudaDataType_t lt_type(coda_dtype t)
{
    return t == CODA_BF16 ? CUDA_R_16BF : t == CODA_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cublasStatus_t describe_product(struct jit_lt *lt, const struct jit_lt_shape *s)
{
    cublasOperation_t first = s->b_t ? CUBLAS_OP_N : CUBLAS_OP_T, second = s->a_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t r = lt->api->cublasLtMatmulDescCreate(&lt->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!r)
        r = lt->api->cublasLtMatmulDescSetAttribute(lt->product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                                    sizeof first);
    if (!r)
        r = lt->api->cublasLtMatmulDescSetAttribute(lt->product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                                    sizeof second);
    return r;
}

/* A column-major matrix, repeated `batch` times at a distance of `stride` elements. Between columns of
 * which there is but one any distance will do, but cuBLASLt wants a plausible one. */
static cublasStatus_t describe_matrix(const struct cublaslt *api, cublasLtMatrixLayout_t *out, coda_dtype t,
                                      int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    if (cols <= 1 && ld < rows) ld = rows;
    cublasStatus_t r = api->cublasLtMatrixLayoutCreate(out, lt_type(t), (uint64_t)rows, (uint64_t)cols, ld);
    if (!r)
        r = api->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof count);
    if (!r)
        r = api->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                  sizeof stride);
    return r;
}

static cublasStatus_t describe(struct jit_lt *lt, const struct jit_lt_shape *s)
{
    const struct cublaslt *api = lt->api;
    int64_t b_rows = s->b_t ? s->n : s->k, b_cols = s->b_t ? s->k : s->n;
    int64_t a_rows = s->a_t ? s->m : s->k, a_cols = s->a_t ? s->k : s->m;
    cublasStatus_t r = describe_product(lt, s);
    if (!r) r = describe_matrix(api, &lt->first, s->in, b_rows, b_cols, s->ldb, s->batch, s->b_batch);
    if (!r) r = describe_matrix(api, &lt->second, s->in, a_rows, a_cols, s->lda, s->batch, s->a_batch);
    if (!r) r = describe_matrix(api, &lt->result, s->out, s->n, s->m, s->ldd, s->batch, s->d_batch);
    return r;
}

/* What the algorithm may assume: the workspace and the alignment of every pointer. */
static cublasStatus_t prefer(const struct cublaslt *api, cublasLtMatmulPreference_t p,
                             const struct jit_lt_shape *s)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t workspace = (uint64_t)s->workspace;
    uint32_t align = s->align ? (uint32_t)s->align : 16;
    cublasStatus_t r = api->cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &workspace, sizeof workspace);
    for (int i = 0; !r && i < 4; i++)
        r = api->cublasLtMatmulPreferenceSetAttribute(p, alignments[i], &align, sizeof align);
    return r;
}

static coda_status choose(struct jit_lt *lt, const struct jit_lt_shape *s, char *err)
{
    const struct cublaslt *api = lt->api;
    cublasLtMatmulPreference_t p = NULL;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    cublasStatus_t r = api->cublasLtMatmulPreferenceCreate(&p);
    if (!r) r = prefer(api, p, s);
    if (!r)
        r = api->cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->product, lt->first, lt->second, lt->result,
                                                lt->result, p, 1, &best, &found);
    if (p) api->cublasLtMatmulPreferenceDestroy(p);
    if (r == CUBLAS_STATUS_NOT_SUPPORTED || (!r && !found))
        return jit_fail(err, CODA_E_UNSUPPORTED,
                        "cuBLASLt: no algorithm for [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]",
                        s->batch, s->m, s->n, s->k);
    if (r) return lt_fail(api, r, "heuristic", err);
    lt->algorithm = best.algo;
    return CODA_OK;
}

/* ---- The three calls ---- */

static coda_status check(const struct jit_lt_shape *s, char *err)
{
    bool in = s->in == CODA_BF16 || s->in == CODA_F16 || s->in == CODA_F32;
    if (!in || (s->out != s->in && s->out != CODA_F32))
        return jit_fail(err, CODA_E_UNSUPPORTED, "cuBLASLt: dtypes %d -> %d", (int)s->in, (int)s->out);
    if (s->batch < 0 || s->m < 0 || s->n < 0 || s->k < 1 || s->batch > INT32_MAX)
        return jit_fail(err, CODA_E_UNSUPPORTED,
                        "cuBLASLt: sizes [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", s->batch, s->m,
                        s->n, s->k);
    return CODA_OK;
}

static coda_status prepare(struct jit_lt *lt, const struct jit_lt_shape *s, char *err)
{
    CUresult r = lt->driver->cuCtxGetCurrent(&lt->context);
    if (r) return driver_fail(lt->driver, err, r, "cuCtxGetCurrent");
    if (!lt->context) return jit_fail(err, CODA_E_DEVICE, "cuBLASLt: this thread has no CUDA context");
    coda_status status = find_handle(lt, err);
    if (status) return status;
    cublasStatus_t d = describe(lt, s);
    return d ? lt_fail(lt->api, d, "descriptors", err) : choose(lt, s, err);
}

coda_status jit_lt_new(struct jit_lt **out, const struct jit_lt_shape *s, char *err)
{
    *out = NULL;
    coda_status status = check(s, err);
    if (status) return status;
    const struct driver *d = driver_open(err);
    const struct cublaslt *api = d ? cublaslt_open(err) : NULL;
    if (!api) return CODA_E_DEVICE;
    struct jit_lt *lt = calloc(1, sizeof *lt);
    if (!lt) return jit_fail(err, CODA_E_MEMORY, "out of memory for cuBLASLt");
    lt->api = api;
    lt->driver = d;
    lt->workspace = (size_t)s->workspace;
    lt->empty = !s->batch || !s->m || !s->n;
    if (!lt->empty) status = prepare(lt, s, err);
    if (status) jit_lt_free(lt);
    else *out = lt;
    return status;
}

coda_status jit_lt_run(const struct jit_lt *lt, const void *a, const void *b, void *d, void *workspace,
                       coda_stream stream, char *err)
{
    static const float one = 1, zero = 0;
    if (lt->empty) return CODA_OK;
    cublasStatus_t r =
        lt->api->cublasLtMatmul(lt->handle, lt->product, &one, b, lt->first, a, lt->second, &zero, d,
                                lt->result, d, lt->result, &lt->algorithm, workspace, lt->workspace, stream);
    return r ? lt_fail(lt->api, r, "matmul", err) : CODA_OK;
}

void jit_lt_free(struct jit_lt *lt)
{
    if (!lt) return;
    if (lt->result) lt->api->cublasLtMatrixLayoutDestroy(lt->result);
    if (lt->second) lt->api->cublasLtMatrixLayoutDestroy(lt->second);
    if (lt->first) lt->api->cublasLtMatrixLayoutDestroy(lt->first);
    if (lt->product) lt->api->cublasLtMatmulDescDestroy(lt->product);
    free(lt);
}
