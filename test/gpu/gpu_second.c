/*
 * gpu_second.c -- plans of several devices in one process: each runs on the device that it was compiled on,
 * also while another one's context is current, by a stream or the default one; beside plans of the CPU
 * device. With one GPU both plans are of it.
 */
#include <stdlib.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"

int gpu_second(void);

enum { DEVICES = 2, T = 24 };
static void *context[DEVICES];

static const char *const fixed = "%x = input bf16[48,64]\n%gain = weight bf16[64]\n%w = weight bf16[96,64]\n"
                                 "%v = weight bf16[64,96]\n%n = rms_norm %x, %gain {eps=1e-5}\n"
                                 "%p = matmul %n, %w\n%s = softmax %p\n%q = matmul %s, %v\n%y = add %q, %x\n"
                                 "output %y = %y\n";
static const char *const shaped = "dim %T = 1..64\n%x = input bf16[T,64]\n%w = weight bf16[96,64]\n"
                                  "%p = matmul %x, %w\n%y = softmax %p\noutput %y = %y\n";

/* A plan of one device, and memory there. */
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
    if (dims)
        concrete = graph_parse("%x = input bf16[24,64]\n%w = weight bf16[96,64]\n"
                               "%p = matmul %x, %w\n%y = softmax %p\noutput %y = %y\n");
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

/* All that a plan of one device does, while another one is current. */
static double run(struct place *p, int device, int current, bool by_stream, const int64_t *dims)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    void *stream = by_stream ? p->stream : NULL;
    struct run_buffers *b = &p->b;
    opt.dims = dims, opt.dim_count = !!dims;
    bool ran = device_use(context[current]);
    ran = ran && (!coda_plan_prepared_id(p->plan) ||
                  !coda_prepare(p->plan, b->args, b->prepared, b->workspace, stream));
    ran = ran && !coda_run_shaped(p->plan, b->args, b->prepared, b->workspace, stream, &opt);
    return look(p, device, ran);
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
    return gpu_case(error >= 0 && error < 3e-2, what, "device %d while %d is current, error %.2e %s", device,
                    current, error, error < 0 ? coda_error() : "");
}

static int check_fixed(void)
{
    struct place p[DEVICES];
    coda_cache_stats stats[DEVICES] = {CODA_CACHE_STATS_INIT, CODA_CACHE_STATS_INIT};
    int failed = 0;
    for (int i = 0; i < DEVICES; i++) {
        if (!compile(&p[i], fixed, i, NULL)) failed += good("second, plan", i, i, -1);
        coda_cache_stats_get(NULL, &stats[i]);
    }
    long long made[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        made[i] = (long long)(stats[i].compiles + stats[i].disk_hits + stats[i].bundle_hits);
    failed += gpu_case(made[0] && made[0] == made[1], "second, kernels", "%lld were made or read, then %lld",
                       made[0], made[1]);
    for (int i = 0; i < DEVICES && !failed; i++)
        for (int current = 0; current < DEVICES; current++) {
            failed += good("second, stream", i, current, run(&p[i], i, current, true, NULL));
            failed += good("second, default stream", i, current, run(&p[i], i, current, false, NULL));
            failed += good("second, profile", i, current, profile(&p[i], i, current));
        }
    graph *g = graph_parse(fixed);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    void **want = g ? run_reference(g, 5) : NULL;
    failed += good("second, beside the host's", -1, DEVICES - 1, want ? run_on_cpu(g, 5, &opt, want) : -1);
    random_args_free(g, want);
    graph_free(g);
    for (int i = 0; i < DEVICES; i++) release(&p[i], i);
    return failed;
}

/* A shape that is planned and loaded by the run itself. */
static int check_shaped(void)
{
    static const int64_t dims[] = {T};
    struct place p;
    const int last = DEVICES - 1;
    bool made = compile(&p, shaped, last, dims);
    int failed = good("second, shapes", last, 0, made ? run(&p, last, 0, false, dims) : -1);
    failed += good("second, shapes by a stream", last, 0, made ? run(&p, last, 0, true, dims) : -1);
    release(&p, last);
    return failed;
}

int gpu_second(void)
{
    char err[JIT_ERROR_SIZE];
    struct jit_device gpu;
    setenv("CODA_EMULATOR_DEVICES", "2", 0);
    if (!device_open(&gpu, err)) return gpu_case(false, "second", "%s", err);
    if (device_contexts(context, DEVICES) < DEVICES) context[1] = context[0];
    int failed = check_fixed() + check_shaped();
    device_use(gpu.context);
    return failed;
}
