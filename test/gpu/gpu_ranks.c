/*
 * gpu_ranks.c -- one graph over two GPUs of a process, a thread each, by NCCL and by our own kernels: the
 * exchanges with any bits, a LLaMA layer whose weights are cut against the whole on one GPU, captured too;
 * and a rank that does not come. On the emulator both ranks share its device, unless it has two.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_ranks(void);

enum { RANKS = 2, MOST_ARGS = 12, MOST_TEXT = 4096, LONG_MS = 300000, SHORT_MS = 500 };

/* ---- A device each ---- */

static void *context[RANKS];

/* How many ranks have a context; both share one where the emulator has one. */
static int find_contexts(const struct jit_device *gpu)
{
    int n = device_contexts(context, RANKS);
    if (n == 1 && device_emulated(gpu)) context[1] = context[0], n = RANKS;
    return n;
}

struct rank {
    int number;
    char text[MOST_TEXT];  /* of its graph */
    void *host[MOST_ARGS]; /* what its leaves hold; NULL: it is the group, or an output */
    bool captures;         /* the run behind the first one */
    int runs;
    coda_group *group;
    coda_plan *plan;
    void *args[MOST_ARGS], *work, *stream;
    size_t bytes[MOST_ARGS];
    void *out; /* the last argument, after the last run */
    coda_status status;
    char error[1024];
};

static coda_status say(struct rank *r, const char *what)
{
    snprintf(r->error, sizeof r->error, "rank %d: %s", r->number, what);
    return r->status = CODA_E_DEVICE;
}

static coda_status load_rank(struct rank *r)
{
    coda_graph *g = NULL;
    if (!device_use(context[r->number])) return say(r, "no context");
    if ((r->status = coda_graph_parse(&g, r->text))) return r->status;
    r->status = coda_compile(&r->plan, g, NULL);
    coda_graph_free(g);
    if (r->status) return r->status;
    for (int i = 0;; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_plan_arg(r->plan, i, &info)) break;
        if (info.kind == CODA_ARG_GROUP) r->args[i] = r->group;
        else if (!(r->args[i] = device_alloc(r->bytes[i] = info.bytes))) return say(r, "no memory");
        else if (r->host[i] ? !device_upload(r->args[i], r->host[i], info.bytes)
                            : !device_fill(r->args[i], 0xff, info.bytes))
            return say(r, "no copy");
    }
    r->work = device_alloc(coda_plan_workspace(r->plan));
    r->stream = device_stream_new();
    return r->work && r->stream ? CODA_OK : say(r, "no workspace or stream");
}

/* The last rank comes late, so that the others wait. */
static coda_status run_once(struct rank *r)
{
    enum { LATE_US = 5000 };
    if (r->number == RANKS - 1) usleep(LATE_US);
    coda_status s = coda_run(r->plan, r->args, NULL, r->work, r->stream);
    return r->status = s ? s : device_stream_wait(r->stream) ? CODA_OK : say(r, "the stream failed");
}

static coda_status replay(struct rank *r)
{
    if (!device_capture_begin_beside(r->stream)) return say(r, "no capture");
    r->status = coda_run(r->plan, r->args, NULL, r->work, r->stream);
    void *captured = device_capture_end(r->stream);
    if (r->status || !captured) return r->status ? r->status : say(r, "no graph");
    bool good = true;
    for (int i = 0; i < r->runs && good; i++)
        good = device_replay(captured, r->stream) && device_stream_wait(r->stream);
    device_captured_free(captured);
    return good ? CODA_OK : say(r, "a replay failed");
}

static void *run_rank(void *ctx)
{
    struct rank *r = ctx;
    int last = 0;
    coda_status s = load_rank(r);
    for (int i = 0; i < r->runs && !s; i++) s = run_once(r);
    if (!s && r->captures) s = replay(r);
    while (last + 1 < MOST_ARGS && r->bytes[last + 1]) last++;
    r->out = s ? NULL : malloc(r->bytes[last]);
    if (!s && (!r->out || !device_download(r->out, r->args[last], r->bytes[last]))) s = say(r, "no result");
    if (s && !r->error[0]) snprintf(r->error, sizeof r->error, "rank %d: %.900s", r->number, coda_error());
    if (s) coda_group_abort(r->group); /* the others would wait for it on their GPUs */
    return NULL;
}

static void free_rank(struct rank *r)
{
    device_use(context[r->number]);
    for (int i = 0; i < MOST_ARGS; i++) {
        if (r->bytes[i]) device_free(r->args[i]);
        free(r->host[i]);
    }
    device_free(r->work);
    device_stream_free(r->stream);
    coda_plan_free(r->plan);
    coda_group_free(r->group);
    free(r->out);
}

static bool make_groups(struct rank *r, int timeout_ms)
{
    coda_group *group[RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    opt.timeout_ms = timeout_ms;
    if (coda_group_local(group, RANKS, &opt)) return false;
    for (int k = 0; k < RANKS; k++) r[k].group = group[k], r[k].number = k;
    return true;
}

/* All ranks, to their end; false with the reason in what, if one failed. */
static bool run_all(struct rank *r, int ranks, char *what, size_t size)
{
    pthread_t thread[RANKS];
    int begun = 0;
    while (begun < ranks && !pthread_create(&thread[begun], NULL, run_rank, &r[begun])) begun++;
    for (int k = 0; k < begun; k++) pthread_join(thread[k], NULL);
    for (int k = 0; k < ranks; k++)
        if (!r[k].out) return snprintf(what, size, "%s", r[k].error), false;
    return true;
}

/* ---- bf16 ---- */

static uint16_t to_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double of_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static uint16_t *drawn(int64_t n, double scale, uint64_t seed)
{
    struct random r = {seed};
    uint16_t *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++) x[i] = to_bf16(random_normal(&r) * scale);
    return x;
}

/* Rows of `columns`, of which a part begins at `from`: columns `from` to `from + part`. */
static uint16_t *cut(const uint16_t *x, int64_t rows, int64_t columns, int64_t from, int64_t part)
{
    uint16_t *y = malloc((size_t)(rows * part) * sizeof *y);
    for (int64_t i = 0; y && i < rows; i++) memcpy(y + i * part, x + i * columns + from, (size_t)part * 2);
    return y;
}

/* ---- Exchanges ---- */

static const struct {
    const char *name, *operation;
    int64_t rows, columns;
    int axis;
    bool centred; /* doubled, less its row's largest, by a pass over rows of which the sum is a part */
} exchanges[] = {
    {"sum 8 KiB", "all_reduce", 1, 4096, -1, false},
    {"sum 1 MiB", "all_reduce", 64, 8192, -1, false},
    {"sum 8 MiB", "all_reduce", 1031, 4104, -1, false}, /* of which a thread has several pieces at once */
    {"scatter rows", "reduce_scatter", 64, 1024, 0, false},
    {"scatter columns", "reduce_scatter", 300, 256, 1, false},
    {"gather rows", "all_gather", 32, 1024, 0, false},
    {"gather columns", "all_gather", 300, 128, 1, false},
    {"sum and rows", "all_reduce", 4200, 136, -1, true}, /* more blocks than an inbox has counters */
};

/* In fp32, rounded once: of two that is what NCCL gives, too. */
static uint16_t wanted(int e, uint16_t *const x[RANKS], int rank, int64_t i)
{
    int64_t columns = exchanges[e].columns, rows = exchanges[e].rows, at = i, of = -1;
    if (exchanges[e].operation[0] == 'r') {
        int64_t made = exchanges[e].axis ? columns / RANKS : columns;
        at = exchanges[e].axis ? i / made * columns + rank * made + i % made
                               : rank * (rows / RANKS) * columns + i;
    } else if (exchanges[e].axis >= 0) {
        int64_t made = exchanges[e].axis ? columns * RANKS : columns;
        of = exchanges[e].axis ? i % made / columns : i / (rows * columns);
        at = exchanges[e].axis ? i / made * columns + i % columns : i % (rows * columns);
    }
    return of >= 0 ? x[of][at] : to_bf16(of_bf16(x[0][at]) + of_bf16(x[1][at]));
}

/* The same doubled, less its row's largest. */
static uint16_t wanted_centred(int e, uint16_t *const x[RANKS], int64_t i)
{
    int64_t columns = exchanges[e].columns, first = i / columns * columns;
    double most = of_bf16(wanted(e, x, 0, first));
    for (int64_t k = 1; k < columns; k++) most = fmax(most, of_bf16(wanted(e, x, 0, first + k)));
    return to_bf16(2 * of_bf16(wanted(e, x, 0, i)) - 2 * most);
}

static bool is_large(int e) { return exchanges[e].rows * exchanges[e].columns > 1 << 19; }

/* Twice as it is, and twice as a graph; a large one on the emulator once each. */
static int check_exchange(int e, const struct jit_device *gpu)
{
    static const char text[] =
        "%%tp = group {ranks=2}\n%%x = input bf16 [%lld,%lld]\n%s%%y = %s %%%s, %%tp%s\n"
        "%soutput %%out = %%%s\n";
    static const char *const axis[] = {"", " {axis=0}", " {axis=1}"};
    struct rank *r = calloc(RANKS, sizeof *r);
    char what[1100] = "";
    int64_t n = exchanges[e].rows * exchanges[e].columns, wrong = 0;
    uint16_t *x[RANKS] = {drawn(n, 1, 1), drawn(n, 1, 2)};
    bool good = r && x[0] && x[1] && make_groups(r, LONG_MS), centred = exchanges[e].centred;
    for (int k = 0; k < RANKS && good; k++) {
        snprintf(r[k].text, sizeof r[k].text, text, (long long)exchanges[e].rows,
                 (long long)exchanges[e].columns, centred ? "%w = scale %x {alpha=2}\n" : "",
                 exchanges[e].operation, centred ? "w" : "x", axis[exchanges[e].axis + 1],
                 centred ? "%m = max %y\n%z = sub %y, %m\n" : "", centred ? "z" : "y");
        r[k].host[1] = cut(x[k], 1, n, 0, n), r[k].captures = true;
        r[k].runs = is_large(e) && device_emulated(gpu) && !scale_is_full() ? 1 : 2;
    }
    good = good && run_all(r, RANKS, what, sizeof what);
    for (int k = 0; k < RANKS && good; k++)
        for (int64_t i = 0; i < (int64_t)(r[k].bytes[2] / 2); i++)
            wrong += ((uint16_t *)r[k].out)[i] != (centred ? wanted_centred(e, x, i) : wanted(e, x, k, i));
    int failed =
        gpu_case(good && !wrong, exchanges[e].name, "%lld wrong elements %s", (long long)wrong, what);
    for (int k = 0; k < RANKS && r; k++) free_rank(&r[k]), free(x[k]);
    device_use(gpu->context);
    return free(r), failed;
}

/* ---- A layer ---- */

struct layer {
    const char *name;
    int64_t m, d, f, heads, kv_heads, head;
};

static const struct layer layers[] = {{"layer of 1 token", 1, 1024, 2816, 8, 4, 128},
                                      {"layer of 8 tokens", 8, 1024, 2816, 8, 4, 128},
                                      {"layer of 64 tokens", 64, 1024, 2816, 8, 4, 128},
                                      {"layer of 512 tokens", 512, 2048, 5632, 16, 16, 128}};
/* For the emulator: rows of a warp, and of a block. */
static const struct layer small = {"layer", 4, 64, 128, 4, 2, 16},
                          wide = {"wide layer", 3, 768, 128, 4, 2, 16};

enum { X = 1, GAIN, WQ, WK, WV, WO, GAIN2, WG, WU, WD }; /* arguments */

/* Of one rank of P; with one there is no exchange left. */
static void print_layer(char *text, const struct layer *l, int ranks)
{
    long long d = l->d, f = l->f / ranks, q = l->heads * l->head / ranks, kv = l->kv_heads * l->head / ranks;
    snprintf(
        text, MOST_TEXT,
        "%%tp = group {ranks=%d}\n%%x = input bf16 [%lld,%lld]\n%%g = weight bf16 [%lld]\n"
        "%%wq = weight bf16 [%lld,%lld]\n%%wk = weight bf16 [%lld,%lld]\n%%wv = weight bf16 [%lld,%lld]\n"
        "%%wo = weight bf16 [%lld,%lld]\n%%g2 = weight bf16 [%lld]\n%%wg = weight bf16 [%lld,%lld]\n"
        "%%wu = weight bf16 [%lld,%lld]\n%%wd = weight bf16 [%lld,%lld]\n"
        "%%n = rms_norm %%x, %%g {eps=1e-5}\n%%q = matmul %%n, %%wq\n%%k = matmul %%n, %%wk\n"
        "%%v = matmul %%n, %%wv\n%%qr = rope %%q {base=10000,head_dim=%lld,half=1}\n"
        "%%kr = rope %%k {base=10000,head_dim=%lld,half=1}\n"
        "%%a = attention %%qr, %%kr, %%v {scale=%.17g,heads=%lld,kv_heads=%lld,causal=1}\n"
        "%%z = matmul %%a, %%wo\n%%s = all_reduce %%z, %%tp\n%%h = add %%s, %%x\n"
        "%%n2 = rms_norm %%h, %%g2 {eps=1e-5}\n%%gate = matmul %%n2, %%wg\n%%up = matmul %%n2, %%wu\n"
        "%%m = swiglu %%gate, %%up\n%%z2 = matmul %%m, %%wd\n%%s2 = all_reduce %%z2, %%tp, %%s\n"
        "%%y = add %%s2, %%h\noutput %%out = %%y\n",
        ranks, (long long)l->m, d, d, q, d, kv, d, kv, d, d, q, d, f, d, f, d, d, f, (long long)l->head,
        (long long)l->head, 1 / sqrt((double)l->head), (long long)l->heads / ranks,
        (long long)l->kv_heads / ranks);
}

/* A rank's part of what the whole has: rows of what makes heads and hidden columns, columns of what adds up.
 * */
static void cut_layer(const struct layer *l, uint16_t *const *whole, struct rank *r, int ranks)
{
    int64_t d = l->d, k = r->number, q = l->heads * l->head, kv = l->kv_heads * l->head, f = l->f, p = ranks;
    r->host[X] = cut(whole[X], l->m, d, 0, d);
    r->host[GAIN] = cut(whole[GAIN], 1, d, 0, d), r->host[GAIN2] = cut(whole[GAIN2], 1, d, 0, d);
    r->host[WQ] = cut(whole[WQ], 1, q * d, k * q / p * d, q / p * d);
    r->host[WK] = cut(whole[WK], 1, kv * d, k * kv / p * d, kv / p * d);
    r->host[WV] = cut(whole[WV], 1, kv * d, k * kv / p * d, kv / p * d);
    r->host[WG] = cut(whole[WG], 1, f * d, k * f / p * d, f / p * d);
    r->host[WU] = cut(whole[WU], 1, f * d, k * f / p * d, f / p * d);
    r->host[WO] = cut(whole[WO], d, q, k * q / p, q / p);
    r->host[WD] = cut(whole[WD], d, f, k * f / p, f / p);
}

static bool draw_layer(const struct layer *l, uint16_t **w)
{
    int64_t d = l->d, q = l->heads * l->head, kv = l->kv_heads * l->head, f = l->f;
    const int64_t n[] = {0, l->m * d, d, q * d, kv * d, kv * d, d * q, d, f * d, f * d, d * f};
    for (int i = X; i <= WD; i++) {
        bool gain = i == X || i == GAIN || i == GAIN2;
        int64_t from = i == WO ? q : i == WD ? f : d;
        if (!(w[i] = drawn(n[i], gain ? 1 : 1 / sqrt((double)from), (uint64_t)i))) return false;
    }
    return true;
}

/* |a - b| / (|b| + 1) at most: each side rounds to bf16 a few times. */
static double difference(const uint16_t *a, const uint16_t *b, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(of_bf16(a[i]) - of_bf16(b[i])) / (fabs(of_bf16(b[i])) + 1);
        worst = isnan(e) ? INFINITY : fmax(worst, e);
    }
    return worst;
}

static int check_layer(const struct layer *l, const struct jit_device *gpu)
{
    struct rank *r = calloc(RANKS, sizeof *r), *one = calloc(1, sizeof *one);
    uint16_t *w[MOST_ARGS] = {NULL};
    char what[1100] = "";
    double worst = INFINITY;
    bool equal = false, good = r && one && draw_layer(l, w) && make_groups(r, LONG_MS);
    good = good && coda_group_local(&one->group, 1, NULL) == CODA_OK;
    for (int k = 0; k < RANKS && good; k++) {
        print_layer(r[k].text, l, RANKS), cut_layer(l, w, &r[k], RANKS);
        r[k].runs = 2, r[k].captures = true;
    }
    if (good) print_layer(one->text, l, 1), cut_layer(l, w, one, 1), one->runs = 1;
    good = good && run_all(one, 1, what, sizeof what) && run_all(r, RANKS, what, sizeof what);
    if (good) {
        worst = difference(r[0].out, one->out, l->m * l->d);
        equal = !memcmp(r[0].out, r[1].out, (size_t)(l->m * l->d) * 2);
    }
    int failed = gpu_case(good && equal && worst <= 0.04, l->name, "%.2e from one GPU, ranks have %s bits %s",
                          worst, equal ? "equal" : "other", what);
    for (int k = 0; k < RANKS && r; k++) free_rank(&r[k]);
    if (one) free_rank(one);
    for (int i = 0; i < MOST_ARGS; i++) free(w[i]);
    device_use(gpu->context);
    free(one), free(r);
    return failed;
}

/* ---- A rank that does not come ---- */

static void *run_alone(void *ctx)
{
    struct rank *r = ctx;
    device_use(context[r->number]);
    r->status = coda_run(r->plan, r->args, NULL, r->work, r->stream);
    for (int i = 0; i < 100 && !coda_group_status(r->group); i++) usleep(SHORT_MS * 100);
    snprintf(r->error, sizeof r->error, "%s", coda_error());
    r->runs = device_stream_wait(r->stream); /* it is free again */
    return NULL;
}

/* Ranks that have exchanged something; then one does not come, and the other one finds out. */
static int check_missing(const struct jit_device *gpu)
{
    struct rank *r = calloc(RANKS, sizeof *r);
    char what[1100] = "";
    bool good = r && make_groups(r, SHORT_MS);
    for (int k = 0; k < RANKS && good; k++) {
        snprintf(r[k].text, sizeof r[k].text,
                 "%%tp = group {ranks=2}\n%%x = input bf16 [4096]\n%%y = all_reduce %%x, %%tp\noutput %%out "
                 "= %%y\n");
        r[k].host[1] = drawn(4096, 1, 1), r[k].runs = 1;
    }
    good = good && run_all(r, RANKS, what, sizeof what);
    pthread_t thread;
    if (good && !pthread_create(&thread, NULL, run_alone, &r[0])) pthread_join(thread, NULL);
    good = good && r[0].runs && strstr(r[0].error, "its last exchange has not ended for");
    int failed = gpu_case(good, "a rank that does not come", "%s%s", what, good ? r[0].error : "");
    for (int k = 0; k < RANKS && r; k++) free_rank(&r[k]);
    device_use(gpu->context);
    free(r);
    return failed + check_exchange(0, gpu); /* in the same contexts */
}

/* On the emulator half of them by either way. Those that are large are so for our own kernels' sake. */
static bool is_taken(int e, bool own)
{
    return is_large(e) ? own && scale_takes_one_in(3, e) : scale_takes_half(e + own);
}

int gpu_ranks(void)
{
    char err[JIT_ERROR_SIZE], line[JIT_ERROR_SIZE];
    struct jit_device gpu;
    int failed = 0;
    if (device_open(&gpu, err)) {
        if (find_contexts(&gpu) < RANKS) return gpu_skip("ranks", "there is one GPU, and ranks want two");
        device_use(gpu.context);
        if (!jit_nccl_info(line, sizeof line)) return gpu_skip("ranks", line);
        bool emulated = device_emulated(&gpu);
        printf("NCCL %s\n", line);
        for (int own = 0; own < 2; own++) {
            setenv("CODA_EXCHANGE", own ? "own" : "nccl", 1);
            puts(own ? "by our own kernels" : "by NCCL");
            for (int e = 0; e < (int)(sizeof exchanges / sizeof *exchanges); e++)
                if (!emulated || is_taken(e, own)) failed += check_exchange(e, &gpu);
            for (int i = 0; i < (int)(sizeof layers / sizeof *layers) && !emulated; i++)
                failed += check_layer(&layers[i], &gpu);
            if (emulated && (!scale_is_thinned() || scale_takes_half(own)))
                failed += check_layer(&small, &gpu);
            if (emulated && (!scale_is_thinned() || !scale_takes_half(own)))
                failed += check_layer(&wide, &gpu);
        }
        setenv("CODA_EXCHANGE", "nccl", 1);
        if (!emulated) failed += check_missing(&gpu);
        unsetenv("CODA_EXCHANGE");
        return failed;
    }
    return gpu_case(false, "ranks", "%s", err);
}
