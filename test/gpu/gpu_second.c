/*
 * gpu_second.c -- plans of several contexts in one process, of two devices and of one: each runs in the
 * context that it was compiled in, also while another one is current, or none, by a stream or the default
 * one; beside plans of the CPU device. With one GPU all are of it.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"

int gpu_second(void);

enum { DEVICES = 2, PLACES = 3, NOWHERE = PLACES, T = 24 };
static void *context[PLACES + 1]; /* of each device, one more of the first, and none */

static const char *const fixed = "%x = input bf16[48,64]\n%gain = weight bf16[64]\n%w = weight bf16[96,64]\n"
                                 "%v = weight bf16[64,96]\n%n = rms_norm %x, %gain {eps=1e-5}\n"
                                 "%p = matmul %n, %w\n%s = softmax %p\n%q = matmul %s, %v\n%y = add %q, %x\n"
                                 "output %y = %y\n";
static const char *const shaped = "dim %T = 1..64\n%x = input bf16[T,64]\n%w = weight bf16[96,64]\n"
                                  "%p = matmul %x, %w\n%y = softmax %p\noutput %y = %y\n";

/* A plan of one context, and memory there. */
struct place {
    graph *g;
    coda_plan *plan;
    struct run_buffers b;
    void **host, **want, *stream;
};

static bool compile(struct place *p, const char *text, int device, const int64_t *dims)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *concrete = NULL;
    *p = (struct place){.g = graph_parse(text)};
    opt.fold = dims ? CODA_FOLD_NONE : CODA_FOLD_COPY;
    if (!p->g || !device_use(context[device]) || coda_compile(&p->plan, p->g, &opt)) return false;
    if (dims && !(concrete = graph_bind(p->g, "second", dims))) return false;
    if (dims) graph_free(p->g), p->g = concrete;
    p->host = random_args(p->g, 3 + (uint64_t)device, false);
    p->want = run_reference(p->g, 3 + (uint64_t)device);
    p->b.dims = dims;
    return p->host && p->want && (p->stream = device_stream_new()) &&
           run_upload(&p->b, p->g, p->plan, p->host, true);
}

/* The error of what it left; -1 if a call failed. */
static double look(struct place *p, int device, bool ran)
{
    if (!ran || !device_use(context[device]) || !device_wait() || !run_download(&p->b)) return -1;
    return device_dry() ? 0 : run_worst_error(p->g, p->host, p->want);
}

static void release(struct place *p, int device)
{
    device_use(context[device]);
    device_stream_free(p->stream);
    if (p->b.n) run_release(&p->b);
    coda_plan_free(p->plan);
    random_args_free(p->g, p->host);
    random_args_free(p->g, p->want);
    graph_free(p->g);
}

/* The streams that a run is given: the last three are those that each context has of its own. */
enum way { BY_STREAM, CAPTURED, BY_DEFAULT, BY_LEGACY, BY_THREADS, WAYS };
static const char *const way_name[WAYS] = {"second, stream", "second, captured", "second, default stream",
                                           "second, CU_STREAM_LEGACY", "second, CU_STREAM_PER_THREAD"};

static void *stream_of(const struct place *p, enum way way)
{
    return way < BY_DEFAULT ? p->stream : (void *)(uintptr_t)(way - BY_DEFAULT);
}

static bool run_plainly(struct place *p, void *stream, const int64_t *dims)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    struct run_buffers *b = &p->b;
    opt.dims = dims, opt.dim_count = !!dims;
    return !coda_run_shaped(p->plan, b->args, b->prepared, b->workspace, stream, &opt);
}

static bool run_captured(struct place *p, int device)
{
    bool ran = device_capture_begin(p->stream) && run_plainly(p, p->stream, NULL);
    void *captured = device_use(context[device]) ? device_capture_end(p->stream) : NULL;
    ran = ran && captured && device_replay(captured, p->stream);
    ran = device_stream_wait(p->stream) && ran;
    device_captured_free(captured);
    return ran;
}

/* All that a plan of one context does, while another one is current, which is current still behind it. */
static double run(struct place *p, int device, int current, enum way way, const int64_t *dims)
{
    struct run_buffers *b = &p->b;
    void *stream = stream_of(p, way);
    bool ran = device_use(context[current]);
    ran = ran && (!coda_plan_prepared_id(p->plan) ||
                  !coda_prepare(p->plan, b->args, b->prepared, b->workspace, stream));
    if (way == CAPTURED) ran = ran && device_stream_wait(p->stream);
    bool launched = ran && (way == CAPTURED ? run_captured(p, device) : run_plainly(p, stream, dims));
    if (way != CAPTURED && device_current() != context[current]) return -2;
    return look(p, device, launched);
}

static double profile(struct place *p, int device, int current)
{
    coda_profile_options o = CODA_PROFILE_OPTIONS_INIT;
    coda_profile *f = NULL;
    o.rounds = 1, o.copy_rate = 1e9, o.product_rate = 1e12;
    bool ran = device_use(context[current]) &&
               !coda_plan_profile(&f, p->plan, p->b.args, p->b.prepared, p->b.workspace, NULL, &o);
    coda_profile_free(f);
    return look(p, device, ran);
}

static int good(const char *what, int device, int current, double error)
{
    const char *why = error < -1 ? "another context is current" : error < 0 ? coda_error() : "";
    return gpu_case(error >= 0 && error < 3e-2, what, "context %d while %d is current, error %.2e %s", device,
                    current, error, why);
}

static int check_fixed(void)
{
    struct place p[PLACES];
    coda_cache_stats stats[PLACES] = {CODA_CACHE_STATS_INIT, CODA_CACHE_STATS_INIT, CODA_CACHE_STATS_INIT};
    int failed = 0;
    for (int i = 0; i < PLACES; i++) {
        if (!compile(&p[i], fixed, i, NULL)) failed += good("second, plan", i, i, -1);
        coda_cache_stats_get(NULL, &stats[i]);
    }
    long long made[PLACES];
    for (int i = 0; i < PLACES; i++)
        made[i] = (long long)(stats[i].compiles + stats[i].disk_hits + stats[i].bundle_hits);
    failed += gpu_case(made[0] && made[0] == made[1] && made[0] == made[2], "second, kernels",
                       "%lld were made or read, then %lld, then %lld", made[0], made[1], made[2]);
    for (int i = 0; i < PLACES && !failed; i++)
        for (int current = 0; current <= NOWHERE; current++) {
            for (int way = 0; way < WAYS; way++)
                failed += good(way_name[way], i, current, run(&p[i], i, current, (enum way)way, NULL));
            failed += good("second, profile", i, current, profile(&p[i], i, current));
        }
    graph *g = graph_parse(fixed);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    void **want = g ? run_reference(g, 5) : NULL;
    failed += good("second, beside the host's", -1, PLACES - 1, want ? run_on_cpu(g, 5, &opt, want) : -1);
    random_args_free(g, want);
    graph_free(g);
    for (int i = 0; i < PLACES; i++) release(&p[i], i);
    return failed;
}

/* A shape that is planned and loaded by the run itself. */
static int check_shaped(void)
{
    static const int64_t dims[] = {T};
    int failed = 0;
    for (int i = 0; i < PLACES; i++) {
        struct place p;
        bool made = compile(&p, shaped, i, dims);
        int other = (i + 1) % PLACES;
        failed += good("second, shapes", i, other, made ? run(&p, i, other, BY_DEFAULT, dims) : -1);
        failed += good("second, shapes", i, NOWHERE, made ? run(&p, i, NOWHERE, BY_STREAM, dims) : -1);
        release(&p, i);
    }
    return failed;
}

/* A capture in the plan's context bars the default stream there, whatever is current: no kernel is loaded. */
static int check_barred(void)
{
    static const char *const text = "dim %T = 1..4096\n%x = input bf16[T,128]\n%w = weight bf16[128,128]\n"
                                    "%y = matmul %x, %w\noutput %y = %y\n";
    static const int64_t dims[] = {1}; /* whose kernel is another than the largest one's */
    struct place p;
    bool made = compile(&p, text, DEVICES, dims), refused = false;
    void *bars = made ? device_stream_new_blocking() : NULL;
    if (bars && device_capture_begin(bars) && device_use(context[0]))
        refused = !run_plainly(&p, NULL, dims) && strstr(coda_error(), "the stream is being captured");
    if (bars && device_use(context[DEVICES])) device_captured_free(device_capture_end(bars));
    device_stream_free(bars);
    release(&p, DEVICES);
    return gpu_case(device_dry() || refused, "second, barred", "%s", refused ? "" : coda_error());
}

int gpu_second(void)
{
    char err[JIT_ERROR_SIZE];
    struct jit_device gpu;
    setenv("CODA_EMULATOR_DEVICES", "2", 0);
    if (!device_open(&gpu, err)) return gpu_case(false, "second", "%s", err);
    if (device_contexts(context, DEVICES) < DEVICES) context[1] = context[0];
    if (!(context[DEVICES] = device_context_new(0))) context[DEVICES] = context[0];
    int failed = check_fixed() + check_shaped() + check_barred();
    device_use(gpu.context);
    return failed;
}
