/* test_nccl.c -- exchanges on GPUs: threads of one process that run a graph each on the SM in software, over
 * a NCCL that is not there; what it does wrong ends as a line on every rank, and a new group works. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_abi.h"
#include "util_device.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_RANKS = 4, MOST_ARGS = 8, MOST_TEXT = 2048, LONG_MS = 300000, SHORT_MS = 100 };

static struct jit_device gpu;

static void open_gpu(void)
{
    char err[JIT_ERROR_SIZE];
    ck_assert_msg(device_open_emulated(&gpu, err), "%s", err);
}

/* ---- Ranks as threads ---- */

struct rank {
    coda_group *group;
    const coda_plan *plan;
    void *args[MOST_ARGS]; /* of the device; [0] is the group */
    void *work, *stream, *captured;
    int delay_ms;
    coda_status status;
    char error[1024];
};

static void *run_rank(void *ctx)
{
    struct rank *r = ctx;
    if (r->delay_ms) usleep((useconds_t)r->delay_ms * 1000);
    r->status = coda_run(r->plan, r->args, NULL, r->work, r->stream);
    snprintf(r->error, sizeof r->error, "%s", r->status ? coda_error() : "");
    return NULL;
}

static void on_threads(struct rank *r, int ranks, void *(*work)(void *))
{
    pthread_t thread[MOST_RANKS];
    for (int i = 0; i < ranks; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &r[i]), 0);
    for (int i = 0; i < ranks; i++) pthread_join(thread[i], NULL);
}

static void expect_good(const struct rank *r, int ranks)
{
    for (int k = 0; k < ranks; k++) ck_assert_msg(!r[k].status, "rank %d: %s", k, r[k].error);
}

static void expect_failure(const struct rank *r, int ranks, coda_status status, const char *part)
{
    for (int k = 0; k < ranks; k++) {
        ck_assert_msg(r[k].status == status, "rank %d: %s: %s", k, coda_status_name(r[k].status), r[k].error);
        ck_assert_msg(strstr(r[k].error, part), "rank %d: \"%s\" lacks \"%s\"", k, r[k].error, part);
        ck_assert_ptr_null(strchr(r[k].error, '\n'));
    }
}

static void make_groups(struct rank *r, int ranks, int timeout_ms)
{
    coda_group *group[MOST_RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    opt.timeout_ms = timeout_ms;
    ck_assert_msg(coda_group_local(group, ranks, &opt) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < ranks; i++) r[i].group = r[i].args[0] = group[i];
}

static void free_groups(struct rank *r, int ranks)
{
    for (int i = 0; i < ranks; i++) coda_group_free(r[i].group), r[i].group = NULL;
}

/* With all that they have. */
static void free_ranks(struct rank *r, int ranks)
{
    free_groups(r, ranks);
    for (int i = 0; i < ranks; i++) {
        for (int k = 1; k < MOST_ARGS; k++) device_free(r[i].args[k]);
        device_free(r[i].work), device_captured_free(r[i].captured), device_stream_free(r[i].stream);
        r[i] = (struct rank){0};
    }
}

static int live(void)
{
    int (*count)(void) = (int (*)(void))dlsym(dlopen("libnccl.so.2", RTLD_NOW), "fake_nccl_live");
    ck_assert_ptr_nonnull((void *)count);
    return count();
}

static coda_graph *parsed(const char *text)
{
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s\n%s", text, coda_error());
    return g;
}

static coda_status compile(coda_plan **out, const char *text, coda_device device, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = parsed(text);
    opt.device = device;
    opt.flags = flags | CODA_NO_CACHE;
    coda_status s = coda_compile(out, g, &opt);
    coda_graph_free(g);
    return s;
}

static coda_plan *compiled(const char *text)
{
    coda_plan *p;
    ck_assert_msg(!compile(&p, text, CODA_DEVICE_GPU, 0), "%s\n%s", text, coda_error());
    return p;
}

/* Memory of the device, poisoned, another byte for each. */
static void *poisoned(size_t bytes, int how)
{
    void *p = device_alloc(bytes);
    ck_assert(p && device_fill(p, (unsigned char)(0x40 + 0x3d * how), bytes));
    return p;
}

/* ---- Each exchange, against loops ---- */

static const struct exchange_case {
    const char *operation;
    int rank, axis;
    int64_t dim[3]; /* of x; along the axis of each part */
} exchanges[] = {
    {"all_reduce", 2, -1, {5, 33}},        {"reduce_scatter", 2, 0, {3, 40}},
    {"reduce_scatter", 3, 1, {2, 3, 110}}, {"reduce_scatter", 2, 1, {300, 4}},
    {"all_gather", 2, 0, {3, 16}},         {"all_gather", 3, 1, {4, 2, 8}},
    {"all_gather", 2, 1, {600, 2}},
};

static int64_t times(const int64_t *dim, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++) n *= dim[d];
    return n;
}

/* x of each rank: small multiples of a power of two, so that any order of sums is exact in bf16, too. */
static float element(int rank, int64_t i) { return (float)((i * 7 + rank * 13) % 15 - 7) / 8; }

/* Where element i of rank r's result comes from: the element of each rank's x, or of the one rank *of. */
static int64_t source(const struct exchange_case *c, const int64_t *dim, int ranks, int r, int64_t i, int *of)
{
    int64_t inner = times(dim, c->axis + 1, c->rank), extent = dim[c->axis];
    int64_t made = c->operation[0] == 'r' ? extent / ranks : extent * ranks;
    int64_t o = i / (made * inner), at = i / inner % made, in = i % inner;
    *of = c->operation[0] == 'r' ? -1 : (int)(at / extent);
    return (o * extent + (*of < 0 ? r * made + at : at % extent)) * inner + in;
}

static double expected(const struct exchange_case *c, const int64_t *dim, int ranks, int r, int64_t i)
{
    int of = -1;
    int64_t from = c->axis < 0 ? i : source(c, dim, ranks, r, i, &of);
    double sum = of < 0 ? 0 : element(of, from);
    for (int k = 0; k < ranks && of < 0; k++) sum += element(k, from);
    return sum;
}

static int text_of(char *text, size_t size, const struct exchange_case *c, int ranks, const int64_t *dim,
                   const char *dtype)
{
    char shape[64] = "", axis[16] = "";
    for (int d = 0; d < c->rank; d++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", d ? "," : "",
                 (long long)dim[d]);
    if (c->axis >= 0) snprintf(axis, sizeof axis, " {axis=%d}", c->axis);
    return snprintf(
        text, size,
        "%%tp = group {ranks=%d}\n%%x = input %s [%s]\n%%y = %s %%x, %%tp%s\noutput %%out = %%y\n", ranks,
        dtype, shape, c->operation, axis);
}

static void put(const char *dtype, void *x, int64_t i, float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype[1] == '3') ((float *)x)[i] = f;
    else if (dtype[0] == 'b') ((uint16_t *)x)[i] = (uint16_t)(bits >> 16);
    else ((_Float16 *)x)[i] = (_Float16)f;
}

static double got(const char *dtype, const void *x, int64_t i)
{
    float f;
    uint32_t bits;
    if (dtype[1] == '3') return ((const float *)x)[i];
    if (dtype[0] == 'f') return (double)((const _Float16 *)x)[i];
    bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static void check_exchange(const struct exchange_case *c, int ranks, const char *dtype)
{
    struct rank r[MOST_RANKS] = {{0}};
    int64_t dim[3] = {c->dim[0], c->dim[1], c->dim[2]}, bytes = dtype[1] == '3' ? 4 : 2;
    char text[MOST_TEXT];
    if (c->operation[0] == 'r') dim[c->axis] *= ranks;
    text_of(text, sizeof text, c, ranks, dim, dtype);
    coda_plan *p = compiled(text);
    coda_arg_info out = CODA_ARG_INFO_INIT;
    ck_assert_int_eq(coda_plan_arg(p, 2, &out), CODA_OK);
    int64_t n = times(dim, 0, c->rank), made = (int64_t)out.bytes / bytes;
    char *host = malloc((size_t)(n > made ? n : made) * (size_t)bytes);
    make_groups(r, ranks, LONG_MS);
    for (int k = 0; k < ranks; k++) {
        for (int64_t i = 0; i < n; i++) put(dtype, host, i, element(k, i));
        r[k].plan = p, r[k].args[1] = poisoned((size_t)(n * bytes), k);
        r[k].args[2] = poisoned(out.bytes, k), r[k].work = poisoned(coda_plan_workspace(p), k);
        ck_assert(device_upload(r[k].args[1], host, (size_t)(n * bytes)));
    }
    on_threads(r, ranks, run_rank);
    expect_good(r, ranks);
    for (int k = 0; k < ranks; k++) {
        ck_assert_int_eq(coda_group_status(r[k].group), CODA_OK);
        ck_assert(device_download(host, r[k].args[2], out.bytes));
        for (int64_t i = 0; i < made; i++)
            ck_assert_msg(got(dtype, host, i) == expected(c, dim, ranks, k, i),
                          "%s\nrank %d: element %lld is %g, not %g", text, k, (long long)i,
                          got(dtype, host, i), expected(c, dim, ranks, k, i));
    }
    free_ranks(r, ranks);
    coda_plan_free(p);
    free(host);
}

START_TEST(moves_and_adds)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
    open_gpu();
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++)
        check_exchange(&exchanges[_i], ranks, dtypes[(_i + ranks) % 3]);
    ck_assert_int_eq(live(), 0);
}
END_TEST

/* ---- A block whose weights are cut, by kernels and exchanges, also captured ---- */

enum { M = 4, K = 16, F = 32, RANKS = 2, PART = F / RANKS };

static const char cut[] = "%tp = group {ranks=2}\n%x = input f32 [4,16]\n%wu = input f32 [16,16]\n"
                          "%wd = input f32 [16,16]\n%u = matmul %x, %wu\n%a = relu %u\n%z = matmul %a, %wd\n"
                          "%s = all_reduce %z, %tp\n%r = add %x, %s\noutput %out = %r\n";

struct block {
    float x[M * K], wu[F * K], wd[K * F];
    double want[M * K];
};

static void draw(struct block *b, struct random *r)
{
    for (int i = 0; i < M * K; i++) b->x[i] = (float)random_normal(r);
    for (int i = 0; i < F * K; i++) b->wu[i] = (float)random_normal(r), b->wd[i] = (float)random_normal(r);
}

/* y = x + relu(x wu^T) wd^T, by loops. */
static void expect(struct block *b)
{
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++) {
            double *y = &b->want[m * K + k];
            *y = b->x[m * K + k];
            for (int f = 0; f < F; f++) {
                double u = 0;
                for (int i = 0; i < K; i++) u += (double)b->x[m * K + i] * b->wu[f * K + i];
                *y += fmax(u, 0) * b->wd[k * F + f];
            }
        }
}

static void upload_block(const struct block *b, struct rank *r, int k)
{
    float wd[K * PART];
    for (int i = 0; i < K; i++) memcpy(wd + i * PART, b->wd + i * F + k * PART, sizeof *wd * PART);
    ck_assert(device_upload(r->args[1], b->x, sizeof b->x) &&
              device_upload(r->args[2], b->wu + k * PART * K, sizeof(float) * PART * K) &&
              device_upload(r->args[3], wd, sizeof wd) &&
              device_fill(r->args[4], 0xff, sizeof(float) * M * K));
}

static void check_block(const struct block *b, const struct rank *r)
{
    float y[RANKS][M * K];
    for (int k = 0; k < RANKS; k++) ck_assert(device_download(y[k], r[k].args[4], sizeof y[k]));
    for (int i = 0; i < M * K; i++)
        ck_assert_msg(fabs(y[0][i] - b->want[i]) <= 1e-4 * (1 + fabs(b->want[i])),
                      "element %d is %.9g, not %.9g", i, (double)y[0][i], b->want[i]);
    ck_assert_msg(!memcmp(y[0], y[1], sizeof y[0]), "the ranks have other bits");
}

static void *replay(void *ctx)
{
    struct rank *r = ctx;
    r->status = device_replay(r->captured, r->stream) ? CODA_OK : CODA_E_DEVICE;
    return NULL;
}

START_TEST(a_block_in_parts)
{
    struct block b;
    struct rank r[RANKS] = {{0}};
    struct random seed = {random_seed()};
    open_gpu();
    coda_plan *p = compiled(cut);
    draw(&b, &seed), expect(&b);
    make_groups(r, RANKS, LONG_MS);
    for (int k = 0; k < RANKS; k++) {
        for (int i = 1; i < 5; i++) r[k].args[i] = poisoned(sizeof(float) * F * K, k);
        r[k].plan = p, r[k].work = poisoned(coda_plan_workspace(p), k), r[k].stream = device_stream_new();
        upload_block(&b, &r[k], k);
    }
    /* a first run makes communicators and compares plans, which a capture cannot */
    ck_assert(device_capture_begin(r[0].stream) && device_capture_begin(r[1].stream));
    on_threads(r, RANKS, run_rank);
    for (int k = 0; k < RANKS; k++) /* or that the other one says so */
        ck_assert_msg(r[k].status &&
                          strstr(r[k].error, "the stream is captured, and the group has no communicator yet"),
                      "%s", r[k].error);
    for (int k = 0; k < RANKS; k++) device_captured_free(device_capture_end(r[k].stream));
    free_groups(r, RANKS);
    make_groups(r, RANKS, LONG_MS);
    on_threads(r, RANKS, run_rank);
    expect_good(r, RANKS);
    check_block(&b, r);
    ck_assert(device_capture_begin(r[0].stream) && device_capture_begin(r[1].stream));
    on_threads(r, RANKS, run_rank);
    expect_good(r, RANKS);
    for (int k = 0; k < RANKS; k++) r[k].captured = device_capture_end(r[k].stream);
    for (int again = 0; again < 3; again++) {
        draw(&b, &seed), expect(&b);
        for (int k = 0; k < RANKS; k++) upload_block(&b, &r[k], k);
        on_threads(r, RANKS, replay);
        expect_good(r, RANKS);
        check_block(&b, r);
    }
    free_ranks(r, RANKS);
    coda_plan_free(p);
    ck_assert_int_eq(live(), 0);
}
END_TEST

/* ---- What goes wrong ---- */

static const char sum_of_two[] =
    "%tp = group {ranks=2}\n%x = input f32 [4]\n%y = all_reduce %x, %tp\noutput %out = %y\n";

static void bind(struct rank *r, int ranks, const coda_plan *p, int timeout_ms)
{
    make_groups(r, ranks, timeout_ms);
    for (int k = 0; k < ranks; k++) {
        r[k].plan = p;
        r[k].args[1] = poisoned(64, k), r[k].args[2] = poisoned(64, k + 1);
        r[k].work = poisoned(coda_plan_workspace(p), k), r[k].stream = device_stream_new();
        ck_assert(device_upload(r[k].args[1], (float[]){1, 2, 3, (float)k}, 16));
    }
}

/* After whatever has happened a new group works, in the same context. */
static void expect_works(const coda_plan *p)
{
    struct rank r[2] = {{0}};
    float y[4];
    bind(r, 2, p, LONG_MS);
    on_threads(r, 2, run_rank);
    expect_good(r, 2);
    ck_assert(device_download(y, r[1].args[2], 16) && y[0] == 2 && y[3] == 1);
    free_ranks(r, 2);
    ck_assert_int_eq(live(), 0);
}

static const struct {
    const char *fault, *error[2];
} faults[] = {
    {"init", {"NCCL: ncclCommInitRank: ", "NCCL: ncclCommInitRank: "}},
    {"call", {"all_reduce: ", "all_reduce: ncclAllReduce: unhandled cuda error (told to fail)"}},
    {"async",
     {"all_reduce: since its last exchange: remote process exited or there was a network error (a peer is "
      "gone)",
      "all_reduce: since its last exchange: remote process exited"}},
};

/* Each rank says what it has seen itself, or what the group's end was. */
START_TEST(nccl_that_fails)
{
    struct rank r[2] = {{0}};
    open_gpu();
    coda_plan *p = compiled(sum_of_two);
    bind(r, 2, p, LONG_MS);
    setenv("FAKE_NCCL", faults[_i].fault, 1);
    on_threads(r, 2, run_rank);
    for (int k = 0; k < 2; k++) {
        bool own = strstr(r[k].error, faults[_i].error[k]), told = strstr(r[k].error, "gave up: ");
        ck_assert_msg(r[k].status && (own || told), "rank %d: \"%s\" lacks \"%s\"", k, r[k].error,
                      faults[_i].error[k]);
        ck_assert_int_ne(coda_group_status(r[k].group), CODA_OK);
    }
    free_ranks(r, 2);
    unsetenv("FAKE_NCCL");
    expect_works(p);
    coda_plan_free(p);
}
END_TEST

/* Both ranks are in an exchange, for which they wait so long; or longer, if one came too late to it. */
static void begin_to_hang(struct rank *r, const coda_plan *p, int timeout_ms)
{
    bind(r, 2, p, timeout_ms);
    on_threads(r, 2, run_rank);
    if (timeout_ms < LONG_MS && (r[0].status || r[1].status)) {
        for (int k = 0; k < 2; k++)
            ck_assert_msg(strstr(r[k].error, "missed exchange 1"), "rank %d: %s", k, r[k].error);
        free_ranks(r, 2);
        begin_to_hang(r, p, 2 * timeout_ms);
    }
    expect_good(r, 2);
}

/* An exchange that never ends is found by who asks; the others learn of it, and their streams are free. */
START_TEST(an_exchange_that_hangs)
{
    struct rank r[2] = {{0}};
    open_gpu();
    coda_plan *p = compiled(sum_of_two);
    setenv("FAKE_NCCL", "hang", 1);
    begin_to_hang(r, p, _i ? LONG_MS : SHORT_MS);
    if (_i) {
        ck_assert_int_eq(coda_group_status(r[0].group), CODA_OK);
        coda_group_abort(r[1].group);
    }
    while (!coda_group_status(r[0].group)) usleep(1000);
    ck_assert_int_eq(coda_group_status(r[0].group), CODA_E_DEVICE);
    ck_assert_msg(strstr(coda_error(), _i ? "rank 1 gave up: coda_group_abort"
                                          : "rank 0: NCCL: its last exchange has not ended for"),
                  "%s", coda_error());
    ck_assert_int_eq(coda_group_status(r[1].group), CODA_E_DEVICE);
    ck_assert_int_eq(live(), 0);
    on_threads(r, 2, run_rank);
    ck_assert(r[0].status && r[1].status);
    free_ranks(r, 2);
    unsetenv("FAKE_NCCL");
    expect_works(p);
    coda_plan_free(p);
}
END_TEST

static void *abort_later(void *ctx)
{
    usleep(SHORT_MS * 1000);
    coda_group_abort(ctx);
    return NULL;
}

/* A rank that waits in NCCL on the host for one that does not come is freed, too. */
START_TEST(a_rank_that_does_not_come)
{
    struct rank r[2] = {{0}};
    pthread_t other;
    open_gpu();
    coda_plan *p = compiled(sum_of_two);
    bind(r, 2, p, LONG_MS);
    on_threads(r, 2, run_rank);
    expect_good(r, 2);
    ck_assert_int_eq(pthread_create(&other, NULL, abort_later, r[1].group), 0);
    run_rank(&r[0]);
    pthread_join(other, NULL);
    expect_failure(r, 1, CODA_E_DEVICE, "rank 1 gave up: coda_group_abort");
    free_ranks(r, 2);
    bind(r, 2, p, LONG_MS);
    on_threads(r, 2, run_rank);
    expect_good(r, 2);
    coda_group_free(r[1].group), r[1].group = NULL;
    run_rank(&r[0]);
    expect_failure(r, 1, CODA_E_DEVICE, "rank 1 left the group before all_reduce");
    free_ranks(r, 2);
    bind(r, 2, p, SHORT_MS); /* at its first exchange it is missed by the host */
    run_rank(&r[0]);
    expect_failure(r, 1, CODA_E_DEVICE, "rank 1 missed exchange 1 (all_reduce) for 100 ms");
    free_ranks(r, 2);
    expect_works(p);
    coda_plan_free(p);
}
END_TEST

START_TEST(plans_that_differ)
{
    static const char *const other[][2] = {
        {"%tp = group {ranks=2}\n%x = input f32 [5]\n%y = all_reduce %x, %tp\noutput %out = %y\n",
         "exchange 1: rank 0 has all_reduce of f32 [1,4,1], rank 1 has all_reduce of f32 [1,5,1]"},
        {"%tp = group {ranks=2}\n%x = input f32 [4]\n%y = all_reduce %x, %tp\n%v = mul %x, %y\n"
         "%t = tanh %v\n%z = all_reduce %t, %tp, %y\noutput %out = %z\n",
         "exchange 2: rank 0 has no more, rank 1 has all_reduce of f32 [1,4,1]"},
        {"%tp = group {ranks=2}\n%x = input f32 [4]\n%y = all_reduce %x, %tp\noutput %z = %y\n",
         "rank 0 and rank 1 run other graphs, whose 1 exchanges are equal"}};
    struct rank r[2] = {{0}};
    open_gpu();
    coda_plan *p = compiled(sum_of_two), *q = compiled(other[_i][0]);
    bind(r, 2, p, LONG_MS);
    r[1].plan = q;
    on_threads(r, 2, run_rank);
    expect_failure(r, 2, CODA_E_INVALID, other[_i][1]);
    free_ranks(r, 2);
    expect_works(p);
    coda_plan_free(q);
    coda_plan_free(p);
}
END_TEST

/* ---- Communicators of the caller's ---- */

static struct {
    ncclUniqueId id;
    ncclResult_t (*new_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
    ncclResult_t (*destroy)(ncclComm_t);
} theirs;

static void open_theirs(void)
{
    char path[500];
    snprintf(path, sizeof path, "%s/libnccl.so.2", getenv("CODA_CUDA_LIB"));
    void *nccl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(nccl, "%s", dlerror());
    *(void **)&theirs.new_id = dlsym(nccl, "ncclGetUniqueId");
    *(void **)&theirs.init = dlsym(nccl, "ncclCommInitRank");
    *(void **)&theirs.destroy = dlsym(nccl, "ncclCommDestroy");
    ck_assert_int_eq(theirs.new_id(&theirs.id), ncclSuccess);
}

static void *init_rank(void *ctx)
{
    struct rank *r = ctx;
    ncclComm_t comm;
    r->status = theirs.init(&comm, 2, theirs.id, r->delay_ms) ? CODA_E_DEVICE : CODA_OK;
    r->work = comm;
    return NULL;
}

/* A group for each of two ranks; their communicators are in comm. */
static void make_theirs(struct rank *r, ncclComm_t *comm, int timeout_ms)
{
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    struct rank init[2] = {{0}, {.delay_ms = 1}};
    opt.timeout_ms = timeout_ms;
    open_theirs();
    on_threads(init, 2, init_rank);
    for (int k = 0; k < 2; k++) {
        comm[k] = init[k].work;
        coda_group_free(r[k].group);
        ck_assert_msg(!coda_group_nccl(&r[k].group, comm[k], &opt), "%s", coda_error());
        ck_assert_int_eq(coda_group_rank(r[k].group), k);
        r[k].args[0] = r[k].group;
    }
}

START_TEST(no_host_reaches_them)
{
    struct rank r[2] = {{0}};
    ncclComm_t comm[2];
    coda_plan *p;
    open_gpu();
    make_theirs(r, comm, LONG_MS);
    ck_assert_int_eq(compile(&p, sum_of_two, CODA_DEVICE_CPU, 0), CODA_OK);
    void *args[] = {r[0].group, (float[4]){0}, (float[4]){0}}, *work = NULL;
    ck_assert_int_eq(posix_memalign(&work, 256, coda_plan_workspace(p) + 256), 0);
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_E_UNSUPPORTED);
    ck_assert_msg(strstr(coda_error(), "all_reduce: the group's other ranks are reached from GPUs alone"),
                  "%s", coda_error());
    free(work);
    free_ranks(r, 2);
    coda_plan_free(p);
}
END_TEST

START_TEST(communicators_of_the_callers)
{
    struct rank r[2] = {{0}};
    ncclComm_t comm[2];
    float y[4];
    open_gpu();
    coda_plan *p = compiled(sum_of_two), *q;
    bind(r, 2, p, LONG_MS);
    make_theirs(r, comm, LONG_MS);
    for (int again = 0; again < 3; again++) {
        on_threads(r, 2, run_rank);
        expect_good(r, 2);
        ck_assert(device_download(y, r[0].args[2], 16) && y[0] == 2 && y[3] == 1);
    }
    /* another plan is compared by its digest alone */
    q = compiled("%tp = group {ranks=2}\n%x = input f32 [3]\n%y = all_reduce %x, %tp\noutput %out = %y\n");
    coda_plan *other =
        compiled("%tp = group {ranks=2}\n%x = input f32 [2]\n%y = all_reduce %x, %tp\noutput %out = %y\n");
    r[0].plan = q, r[1].plan = other;
    on_threads(r, 2, run_rank);
    expect_failure(r, 2, CODA_E_INVALID, "rank 0 and rank 1 run other graphs, or other shapes of one");
    ck_assert_int_eq(live(), 0); /* the callers' are aborted, not destroyed */
    ck_assert_int_eq(coda_group_status(r[1].group), CODA_E_INVALID);
    make_theirs(r, comm, LONG_MS);
    free_groups(r, 2);
    ck_assert_int_eq(live(), 2); /* a group does not own them */
    ck_assert(!theirs.destroy(comm[0]) && !theirs.destroy(comm[1]));
    setenv("FAKE_NCCL", "device", 1);
    make_theirs(r, comm, LONG_MS);
    r[0].plan = p, r[1].plan = p;
    on_threads(r, 2, run_rank);
    expect_failure(r, 2, CODA_E_INVALID, "the group's communicator is of device 1, the plan of device 0");
    unsetenv("FAKE_NCCL");
    free_ranks(r, 2);
    coda_group *none;
    ck_assert_int_eq(coda_group_nccl(&none, comm[0], NULL), CODA_E_DEVICE);
    ck_assert_msg(strstr(coda_error(), "group_nccl: the communicator: invalid argument"), "%s", coda_error());
    ck_assert_int_eq(coda_group_nccl(&none, NULL, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_group_nccl(NULL, comm[0], NULL), CODA_E_INVALID);
    coda_plan_free(other), coda_plan_free(q), coda_plan_free(p);
}
END_TEST

/* ---- Libraries that are not there, or too old: a plan is not made ---- */

START_TEST(says_what_is_missing)
{
    static const char *const want[] = {"@0 all_reduce of 2 ranks: NCCL is missing: ",
                                       "NCCL is missing: libnccl.so.2 is too old: it has no ncclGetVersion",
                                       "is version 2.10.3; must be 2.14.3 or newer"};
    char folder[] = "/tmp/coda-nccl-XXXXXX", line[JIT_ERROR_SIZE], to[500], from[500];
    coda_plan *p;
    open_gpu();
    ck_assert_ptr_nonnull(mkdtemp(folder));
    static const char *const others[] = {"libnvrtc.so.13"};
    for (int i = 0; i < ARRAY_SIZE(others); i++) {
        snprintf(from, sizeof from, "%s/%s", getenv("CODA_CUDA_LIB"), others[i]);
        snprintf(to, sizeof to, "%s/%s", folder, others[i]);
        ck_assert_int_eq(symlink(from, to), 0);
    }
    snprintf(from, sizeof from, "%s/%s", getenv("CODA_CUDA_LIB"),
             _i == 1 ? "libnvrtc.so.13" : "libnccl.so.2");
    snprintf(to, sizeof to, "%s/libnccl.so.2", folder);
    if (_i) ck_assert_int_eq(symlink(from, to), 0);
    setenv("CODA_CUDA_LIB", folder, 1);
    if (_i == 2) setenv("FAKE_NCCL", "old", 1);
    ck_assert_int_eq(compile(&p, sum_of_two, CODA_DEVICE_GPU, 0), CODA_E_DEVICE);
    ck_assert_msg(strstr(coda_error(), want[_i]), "%s", coda_error());
    ck_assert(!jit_nccl_info(line, sizeof line) && !strchr(line, '\n'));
    ck_assert_int_eq(
        compile(&p, "%tp = group {ranks=1}\n%x = input f32 [4]\n%y = all_reduce %x, %tp\noutput %out = %y\n",
                CODA_DEVICE_GPU, CODA_PLAN_ONLY),
        CODA_OK); /* one rank has no exchange */
    coda_plan_free(p);
    unlink(to);
    snprintf(to, sizeof to, "%s/libnvrtc.so.13", folder);
    unlink(to), rmdir(folder);
}
END_TEST

/* NCCL adds more than two in an order of its own. */
START_TEST(order_of_sums)
{
    static const char three[] =
        "%tp = group {ranks=3}\n%x = input f32 [4]\n%y = all_reduce %x, %tp\noutput %out = %y\n";
    coda_plan *p;
    open_gpu();
    ck_assert_int_eq(compile(&p, three, CODA_DEVICE_GPU, CODA_BATCH_INVARIANT), CODA_E_UNSUPPORTED);
    ck_assert_msg(strstr(coda_error(), "NCCL adds 3 ranks in an order that depends on sizes"), "%s",
                  coda_error());
    ck_assert_int_eq(compile(&p, sum_of_two, CODA_DEVICE_GPU, CODA_BATCH_INVARIANT), CODA_OK);
    coda_plan_free(p);
    char line[JIT_ERROR_SIZE];
    ck_assert(jit_nccl_info(line, sizeof line));
    ck_assert_msg(strstr(line, "2.28.9 /") && strstr(line, "/libnccl.so.2"), "%s", line);
}
END_TEST

TESTS(nccl, EACH(moves_and_adds, ARRAY_SIZE(exchanges)), ONE(a_block_in_parts),
      EACH(nccl_that_fails, ARRAY_SIZE(faults)), EACH(an_exchange_that_hangs, 2),
      ONE(a_rank_that_does_not_come), EACH(plans_that_differ, 3), ONE(communicators_of_the_callers),
      ONE(no_host_reaches_them), EACH(says_what_is_missing, 3), ONE(order_of_sums));
