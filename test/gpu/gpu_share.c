/*
 * gpu_share.c -- a plan in a captured CUDA graph, one plan in two threads on two streams, and kernels that
 * plans of different numbers of rows share: the same bits as a plain run. A shape that a plan with symbols
 * has not met is refused while its stream is captured. Events say when an argument is complete.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_share(void);

enum { REPLAYS = 20, RUNS = 100, EMULATED_TIMES = 2 };

struct driver {
    __typeof__(&cuStreamCreate) stream_create;
    __typeof__(&cuStreamSynchronize) stream_wait;
    __typeof__(&cuStreamBeginCapture_v2) begin;
    __typeof__(&cuStreamEndCapture) end;
    __typeof__(&cuGraphInstantiateWithFlags) instantiate;
    __typeof__(&cuGraphLaunch) launch;
    __typeof__(&cuCtxSetCurrent) use_context;
    __typeof__(&cuEventCreate) event_create;
    __typeof__(&cuEventSynchronize) event_wait;
};

static bool open_driver(struct driver *d)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) return false;
    d->stream_create = (__typeof__(d->stream_create))dlsym(lib, "cuStreamCreate");
    d->stream_wait = (__typeof__(d->stream_wait))dlsym(lib, "cuStreamSynchronize");
    d->begin = (__typeof__(d->begin))dlsym(lib, "cuStreamBeginCapture_v2");
    d->end = (__typeof__(d->end))dlsym(lib, "cuStreamEndCapture");
    d->instantiate = (__typeof__(d->instantiate))dlsym(lib, "cuGraphInstantiateWithFlags");
    d->launch = (__typeof__(d->launch))dlsym(lib, "cuGraphLaunch");
    d->use_context = (__typeof__(d->use_context))dlsym(lib, "cuCtxSetCurrent");
    d->event_create = (__typeof__(d->event_create))dlsym(lib, "cuEventCreate");
    d->event_wait = (__typeof__(d->event_wait))dlsym(lib, "cuEventSynchronize");
    return d->event_create && d->event_wait && d->stream_create && d->stream_wait && d->begin && d->end &&
           d->instantiate && d->launch && d->use_context;
}

struct setting {
    struct driver driver;
    void *context;
    graph *g;
    coda_plan *plan;
    struct run_buffers b;
    int replays, runs;
    void *want; /* the output of a plain run */
    size_t bytes;
};

/* Does the output on the device hold the bits of the plain run? */
static bool same_bits(const struct setting *s, void *output)
{
    void *got = malloc(s->bytes);
    bool same = got && device_download(got, output, s->bytes) && memcmp(got, s->want, s->bytes) == 0;
    free(got);
    return same;
}

static bool prepare(struct setting *s, const char *name, void *context)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    char path[128];
    snprintf(path, sizeof path, "examples/graphs/%s.coda", name);
    s->context = context;
    s->g = run_load(path);
    if (!s->g || coda_compile(&s->plan, s->g, NULL) != CODA_OK) return false;
    if (!run_upload(&s->b, s->g, s->plan, random_args(s->g, 7, false), true)) return false;
    if (coda_run(s->plan, s->b.args, s->b.prepared, s->b.workspace, NULL) != CODA_OK || !run_download(&s->b))
        return false;
    coda_graph_arg(s->g, s->b.n - 1, &info);
    s->bytes = info.bytes;
    s->want = s->b.host[s->b.n - 1];
    return true;
}

static bool captured(struct setting *s)
{
    const struct driver *d = &s->driver;
    CUstream stream;
    CUgraph captured;
    CUgraphExec exec;
    if (d->stream_create(&stream, CU_STREAM_NON_BLOCKING)) return false;
    if (d->begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)) return false;
    coda_status status = coda_run(s->plan, s->b.args, s->b.prepared, s->b.workspace, stream);
    if (d->end(stream, &captured) || status != CODA_OK || d->instantiate(&exec, captured, 0)) return false;
    bool same = true;
    for (int i = 0; i < s->replays; i++) {
        device_fill(s->b.args[s->b.n - 1], 0xff, s->bytes);
        device_fill(s->b.workspace, 0xff, coda_plan_workspace(s->plan));
        device_wait();
        same = same && !d->launch(exec, stream) && !d->stream_wait(stream) &&
               same_bits(s, s->b.args[s->b.n - 1]);
    }
    return same;
}

/* Records a run of n rows, or is refused; the graph that is recorded is not needed. */
static coda_status record(const struct driver *d, CUstream stream, const coda_plan *p, void **args,
                          void *work, int64_t n)
{
    coda_run_options opt = {.size = sizeof opt, .dims = &n, .dim_count = 1};
    CUgraph captured;
    if (d->begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)) return CODA_E_DEVICE;
    coda_status status = coda_run_shaped(p, args, NULL, work, stream, &opt);
    return d->end(stream, &captured) ? CODA_E_DEVICE : status;
}

/* ---- Events ---- */

enum { CHAIN = 24, SIDE = 512 };

/* The first output is complete long before the others: who waits for its event reads what the run leaves. */
static bool completes(const struct driver *d)
{
    struct text t = {0};
    size_t bytes = (size_t)SIDE * SIDE * 2;
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    CUstream stream;
    CUevent event = NULL;
    void *args[4], *done[4] = {NULL};
    unsigned char *early = malloc(2 * bytes), *late = early + bytes;
    text_printf(&t, "%%x = input bf16[%d,%d]\n%%w = weight bf16[%d,%d]\n%%p0 = matmul %%x, %%w\n", SIDE, SIDE,
                SIDE, SIDE);
    for (int i = 1; i < CHAIN; i++) text_printf(&t, "%%p%d = matmul %%p%d, %%w\n", i, i - 1);
    text_printf(&t, "output %%first = %%p0\noutput %%last = %%p%d\n", CHAIN - 1);
    bool good = early && !coda_graph_parse(&g, text_str(&t)) && !coda_compile(&p, g, NULL) &&
                !d->stream_create(&stream, CU_STREAM_NON_BLOCKING) && !d->event_create(&event, 0);
    void *work = good ? device_alloc(coda_plan_workspace(p) + 256) : NULL;
    for (int i = 0; i < 4; i++) args[i] = good ? device_alloc(bytes) : NULL;
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.done_count = 4;
    opt.done = done;
    done[2] = event;
    for (int i = 0; good && i < 4; i++) device_fill(args[i], i < 2 ? 0x3c : 0xff, bytes);
    if (good) device_wait();
    good = good && work && !coda_run_shaped(p, args, NULL, work, stream, &opt) && !d->event_wait(event);
    if (good) device_download(early, args[2], bytes);
    good = good && !d->stream_wait(stream);
    if (good) device_download(late, args[2], bytes);
    good = good && !memcmp(early, late, bytes) && early[0] != 0xff;
    opt.done_count = 3;
    good = good && coda_run_shaped(p, args, NULL, work, stream, &opt) == CODA_E_INVALID;
    for (int i = 0; i < 4; i++) device_free(args[i]);
    device_free(work);
    coda_plan_free(p);
    coda_graph_free(g);
    text_free(&t);
    free(early);
    return good;
}

/* A shape that was never met is captured if its kernels are loaded, and else refused by name; the capture
 * outlives that. */
static bool refused(const struct driver *d)
{
    static const char text[] =
        "dim %T = 1..64\n%x = input bf16[T,64]\n%w = weight bf16[128,64]\n%1 = rms_norm %x {eps=1e-5}\n"
        "%2 = matmul %1, %w\noutput %y = %2\n";
    coda_warm_options warm = {.size = sizeof warm, .dims = (int64_t[]){40}, .bindings = 1};
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    CUstream stream;
    void *args[] = {device_alloc(64 * 64 * 2), device_alloc(128 * 64 * 2), device_alloc(64 * 128 * 2)};
    bool good = args[0] && args[1] && args[2] && !d->stream_create(&stream, CU_STREAM_NON_BLOCKING) &&
                !coda_graph_parse(&g, text) && !coda_compile(&p, g, NULL) && !coda_warm(p, &warm);
    void *work = good ? device_alloc(coda_plan_workspace(p) + 256) : NULL;
    good = good && work && record(d, stream, p, args, work, 40) == CODA_OK &&
           coda_plan_ready(p, (int64_t[]){41}) == 0 && record(d, stream, p, args, work, 41) == CODA_OK &&
           record(d, stream, p, args, work, 1) == CODA_E_UNSUPPORTED &&
           strstr(coda_error(), "T=1 wants kernels that are not loaded, and the stream is being captured") &&
           record(d, stream, p, args, work, 40) == CODA_OK;
    coda_plan_free(p);
    coda_graph_free(g);
    for (int i = 0; i < 3; i++) device_free(args[i]);
    device_free(work);
    return good;
}

struct worker {
    struct setting *s;
    pthread_t thread;
    bool same;
};

/* Own stream, own workspace, own output. */
static void *work(void *arg)
{
    struct worker *w = arg;
    struct setting *s = w->s;
    CUstream stream;
    if (s->driver.use_context(s->context) || s->driver.stream_create(&stream, CU_STREAM_NON_BLOCKING))
        return NULL;
    void *args[64], *workspace = device_alloc(coda_plan_workspace(s->plan) + 256),
                    *output = device_alloc(s->bytes);
    memcpy(args, s->b.args, sizeof *args * (size_t)s->b.n);
    args[s->b.n - 1] = output;
    w->same = workspace && output;
    for (int i = 0; i < s->runs && w->same; i++) {
        w->same = coda_run(s->plan, args, s->b.prepared, workspace, stream) == CODA_OK &&
                  !s->driver.stream_wait(stream) && same_bits(s, output);
    }
    device_free(workspace);
    device_free(output);
    return NULL;
}

static bool shared(struct setting *s)
{
    struct worker w[2] = {{.s = s}, {.s = s}};
    for (int i = 0; i < 2; i++)
        if (pthread_create(&w[i].thread, NULL, work, &w[i])) return false;
    for (int i = 0; i < 2; i++) pthread_join(w[i].thread, NULL);
    return w[0].same && w[1].same;
}

static int share(const char *name, const struct jit_device *dev)
{
    bool slow = device_emulated(dev);
    struct setting s = {.replays = slow ? EMULATED_TIMES : REPLAYS, .runs = slow ? EMULATED_TIMES : RUNS};
    if (!open_driver(&s.driver)) return gpu_case(false, "share", "the driver lacks a call");
    if (!prepare(&s, name, dev->context)) return gpu_case(false, "share", "%s: %s", name, coda_error());
    int failed = gpu_case(captured(&s), "share", "%s: a captured CUDA graph replays the same bits, %d times",
                          name, s.replays);
    failed += gpu_case(shared(&s), "share", "%s: two threads on two streams share one plan, %d runs each",
                       name, s.runs);
    random_args_free(s.g, s.b.host);
    run_release(&s.b);
    coda_plan_free(s.plan);
    graph_free(s.g);
    return failed;
}

/* ---- Different numbers of rows ---- */

/* Three products, whose epilogues merge statistics of rows, gate, and read tiles. */
static const char products[] = "%%x = input bf16[%1$d,256]\n"
                               "%%w_o = weight bf16[256,256]\n"
                               "%%w_gate_up = weight bf16[768,256]\n"
                               "%%w_down = weight bf16[256,384]\n"
                               "%%o = matmul %%x, %%w_o\n"
                               "%%h = add %%o, %%x\n"
                               "%%n = rms_norm %%h {eps=1e-5}\n"
                               "%%gu = matmul %%n, %%w_gate_up\n"
                               "%%gate = slice %%gu {axis=1,start=0,stop=384,step=1}\n"
                               "%%up = slice %%gu {axis=1,start=384,stop=768,step=1}\n"
                               "%%m = swiglu %%gate, %%up\n"
                               "%%d = matmul %%m, %%w_down\n"
                               "%%s = add %%d, %%h\n"
                               "output %%y = %%s\n";
enum { MANY_ROWS = 250, FEW_ROWS = 199, PRODUCTS = 3 }; /* no whole tiles */

struct sized {
    graph *g;
    coda_plan *plan;
    void **host;
    struct run_buffers b;
};

static size_t arg_bytes(const graph *g, int i)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    coda_graph_arg(g, i, &info);
    return (size_t)info.bytes;
}

/* With the weights of `like`, and its first rows. */
static bool run_rows(struct sized *s, int rows, const struct sized *like)
{
    char text[2048];
    snprintf(text, sizeof text, products, rows);
    if (coda_graph_parse(&s->g, text) != CODA_OK || coda_compile(&s->plan, s->g, NULL) != CODA_OK)
        return false;
    s->host = random_args(s->g, 11, false);
    for (int i = 0; s->host && like && i < PRODUCTS + 1; i++)
        memcpy(s->host[i], like->host[i], arg_bytes(s->g, i));
    return s->host && run_upload(&s->b, s->g, s->plan, s->host, true) && run_plan(&s->b, s->plan);
}

/* All kernels of the second plan are those of the first one, which the cache has. */
static bool same_kernels(const struct sized *a, const struct sized *b)
{
    coda_kernel_info x = CODA_KERNEL_INFO_INIT, y = CODA_KERNEL_INFO_INIT;
    for (int i = 0; i < PRODUCTS; i++)
        if (coda_plan_kernel(a->plan, i, &x) != CODA_OK || coda_plan_kernel(b->plan, i, &y) != CODA_OK ||
            strcmp(x.source, y.source) != 0 || !y.cached)
            return false;
    return coda_plan_kernel(b->plan, PRODUCTS, &y) != CODA_OK;
}

static void release_rows(struct sized *s)
{
    if (s->host) random_args_free(s->g, s->host);
    run_release(&s->b);
    coda_plan_free(s->plan);
    graph_free(s->g);
}

static int share_rows(void)
{
    struct sized many = {.g = NULL}, few = {.g = NULL};
    if (!run_rows(&many, MANY_ROWS, NULL) || !run_rows(&few, FEW_ROWS, &many))
        return gpu_case(false, "share", "products of %d and %d rows: %s", MANY_ROWS, FEW_ROWS, coda_error());
    int y = PRODUCTS + 1;
    bool same = memcmp(many.host[y], few.host[y], arg_bytes(few.g, y)) == 0;
    int failed = gpu_case(same_kernels(&many, &few), "share", "plans of %d and %d rows have the same kernels",
                          MANY_ROWS, FEW_ROWS);
    failed += gpu_case(same, "share", "the rows that both have get the same bits");
    release_rows(&few);
    release_rows(&many);
    return failed;
}

int gpu_share(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&dev, err)) return gpu_case(false, "share", "%s", err);
    struct driver d;
    int failed = gpu_case(
        open_driver(&d) && refused(&d), "share",
        "a shape whose kernels are not loaded is refused while its stream is captured, others are not");
    failed += gpu_case(completes(&d), "share", "an event says when its argument is complete");
    static const char *const block[] = {"llama_small", "llama_token", "llama_sequences"};
    for (int i = 0; i < (int)(sizeof block / sizeof *block); i++)
        if (!device_emulated(&dev) || scale_takes_one_in(3, i)) failed += share(block[i], &dev);
    return failed + share_rows();
}
