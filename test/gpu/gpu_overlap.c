/*
 * gpu_overlap.c -- exchanges beside products: with CODA_OVERLAP two ranks, threads with a GPU each, have the
 * bits that they have without, by NCCL and by our own kernels, run by run and captured. The emulator runs
 * what was captured in any order that it allows, another one each time. A rank that comes no more, or gives
 * up, ends the other one, which is told so.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_overlap.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_overlap(void);

enum { RANKS = 2, MOST_ARGS = 12, LONG_MS = 60000, SHORT_MS = 500 };

static void *context[RANKS];

/* How many ranks have a context; both share one where the emulator has one. */
static int find_contexts(const struct jit_device *gpu)
{
    int n = device_contexts(context, RANKS);
    if (n == 1 && device_emulated(gpu)) context[1] = context[0], n = RANKS;
    return n;
}

enum leaving { STAYS, VANISHES, GIVES_UP };

struct rank {
    int number, runs, replays;
    enum leaving leaving; /* before its replay `leaves` */
    int leaves;
    char text[OVERLAP_TEXT];
    unsigned flags, also; /* of all plans that overlap */
    coda_group *group;
    coda_plan *plan;
    void *args[MOST_ARGS], *work, *stream;
    size_t bytes[MOST_ARGS];
    bool output[MOST_ARGS], shares;
    void *want[MOST_ARGS]; /* what outputs had the first time */
    int64_t wrong;
    char error[1024];
};

static bool say(struct rank *r, const char *what)
{
    if (!r->error[0]) snprintf(r->error, sizeof r->error, "rank %d: %.900s", r->number, what);
    return false;
}

static bool compile(struct rank *r)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    char *shown;
    opt.flags = r->flags;
    coda_plan_free(r->plan);
    r->plan = NULL;
    if (coda_graph_parse(&g, r->text)) return say(r, coda_error());
    coda_status s = coda_compile(&r->plan, g, &opt);
    coda_graph_free(g);
    if (s) return say(r, coda_error());
    size_t n = (size_t)coda_plan_print(r->plan, CODA_TEXT_PLAN, NULL, 0) + 1;
    bool told = (shown = malloc(n)) && coda_plan_print(r->plan, CODA_TEXT_PLAN, shown, n) >= 0 &&
                !strstr(shown, "   beside @") == !(r->flags & CODA_OVERLAP) &&
                !strstr(shown, " inbox+") == !(r->shares && r->flags & CODA_OVERLAP);
    free(shown);
    return told || say(r, "the plan says otherwise");
}

/* Small numbers; leaves of one name have equal ones on both ranks, or not, which does not matter. */
static bool fill(struct rank *r, int i)
{
    struct random draw = {(uint64_t)(97 * i + r->number + 1)};
    uint16_t *x = malloc(r->bytes[i]);
    for (size_t k = 0; x && k < r->bytes[i] / 2; k++) {
        float f = (float)random_normal(&draw) / 4;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        x[k] = (uint16_t)(bits >> 16);
    }
    bool good = x && device_upload(r->args[i], x, r->bytes[i]);
    free(x);
    return good;
}

static bool allocate(struct rank *r)
{
    for (int i = 0;; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_plan_arg(r->plan, i, &info)) break;
        if (info.kind == CODA_ARG_GROUP) r->args[i] = r->group;
        else if (!(r->args[i] = device_alloc(r->bytes[i] = info.bytes))) return say(r, "no memory");
        r->output[i] = info.kind == CODA_ARG_OUTPUT;
        if (r->bytes[i] && !r->output[i] && !fill(r, i)) return say(r, "no copy");
    }
    return (r->stream = device_stream_new()) || say(r, "no stream");
}

static bool poison(const struct rank *r)
{
    bool good = device_fill(r->work, 0xff, coda_plan_workspace(r->plan));
    for (int i = 0; i < MOST_ARGS && good; i++)
        if (r->output[i]) good = device_fill(r->args[i], 0xee, r->bytes[i]);
    return good;
}

/* The first time what comes is what is wanted. */
static bool compare(struct rank *r)
{
    for (int i = 0; i < MOST_ARGS; i++) {
        if (!r->output[i]) continue;
        uint8_t *got = malloc(r->bytes[i]);
        if (!got || !device_download(got, r->args[i], r->bytes[i])) return free(got), say(r, "no result");
        for (size_t k = 0; r->want[i] && k < r->bytes[i]; k++)
            r->wrong += got[k] != ((const uint8_t *)r->want[i])[k];
        if (r->want[i]) free(got);
        else r->want[i] = got;
    }
    return true;
}

static bool run_once(struct rank *r, void *captured)
{
    if (!poison(r)) return say(r, "no copy");
    bool good =
        captured ? device_replay(captured, r->stream) : !coda_run(r->plan, r->args, NULL, r->work, r->stream);
    if (!good) return say(r, captured ? "no replay" : coda_error());
    if (!device_stream_wait(r->stream)) return say(r, "the stream failed");
    return coda_group_status(r->group) ? say(r, coda_error()) : compare(r);
}

static void *capture(struct rank *r)
{
    if (!device_capture_begin_beside(r->stream)) return say(r, "no capture"), NULL;
    coda_status s = coda_run(r->plan, r->args, NULL, r->work, r->stream);
    if (s) say(r, coda_error());
    void *captured = device_capture_end(r->stream);
    if (!captured) say(r, "what was captured does not end");
    return captured;
}

/* Of a plan whose runs have the memory of the first one, another one's is refused. */
static bool runs_elsewhere(struct rank *r)
{
    void *other = device_alloc(coda_plan_workspace(r->plan));
    coda_status s = other ? coda_run(r->plan, r->args, NULL, other, r->stream) : CODA_E_MEMORY;
    bool refused = s == CODA_E_INVALID && strstr(coda_error(), "lies elsewhere");
    device_free(other);
    return refused || say(r, "it runs with another workspace");
}

static bool replay_all(struct rank *r, void *captured)
{
    bool good = true;
    for (int i = 0; i < r->replays && good; i++) {
        if (r->leaving && i == r->leaves) {
            if (r->leaving == GIVES_UP) coda_group_abort(r->group);
            return true;
        }
        good = run_once(r, captured);
    }
    return good;
}

/* Without; then with it, again and again. */
static void *run_rank(void *ctx)
{
    struct rank *r = ctx;
    void *captured = NULL;
    bool good = device_use(context[r->number]) && compile(r) && allocate(r);
    for (int with = 0; with < 2 && good; with++) {
        r->flags = with ? CODA_OVERLAP | r->also : 0;
        good = (!with || compile(r)) && (r->work = device_alloc(coda_plan_workspace(r->plan)));
        for (int i = 0; i < (with ? r->runs : 1) && good; i++) good = run_once(r, NULL);
        if (good && with) good = (captured = capture(r)) != NULL;
        if (good && with) good = replay_all(r, captured);
        if (good && with && r->also && !r->leaving) good = runs_elsewhere(r);
        device_captured_free(captured);
        if (!with) device_free(r->work), r->work = NULL;
        captured = NULL;
    }
    if (!good) say(r, "no memory"), coda_group_abort(r->group);
    return NULL;
}

static void free_rank(struct rank *r)
{
    device_use(context[r->number]);
    for (int i = 0; i < MOST_ARGS; i++) {
        if (r->bytes[i]) device_free(r->args[i]);
        free(r->want[i]);
    }
    device_free(r->work); /* into which the other one may have copied until now */
    if (r->stream) device_stream_free(r->stream);
    coda_plan_free(r->plan);
    coda_group_free(r->group);
}

static const char *const names[OVERLAP_GRAPHS] = {"gradients", "pieces", "gradients in fp32",
                                                  "gradients in bf16"};

/* Ranks in threads, of a new group; false: there is none. */
static bool run_ranks(struct rank *r, int which, const char *how, int timeout_ms)
{
    bool steady = !strcmp(how, "straight copies");
    coda_group *group[RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    pthread_t thread[RANKS];
    int begun = 0;
    opt.timeout_ms = timeout_ms;
    setenv("CODA_EXCHANGE", steady ? "copies" : how, 1);
    bool good = !coda_group_local(group, RANKS, &opt);
    for (int k = 0; k < RANKS && good; k++) {
        r[k].number = k, r[k].group = group[k], r[k].runs = 1;
        r[k].shares = which >= 2 && strstr(how, "copies");
        r[k].also = steady ? CODA_STEADY : 0;
        overlap_graph(r[k].text, sizeof r[k].text, which);
    }
    while (good && begun < RANKS && !pthread_create(&thread[begun], NULL, run_rank, &r[begun])) begun++;
    for (int k = 0; k < begun; k++) pthread_join(thread[k], NULL);
    for (int k = begun; k < RANKS; k++) say(&r[k], "no thread");
    return good;
}

static int check(int which, const char *how, const struct jit_device *gpu)
{
    struct rank r[RANKS] = {{0}};
    char name[64];
    for (int k = 0; k < RANKS; k++) r[k].replays = scaled(16);
    bool good = run_ranks(r, which, how, LONG_MS);
    snprintf(name, sizeof name, "%s by %s", names[which], how);
    int64_t wrong = r[0].wrong + r[1].wrong;
    int failed = gpu_case(good && !wrong && !r[0].error[0] && !r[1].error[0], name, "%lld wrong bytes %s %s",
                          (long long)wrong, r[0].error, r[1].error);
    for (int k = 0; k < RANKS && good; k++) free_rank(&r[k]);
    device_use(gpu->context);
    return failed;
}

/* A rank leaves ahead of one of its replays. Once more with a later deadline, where a busy machine kept the
 * one that stays from coming in time. */
static int check_leaving(int which, enum leaving leaving, int timeout_ms, struct random *draw,
                         const struct jit_device *gpu)
{
    enum { REPLAYS = 4 };
    struct rank r[RANKS] = {{0}};
    char who[40], name[80];
    int victim = (int)(random_next(draw) % RANKS), stays = 1 - victim;
    for (int k = 0; k < RANKS; k++) r[k].replays = REPLAYS;
    r[victim].leaving = leaving, r[victim].leaves = (int)(random_next(draw) % REPLAYS);
    bool good = run_ranks(r, which, random_next(draw) % 2 ? "copies" : "straight copies", timeout_ms),
         late = r[victim].error[0];
    snprintf(who, sizeof who, leaving == GIVES_UP ? "rank %d gave up" : "rank %d missed exchange ", victim);
    snprintf(name, sizeof name, "%s, a rank that %s", names[which],
             leaving == GIVES_UP ? "gives up" : "comes no more");
    int64_t wrong = r[0].wrong + r[1].wrong;
    int failed = 0;
    if (!late || timeout_ms >= LONG_MS)
        failed = gpu_case(good && !late && !wrong && strstr(r[stays].error, who), name,
                          "of %d, ahead of replay %d: %lld wrong bytes, \"%s\" %s", victim, r[victim].leaves,
                          (long long)wrong, r[stays].error, r[victim].error);
    for (int k = 0; k < RANKS && good; k++) free_rank(&r[k]);
    device_use(gpu->context);
    return late && timeout_ms < LONG_MS ? check_leaving(which, leaving, 5 * timeout_ms, draw, gpu) : failed;
}

int gpu_overlap(void)
{
    char err[JIT_ERROR_SIZE], line[JIT_ERROR_SIZE];
    struct jit_device gpu;
    int failed = 0;
    if (!device_open(&gpu, err)) return gpu_case(false, "overlap", "%s", err);
    if (find_contexts(&gpu) < RANKS) return gpu_skip("overlap", "there is one GPU, and ranks want two");
    device_use(gpu.context);
    if (!jit_nccl_info(line, sizeof line)) return gpu_skip("overlap", line);
    static const char *const how[] = {"nccl", "own", "copies", "straight copies"};
    for (int i = 0; i < 4 * OVERLAP_GRAPHS; i++) {
        bool has = i % 4 < 3 || i / 4 >= 2; /* what is shared */
        if (has && (!device_emulated(&gpu) || scale_takes_one_in(3, i + 6)))
            failed += check(i / 4, how[i % 4], &gpu);
    }
    struct random draw = {random_seed()};
    for (int i = 0; i < 4 && !device_dry(); i++) /* a thinned run: either way, of either graph */
        if (!scale_is_thinned() || scale_takes_half(i / 2 + i % 2))
            failed += check_leaving(2 + i / 2, i % 2 ? GIVES_UP : VANISHES, SHORT_MS, &draw, &gpu);
    unsetenv("CODA_EXCHANGE");
    return failed;
}
