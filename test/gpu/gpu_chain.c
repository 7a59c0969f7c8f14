/*
 * gpu_chain.c -- many sums over ranks by our own kernels, one behind the other with nobody waiting between:
 * replays of captured runs, of which each begins with what the last one left, by ranks that are late at
 * random, up to 64 of them under way. A word that came twice, or from another exchange, would stay in the
 * numbers; a host computes them, too.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_chain(void);

enum { RANKS = 2, ROWS = 2, COLUMNS = 520, N = ROWS * COLUMNS, STEPS = 10, LONG_MS = 300000, QUEUED = 64 };

static void *context[RANKS];

/* ---- bf16 ---- */

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* ---- A step: y = the sum of x over ranks; x = y / 4 + what the rank has ---- */

static size_t print_graph(char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size,
                                "%%tp = group {ranks=%d}\n%%own = input bf16 [%d,%d]\n%%x = state "
                                "bf16 [%d,%d]\n%%x0 = add %%x, %%own\n",
                                RANKS, ROWS, COLUMNS, ROWS, COLUMNS);
    for (int i = 0; i < STEPS; i++) {
        char before[24] = "";
        if (i) snprintf(before, sizeof before, ", %%y%d", i - 1);
        n += (size_t)snprintf(
            text + n, size - n,
            "%%y%d = all_reduce %%x%d, %%tp%s\n%%q%d = scale %%y%d {alpha=0.25}\n%%x%d = add "
            "%%q%d, %%own\n",
            i, i, before, i, i, i + 1, i);
    }
    return n + (size_t)snprintf(text + n, size - n, "%%z = assign %%x, %%x%d\n", STEPS);
}

static void run_on_host(uint16_t *x[RANKS], uint16_t *own[RANKS], int64_t runs)
{
    for (int64_t i = 0; i < N; i++)
        for (int64_t k = 0; k < runs; k++) {
            for (int r = 0; r < RANKS; r++) x[r][i] = to_bf16(of_bf16(x[r][i]) + of_bf16(own[r][i]));
            for (int s = 0; s < STEPS; s++) {
                float y = of_bf16(to_bf16(of_bf16(x[0][i]) + of_bf16(x[1][i])));
                for (int r = 0; r < RANKS; r++) x[r][i] = to_bf16(0.25f * y + of_bf16(own[r][i]));
            }
        }
}

/* ---- A rank ---- */

struct rank {
    int number, replays;
    uint64_t seed;
    uint16_t own[N], x[N];
    pthread_barrier_t *all;
    coda_group *group;
    char error[600];
};

static bool say(struct rank *r, const char *what)
{
    snprintf(r->error, sizeof r->error, "rank %d: %.500s", r->number, what);
    return false;
}

static bool replay(struct rank *r, const coda_plan *p, void *const *args, void *work, void *stream)
{
    struct random draw = {r->seed * 31 + (uint64_t)r->number};
    if (!device_capture_begin_beside(stream)) return say(r, "no capture");
    coda_status s = coda_run(p, args, NULL, work, stream);
    void *captured = device_capture_end(stream);
    bool good = captured && !s;
    for (int i = 0; i < r->replays && good; i++) {
        if (random_next(&draw) % 64 == 0) usleep((useconds_t)(random_next(&draw) % 2000));
        good = device_replay(captured, stream);
        if (i % QUEUED == QUEUED - 1) good = device_stream_wait(stream) && good;
    }
    good = device_stream_wait(stream) && good;
    device_captured_free(captured);
    if (!good) return say(r, s ? coda_error() : "no replay");
    return !coda_group_status(r->group) || say(r, coda_error());
}

static bool run(struct rank *r)
{
    char text[8192];
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    if (print_graph(text, sizeof text) >= sizeof text || !device_use(context[r->number])) return say(r, "no");
    if (coda_graph_parse(&g, text) || coda_compile(&p, g, NULL)) return say(r, coda_error());
    coda_graph_free(g);
    void *args[] = {r->group, device_alloc(sizeof r->own), device_alloc(sizeof r->x)};
    void *work = device_alloc(coda_plan_workspace(p)), *stream = device_stream_new();
    bool good = device_upload(args[1], r->own, sizeof r->own) && device_upload(args[2], r->x, sizeof r->x);
    pthread_barrier_wait(r->all);
    if (coda_run(p, args, NULL, work, stream) || !device_stream_wait(stream)) good = say(r, coda_error());
    pthread_barrier_wait(r->all);
    good = good && replay(r, p, args, work, stream) && device_download(r->x, args[2], sizeof r->x);
    device_free(args[1]), device_free(args[2]), device_free(work), device_stream_free(stream);
    coda_plan_free(p);
    return good;
}

static void *run_rank(void *ctx)
{
    struct rank *r = ctx;
    if (!run(r)) coda_group_abort(r->group);
    return NULL;
}

static int check_chain(const char *how, int replays, uint64_t seed)
{
    static struct rank r[RANKS];
    static uint16_t x[RANKS][N];
    coda_group *group[RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    pthread_t thread[RANKS];
    pthread_barrier_t all;
    int64_t wrong = 0;
    opt.timeout_ms = LONG_MS;
    setenv("CODA_EXCHANGE", how, 1);
    pthread_barrier_init(&all, NULL, RANKS);
    if (coda_group_local(group, RANKS, &opt)) return gpu_case(false, how, "%s", coda_error());
    for (int k = 0; k < RANKS; k++) {
        struct random draw = {seed + (uint64_t)k};
        r[k] = (struct rank){.number = k, .replays = replays, .seed = seed, .all = &all, .group = group[k]};
        for (int i = 0; i < N; i++) r[k].own[i] = to_bf16((float)random_normal(&draw));
        for (int i = 0; i < N; i++) x[k][i] = r[k].x[i] = to_bf16((float)random_normal(&draw));
    }
    for (int k = 0; k < RANKS; k++)
        if (pthread_create(&thread[k], NULL, run_rank, &r[k])) abort();
    for (int k = 0; k < RANKS; k++) pthread_join(thread[k], NULL);
    run_on_host((uint16_t *[]){x[0], x[1]}, (uint16_t *[]){r[0].own, r[1].own}, 1 + replays);
    for (int k = 0; k < RANKS; k++)
        for (int i = 0; i < N; i++) wrong += r[k].x[i] != x[k][i];
    for (int k = 0; k < RANKS; k++) coda_group_free(group[k]);
    pthread_barrier_destroy(&all);
    return gpu_case(!wrong && !r[0].error[0] && !r[1].error[0], how, "%d sums, %lld wrong elements %s %s",
                    STEPS * (1 + replays), (long long)wrong, r[0].error, r[1].error);
}

int gpu_chain(void)
{
    char err[JIT_ERROR_SIZE];
    struct jit_device gpu;
    uint64_t seed = random_seed();
    setenv("CODA_EMULATOR_DEVICES", "2", 0);
    if (!device_open(&gpu, err)) return gpu_case(false, "chain", "%s", err);
    int n = device_contexts(context, RANKS);
    if (n == 1) context[1] = context[0]; /* both ranks share the one that there is */
    int replays = device_dry() ? 1 : !device_emulated(&gpu) ? 10000 : scale_is_full() ? 1000 : 20;
    int failed = check_chain("push", replays, seed) + check_chain("two_shot", replays, seed);
    unsetenv("CODA_EXCHANGE");
    device_use(gpu.context);
    return failed;
}
