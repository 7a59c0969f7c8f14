/*
 * gpu_graph.c -- whole graphs on the GPU against fp64: random ones of every operation and odd shapes, and
 * the example blocks, whose fused error must not exceed that of the same block unfused by more than a
 * fifth. Every run is repeated and must leave the same bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_appends.h"
#include "util_device.h"
#include "util_lines.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_graph(void);

enum {
    RANDOM_GRAPHS = 250,
    EMULATED_GRAPHS = 2,
    EMULATED_BLOCKS = 8, /* one in so many, and of it one in so many modes */
    EMULATED_MODES = 4,
    RANDOM_LINES = 60,
    EMULATED_LINES = 1,
    RANDOM_CACHES = 100,
    EMULATED_CACHES = 2
};

static bool emulated; /* it has no cuBLASLt, the last mode */

static int mode_count(void) { return RUN_MODES + !emulated; }

static double run_mode(const graph *g, uint64_t seed, const struct run_mode *m, void **want)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.flags = m->flags;
    opt.fold = m->fold;
    return run_on_gpu(g, seed, &opt, want);
}

/* What rounding alone may do to a graph: to its operations one by one, on the CPU, which may be lucky, or to
 * the reference by other last bits of leaves. */
static double error_of_rounding(const graph *g, uint64_t seed, void **want)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.flags = CODA_NO_FUSION;
    opt.device = CODA_DEVICE_CPU;
    return fmax(run_on_cpu(g, seed, &opt, want), run_sensitivity(g, seed, want));
}

/* Some graphs make much of little errors: attention whose scores are large, say. */
static bool check_random(uint64_t seed, const struct random_options *ro, const struct run_mode *m,
                         double tolerance, double *error)
{
    graph *g = random_graph(seed, ro);
    void **want = run_reference(g, seed);
    *error = want ? run_mode(g, seed, m, want) : -1;
    bool good = *error >= 0 && *error <= tolerance;
    if (!good && *error >= 0) good = *error <= 2 * error_of_rounding(g, seed, want);
    if (!good) printf("       %s\n", coda_error());
    if (!good && getenv("CODA_TEST_VERBOSE")) {
        struct text t = {0};
        graph_print(g, &t);
        printf("%s", text_str(&t));
        text_free(&t);
    }
    if (want) random_args_free(g, want);
    graph_free(g);
    return good;
}

/* Each graph runs fused, and in one more mode. */
static int random_graphs(void)
{
    static const struct {
        struct random_options ro;
        double tolerance;
    } kind[] = {
        {{.dtype = CODA_F32, .patterns = 3}, 1e-4},
        {{.dtype = CODA_BF16, .patterns = 2, .most_dim = 300}, 3e-2},
        {{.dtype = CODA_F16, .patterns = 2, .most_dim = 200}, 1e-2},
        {{.patterns = 3, .most_dim = 100}, 3e-2},
        {{.patterns = 3, .most_dim = 200, .states = true}, 3e-2},
        {{.patterns = 3, .most_dim = 200, .states = true, .wide = true}, 3e-2},
    };
    uint64_t seed = random_seed();
    int failed = 0, n = 0, most = emulated ? scaled(EMULATED_GRAPHS) : RANDOM_GRAPHS;
    for (uint64_t s = seed; n < most; s++) {
        int k = (int)(s % ARRAY_SIZE(kind));
        graph *g = random_graph(s, &kind[k].ro);
        bool skip = kind[k].ro.dtype != CODA_F32 && run_ill_conditioned(g);
        graph_free(g);
        if (skip) continue;
        const struct run_mode *m = &run_modes[n % 2 ? 1 : n / 2 % mode_count()];
        double error;
        if (!gpu_mine(n++ / 2)) continue;
        bool good = check_random(s, &kind[k].ro, m, kind[k].tolerance, &error);
        failed += gpu_case(good, "graph", "seed %llu, %s: error %.2e", (unsigned long long)s, m->name, error);
    }
    return failed;
}

/* Those of one kind, fused. */
static int drawn_graphs(const char *what, graph *draw(uint64_t seed), int n, double tolerance)
{
    uint64_t seed = random_seed();
    int failed = 0;
    for (int i = 0; i < n; i++, seed++) {
        if (!gpu_mine(i)) continue;
        graph *g = draw(seed);
        void **want = g ? run_reference(g, seed) : NULL;
        double error = want ? run_mode(g, seed, &run_modes[1], want) : -1;
        bool good = error >= 0 && error <= tolerance;
        failed += gpu_case(good, what, "seed %llu: error %.2e %s", (unsigned long long)seed, error,
                           good ? "" : coda_error());
        if (want) random_args_free(g, want);
        graph_free(g);
    }
    return failed;
}

/* Small programs that a plan puts together. */
static int line_graphs(void)
{
    return drawn_graphs("lines", random_lines, emulated ? scaled(EMULATED_LINES) : RANDOM_LINES, 1e-4);
}

/* Caches, of numbers that are exact. */
static int cache_graphs(void)
{
    return drawn_graphs("caches", random_appends, emulated ? scaled(EMULATED_CACHES) : RANDOM_CACHES, 0);
}

/* Half a unit of bf16: below it an error is chance, and one may be several times another. */
#define CHANCE 0x1p-10

static int block(const char *name)
{
    char path[128];
    bool example = strstr(name, "llama") || strstr(name, "gpt2") || strstr(name, "bert");
    snprintf(path, sizeof path, "%s/%s.coda", example ? "examples/graphs" : "test/golden", name);
    graph *g = run_load(path);
    void **want = g ? run_reference(g, 1) : NULL;
    if (!want) return gpu_case(false, "block", "%s: %s", name, coda_error());
    double unfused = run_mode(g, 1, &run_modes[0], want);
    int failed = 0;
    for (int m = 0; m < mode_count(); m++) {
        if (emulated && !scale_takes_one_in(EMULATED_MODES, m + (int)name[0])) continue;
        double error = m ? run_mode(g, 1, &run_modes[m], want) : unfused;
        bool good = error >= 0 && error <= fmax(1.2 * unfused, CHANCE);
        failed += gpu_case(good, "block", "%s, %s: error %.3e (unfused %.3e) %s", name, run_modes[m].name,
                           error, unfused, good ? "" : coda_error());
    }
    random_args_free(g, want);
    graph_free(g);
    return failed;
}

/* ---- Graphs by their text ---- */

/* A ring of a GEMV whose slots do not end on multiples of 128 bytes; a mean of rows over which a store of the
 * same walk lies. */
static const struct {
    const char *name, *text;
    unsigned flags;
} texts[] = {
    {"slots of 16,480 bytes",
     "%x = input bf16[1,4120]\n%w = weight bf16[32,4120]\n%y = matmul %x, %w\noutput %y = %y\n", 0},
    {"a mean in place",
     "%q = input bf16[64,3072]\n%u = input bf16[64,512]\n%w0 = weight bf16[1024,512]\n"
     "%w1 = weight bf16[256,1024]\n%a = slice %q {axis=1,start=0,stop=1024,step=1}\n"
     "%k = slice %q {axis=1,start=1024,stop=2048,step=1}\n%v = slice %q "
     "{axis=1,start=2048,stop=3072,step=1}\n"
     "%o = attention %a, %k, %v {scale=0.125,heads=16,kv_heads=16}\n%p = matmul %u, %w0\n%s = sum_sq %p\n"
     "%m = mean %o\n%f = mul %o, %s\n%r = relu %f\n%z = matmul %r, %w1\n"
     "output %z = %z\noutput %m = %m\n",
     CODA_NO_DEFERRAL},
};

static int text_graph(int i)
{
    enum { SEED = 3 };
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = graph_parse(texts[i].text);
    void **want = g ? run_reference(g, SEED) : NULL;
    opt.flags = texts[i].flags;
    double error = want ? run_on_gpu(g, SEED, &opt, want) : -1;
    bool good = error >= 0 && error <= 0.02;
    if (want) random_args_free(g, want);
    graph_free(g);
    return gpu_case(good, "text", "%s: error %.2e %s", texts[i].name, error, good ? "" : coda_error());
}

int gpu_graph(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&dev, err)) return gpu_case(false, "graph", "%s", err);
    emulated = device_emulated(&dev);
    static const char *const name[] = {"llama_small",
                                       "llama_token",
                                       "llama_sequences",
                                       "gpt2_small",
                                       "bert_small",
                                       "swiglu_backward",
                                       "swiglu_backward_interleaved",
                                       "norm_backward",
                                       "layer_backward",
                                       "head_backward",
                                       "column_dot",
                                       "factor_k",
                                       "kept_maps",
                                       "loaded_maps",
                                       "take_in",
                                       "sum_of_products",
                                       "adamw",
                                       "adamw_lerp",
                                       "adamw_states",
                                       "rope_backward",
                                       "rows_and_columns",
                                       "finishing",
                                       "attention_grad_parts",
                                       "layer_norm_backward",
                                       "append_decode",
                                       "append_heads",
                                       "append_fp8",
                                       "append_qk_norm",
                                       "assign_residual"};
    static const char *const large[] = {"gpt2", "bert", "llama"};
    int failed = 0;
    for (int i = 0; i < ARRAY_SIZE(name); i++)
        if (gpu_mine(i) && (!emulated || scale_takes_one_in(EMULATED_BLOCKS, i))) failed += block(name[i]);
    for (int i = 0; i < ARRAY_SIZE(large); i++)
        if (gpu_mine(i)) failed += emulated ? gpu_skip("block", large[i]) : block(large[i]);
    for (int i = 0; i < ARRAY_SIZE(texts); i++)
        if (gpu_mine(i)) failed += text_graph(i);
    return failed + line_graphs() + cache_graphs() + random_graphs();
}
