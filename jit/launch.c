/*
 * launch.c -- tensor maps and launches: the part of a run that touches the driver.
 *
 * A launch allocates nothing, takes no lock, looks nothing up, and formats text only when it fails.
 */
#include "module.h"

#include <inttypes.h>
#include <string.h>

/* ---- Launch ---- */

static CUresult launch(const struct jit_kernel *k, const struct jit_launch *l, void *params, CUstream stream)
{
    void *pointers[] = {params};
    CUlaunchAttribute pdl = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                             .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {
        .gridDimX = l->grid,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = l->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = l->shared_bytes,
        .hStream = stream,
        .attrs = &pdl,
        .numAttrs = l->pdl,
    };
    return k->driver->cuLaunchKernelEx(&config, k->function, pointers, NULL);
}

coda_status jit_launch(const struct jit_kernel *k, const struct jit_launch *l, void *params, size_t bytes,
                       coda_stream stream, char *err)
{
    if (bytes > k->parameters || k->parameters - bytes >= JIT_PARAMS_ALIGN)
        return jit_fail(err, CODA_E_INVALID, "%s: takes %zu bytes of parameters, not %zu", k->symbol,
                        k->parameters, bytes);
    if (!l->grid) return CODA_OK;
    memset((char *)params + bytes, 0, k->parameters - bytes); /* what the stack held stays on the host */
    CUresult r = launch(k, l, params, stream);
    return r ? driver_fail(k->driver, err, r, k->symbol) : CODA_OK;
}

coda_status jit_record(void *event, coda_stream stream, char *err)
{
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuEventRecord(event, stream);
    return r ? driver_fail(d, err, r, "cuEventRecord") : CODA_OK;
}

/* ---- Tensor maps ---- */

_Static_assert(sizeof(struct jit_map) == sizeof(CUtensorMap), "jit_map is a CUtensorMap");
_Static_assert(_Alignof(struct jit_map) >= _Alignof(CUtensorMap), "jit_map is aligned as a CUtensorMap");

#define BAD(err, ...) jit_fail(err, CODA_E_INVALID, "tensor map: " __VA_ARGS__)

struct element {
    CUtensorMapDataType type;
    int64_t size;
};

/* Size 0: not a dtype, or none that a tensor map has. */
static struct element map_element(coda_dtype t)
{
    static const struct element elements[] = {
        [CODA_F32] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4},
        [CODA_BF16] = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2},
        [CODA_F16] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2},
        [CODA_I32] = {CU_TENSOR_MAP_DATA_TYPE_INT32, 4},
        [CODA_I64] = {CU_TENSOR_MAP_DATA_TYPE_INT64, 8},
        [CODA_F8E4M3] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
        [CODA_F8E5M2] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
        [CODA_I8] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
        [CODA_U8] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
    };
    return t > 0 && (size_t)t < sizeof elements / sizeof *elements ? elements[t] : (struct element){0, 0};
}

static int map_swizzle(int bytes)
{
    switch (bytes) {
    case 0: return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    }
    return -1;
}

static int map_promotion(int bytes)
{
    switch (bytes) {
    case 0: return CU_TENSOR_MAP_L2_PROMOTION_NONE;
    case 64: return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
    case 128: return CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    case 256: return CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    }
    return -1;
}

/* The bytes between neighbours along dimension d. Along one of extent 1 nobody moves, so any legal
 * stride will do there: the tensor so far, rounded up. */
static int64_t stride_bytes(const struct jit_map_shape *s, int d, int64_t element)
{
    if (s->dim[d] > 1) return s->stride[d] * element;
    int64_t below = d > 1 ? stride_bytes(s, d - 1, element) : element, size;
    if (__builtin_mul_overflow(below, s->dim[d - 1], &size) || size > INT64_MAX / 2) return INT64_MAX;
    return (size + 15) & ~(int64_t)15;
}

static coda_status check_dimension(const struct jit_map_shape *s, int d, int64_t element, char *err)
{
    const int64_t most = (int64_t)1 << 32, far = (int64_t)1 << 40;
    if (s->dim[d] < 1 || s->dim[d] > most)
        return BAD(err, "dimension %d is %" PRId64 ", not 1..2^32", d, s->dim[d]);
    if (s->box[d] < 1 || s->box[d] > 256) return BAD(err, "box %d is %d, not 1..256", d, s->box[d]);
    if (d == 0) return CODA_OK;
    if (s->dim[d] > 1 && (s->stride[d] < 0 || s->stride[d] >= far))
        return BAD(err, "stride %d is %" PRId64 " elements", d, s->stride[d]);
    int64_t bytes = stride_bytes(s, d, element);
    if (bytes % 16 || bytes >= far)
        return BAD(err, "stride %d is %" PRId64 " bytes, not a multiple of 16 below 2^40", d, bytes);
    return CODA_OK;
}

static coda_status check_map(const struct jit_map_shape *s, int64_t element, const void *address, char *err)
{
    if (!element) return BAD(err, "dtype %d", (int)s->dtype);
    if (s->rank < 1 || s->rank > 5) return BAD(err, "rank %d, not 1..5", s->rank);
    if (map_swizzle(s->swizzle) < 0) return BAD(err, "swizzle of %d bytes", s->swizzle);
    if (map_promotion(s->l2_promotion) < 0) return BAD(err, "L2 promotion to %d bytes", s->l2_promotion);
    if ((uintptr_t)address % 16) return BAD(err, "address %p is not a multiple of 16", address);
    if (s->stride[0] != 1) return BAD(err, "innermost stride is %" PRId64 ", not 1", s->stride[0]);
    for (int d = 0; d < s->rank; d++) {
        coda_status status = check_dimension(s, d, element, err);
        if (status) return status;
    }
    int64_t inner = s->box[0] * element;
    if (inner % 16 || (s->swizzle && inner > s->swizzle))
        return BAD(err, "box rows of %" PRId64 " bytes do not fit a swizzle of %d bytes", inner, s->swizzle);
    return CODA_OK;
}

coda_status jit_map_encode(struct jit_map *out, const struct jit_map_shape *s, void *address, char *err)
{
    struct element e = map_element(s->dtype);
    coda_status status = check_map(s, e.size, address, err);
    if (status) return status;
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    cuuint64_t dim[5], stride[5];
    cuuint32_t box[5], step[5];
    for (int i = 0; i < s->rank; i++) {
        dim[i] = (cuuint64_t)s->dim[i];
        box[i] = (cuuint32_t)s->box[i];
        step[i] = 1;
        if (i) stride[i - 1] = (cuuint64_t)stride_bytes(s, i, e.size);
    }
    CUresult r = d->cuTensorMapEncodeTiled(
        (CUtensorMap *)(void *)out, e.type, (cuuint32_t)s->rank, address, dim, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)map_swizzle(s->swizzle),
        (CUtensorMapL2promotion)map_promotion(s->l2_promotion), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r ? driver_fail(d, err, r, "cuTensorMapEncodeTiled") : CODA_OK;
}

coda_status jit_map_rebase(struct jit_map *map, void *address, char *err)
{
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuTensorMapReplaceAddress((CUtensorMap *)(void *)map, address);
    return r ? driver_fail(d, err, r, "cuTensorMapReplaceAddress") : CODA_OK;
}

void jit_spare_captures(void)
{
    char err[JIT_ERROR_SIZE];
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const struct driver *d = driver_open(err);
    if (d) d->cuThreadExchangeStreamCaptureMode(&mode);
}

bool jit_is_captured(coda_stream stream)
{
    char err[JIT_ERROR_SIZE];
    const struct driver *d = driver_open(err);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!d) return false;
    CUresult r = d->cuStreamIsCapturing(stream, &status);
    return r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || status != CU_STREAM_CAPTURE_STATUS_NONE;
}
