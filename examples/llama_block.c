/*
 * llama_block.c -- a LLaMA block from its formula to fused kernels: derivation, plan, kernels, error, time.
 *
 *     h = x + attention(rope(rms_norm(x) Wqkv)) Wo
 *     y = h + swiglu(rms_norm(h) Wgu) Wd
 *
 * With a GPU: LLaMA-7B's shape, run and timed beside the same block unfused on cuBLASLt. Without: the
 * same kernels compiled for sm_90a, and a smaller block run by the CPU device; without NVRTC, the latter
 * alone. Exits 1 if an error against fp64 is larger than it may be.
 */
#include <stdbool.h>
#include <unistd.h>

#include "gpu.h"
#include "progress.h"
#include "tensor.h"
#include "usage.h"

struct shape {
    int64_t d, heads, kv_heads, f, tokens;
};

static const struct shape large = {4096, 32, 32, 11008, 2048}, small = {512, 8, 8, 1376, 128};
enum {
    ARGS = 8,          /* x, six weights, y */
    CHECKED_ROWS = 128 /* of the large block; it is causal, so they do not depend on the others */
};

static int failures;
static struct progress working;

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

static coda_graph *build(const struct shape *s, coda_dtype t)
{
    int64_t hd = s->d / s->heads, q = s->d, kv = s->kv_heads * hd, T = s->tokens;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", t, DIMS(T, s->d));
    coda_value attn_gain = coda_weight(g, "attn_gain", t, DIMS(s->d));
    coda_value w_qkv = coda_weight(g, "w_qkv", t, DIMS(q + 2 * kv, s->d));
    coda_value w_o = coda_weight(g, "w_o", t, DIMS(s->d, q));
    coda_value mlp_gain = coda_weight(g, "mlp_gain", t, DIMS(s->d));
    coda_value w_gate_up = coda_weight(g, "w_gate_up", t, DIMS(2 * s->f, s->d));
    coda_value w_down = coda_weight(g, "w_down", t, DIMS(s->d, s->f));

    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = hd;
    rope.heads = s->heads + s->kv_heads;
    coda_attention_options attention = CODA_ATTENTION_OPTIONS_INIT;
    attention.heads = s->heads;
    attention.kv_heads = s->kv_heads;
    attention.causal = 1;

    coda_value qkv = coda_matmul(g, coda_rms_norm(g, x, attn_gain, 1e-5f), w_qkv);
    coda_value r = coda_rope(g, qkv, CODA_NONE, &rope);
    coda_value qs = coda_slice(g, r, 1, 0, q, 1), ks = coda_slice(g, r, 1, q, q + kv, 1);
    coda_value vs = coda_slice(g, r, 1, q + kv, q + 2 * kv, 1);
    coda_value a = coda_attention(g, qs, ks, vs, CODA_NONE, &attention);
    coda_value h = coda_add(g, coda_matmul(g, a, w_o), x);
    coda_value gate_up = coda_matmul(g, coda_rms_norm(g, h, mlp_gain, 1e-5f), w_gate_up);
    coda_value m = coda_swiglu(g, gate_up, CODA_STACKED);
    coda_output(g, "y", coda_add(g, coda_matmul(g, m, w_down), h));
    return g;
}

static void complain(void)
{
    progress_end(&working);
    fprintf(stderr, "llama_block: %s\n", coda_error());
    failures++;
}

static coda_plan *compile(const coda_graph *g, coda_device device, coda_fold fold, unsigned flags,
                          coda_cache *cache)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = device;
    opt.fold = fold;
    opt.flags = flags;
    opt.cache = cache;
    coda_plan *p;
    if (coda_compile(&p, g, &opt) != CODA_OK) complain();
    return p;
}

/* ---- What the library made of the formula ---- */

static void print_text(const char *title, const coda_plan *p, coda_text what)
{
    char *text = plan_text(p, what);
    printf("\n%s\n", title);
    for (char *line = text ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n"))
        printf("  %s\n", line);
    free(text);
}

static void print_stats(const char *name, const coda_plan *p)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(p, &s);
    double saved = (double)(s.bytes_unfused - s.bytes);
    printf("  %-10s %2d launches instead of %2d, %7.1f MB of memory traffic saved of %7.1f (%.0f %%), "
           "prepared %.1f MB\n",
           name, s.launches, s.launches_unfused, saved / 1e6, (double)s.bytes_unfused / 1e6,
           100 * saved / (double)s.bytes_unfused, (double)coda_plan_prepared(p) / 1e6);
}

static void print_kernels(const coda_plan *cold, const coda_plan *warm)
{
    double ms = 0;
    printf("\nKernels\n  %-48s %8s %6s %9s %6s %7s\n", "name", "cold ms", "warm", "registers", "spills",
           "shared");
    for (int i = 0; i < coda_plan_kernels(cold); i++) {
        coda_kernel_info c = CODA_KERNEL_INFO_INIT, w = CODA_KERNEL_INFO_INIT;
        coda_plan_kernel(cold, i, &c);
        coda_plan_kernel(warm, i, &w);
        printf("  %-48s %8.0f %6s %9d %6d %7d\n", c.name, c.compile_ms, w.cached ? "cached" : "built",
               c.registers, c.spill_bytes, c.shared_bytes);
        ms += c.compile_ms;
    }
    printf("  %-48s %8.0f\n", "all", ms);
}

/* Without a device coda_compile wants NVRTC alone, of all that a machine may lack. */
static bool have_nvrtc(coda_cache *cache)
{
    coda_graph *g = coda_graph_new();
    coda_output(g, "y", coda_relu(g, coda_input(g, "x", CODA_F32, DIMS(1))));
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_NONE;
    opt.cache = cache;
    coda_plan *p;
    coda_status status = coda_compile(&p, g, &opt);
    coda_plan_free(p);
    coda_graph_free(g);
    return status != CODA_E_DEVICE;
}

/* Compiles `kernels` twice with an empty cache, the second time from disk. False if there is no NVRTC. */
static bool show_kernels(const coda_graph *g, coda_device device, int kernels)
{
    char dir[] = "/tmp/coda-demo-XXXXXX", remove[64];
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache *cache = NULL;
    opt.dir = mkdtemp(dir);
    if (!opt.dir || coda_cache_open(&cache, &opt) != CODA_OK) return complain(), false;
    progress_begin(&working, "compiling the block");
    bool able = have_nvrtc(cache);
    if (!able) progress_end(&working);
    progress_kernels(&working, cache, kernels);
    if (!able) printf("\nKernels are not compiled: %s; `.ci/deps nvrtc` fetches it\n", coda_error());
    coda_plan *cold = able ? compile(g, device, CODA_FOLD_NONE, 0, cache) : NULL;
    progress_end(&working);
    coda_cache_forget(cache);
    coda_plan *warm = cold ? compile(g, device, CODA_FOLD_NONE, 0, cache) : NULL;
    if (warm) print_kernels(cold, warm);
    coda_plan_free(cold);
    coda_plan_free(warm);
    coda_cache_free(cache);
    snprintf(remove, sizeof remove, "rm -rf %s", dir);
    if (system(remove) != 0) fprintf(stderr, "llama_block: %s is left behind\n", dir);
    return able;
}

/* Returns how many kernels there are. */
static int explain(const coda_graph *g)
{
    coda_plan *plain = compile(g, CODA_DEVICE_NONE, CODA_FOLD_NONE, CODA_PLAN_ONLY, NULL);
    coda_plan *folded = compile(g, CODA_DEVICE_NONE, CODA_FOLD_COPY, CODA_PLAN_ONLY, NULL);
    if (plain && folded) {
        print_text("Derivation", plain, CODA_TEXT_DERIVATION);
        print_text("Plan", plain, CODA_TEXT_PLAN);
        printf("\nSaved\n");
        print_stats("fold none", plain);
        print_stats("fold copy", folded);
    }
    int kernels = plain ? coda_plan_kernels(plain) : 0;
    coda_plan_free(plain);
    coda_plan_free(folded);
    return kernels;
}

/* ---- On the CPU ---- */

static double cpu_error(const coda_graph *g, const struct tensors *t, const double *ref, coda_fold fold,
                        unsigned flags)
{
    double error = NAN;
    coda_plan *p = compile(g, CODA_DEVICE_CPU, fold, flags, NULL);
    if (!p) return error;
    void *work = host_scratch(coda_plan_workspace(p)), *prepared = host_scratch(coda_plan_prepared(p));
    if (coda_prepare(p, t->host, prepared, work, NULL) || coda_run(p, t->host, prepared, work, NULL))
        complain();
    else error = tensor_error(&t->info[ARGS - 1], t->host[ARGS - 1], ref);
    free(work);
    free(prepared);
    coda_plan_free(p);
    return error;
}

/* The block's exact result for the leading arguments of `t`; free() it. */
static double *reference(const coda_graph *g, const struct tensors *t)
{
    coda_arg_info y = CODA_ARG_INFO_INIT;
    void *args[ARGS];
    coda_graph_arg(g, ARGS - 1, &y);
    double *ref = malloc((size_t)element_count(&y) * sizeof *ref);
    memcpy(args, t->host, sizeof args);
    args[ARGS - 1] = ref;
    if (ref && coda_evaluate(g, args) != CODA_OK) complain();
    return ref;
}

static bool fill(struct tensors *t, const coda_graph *g)
{
    if (coda_graph_status(g) != CODA_OK || tensors_new(t, g) || t->n != ARGS) return complain(), false;
    for (int i = 0; i < ARGS - 1; i++) tensor_random(&t->info[i], t->host[i], &(uint64_t){(uint64_t)i}, 1);
    return true;
}

static void check_cpu(coda_dtype dtype, double limit)
{
    struct tensors t = {0};
    coda_graph *g = build(&small, dtype);
    progress_begin(&working, "the block in %s on the CPU device and in fp64", dtype_text(dtype));
    double *ref = fill(&t, g) ? reference(g, &t) : NULL;
    double fused = ref ? cpu_error(g, &t, ref, CODA_FOLD_NONE, 0) : NAN;
    double folded = ref ? cpu_error(g, &t, ref, CODA_FOLD_COPY, 0) : NAN;
    double unfused = ref ? cpu_error(g, &t, ref, CODA_FOLD_NONE, CODA_NO_FUSION) : NAN;
    progress_end(&working);
    if (ref) {
        bool good = fused <= limit && folded <= limit;
        printf("  %-5s %10.2e %10.2e %10.2e %10.0e   %s\n", dtype_text(dtype), fused, folded, unfused, limit,
               good ? "good" : "TOO LARGE");
        failures += !good;
    }
    free(ref);
    tensors_free(&t);
    coda_graph_free(g);
}

/* ---- On the GPU ---- */

struct gpu_run {
    coda_plan *plan;
    gpu_address work, prepared;
    double ms[20];
};

static bool load(const struct gpu *gpu, struct gpu_run *r, const coda_graph *g, unsigned flags)
{
    if (!(r->plan = compile(g, CODA_DEVICE_GPU, CODA_FOLD_NONE, flags, NULL))) return false;
    r->work = gpu_alloc(gpu, coda_plan_workspace(r->plan));
    return r->work != 0;
}

static double gpu_time(const struct gpu *gpu, const struct gpu_run *r, void *const *args, gpu_event from,
                       gpu_event to)
{
    float ms = NAN;
    gpu->event_record(from, NULL);
    if (coda_run(r->plan, args, NULL, (void *)r->work, NULL) != CODA_OK) complain();
    gpu->event_record(to, NULL);
    gpu->event_wait(to);
    gpu->event_ms(&ms, from, to);
    return ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* Fused and unfused take turns, so that clocks and heat treat them alike. */
static void time_gpu(const struct gpu *gpu, struct gpu_run r[2], void *const *args)
{
    enum { ROUNDS = 20, WARM = 3 };
    gpu_event from, to;
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    gpu->event_new(&from, 0);
    gpu->event_new(&to, 0);
    for (int i = -WARM; i < ROUNDS; i++)
        for (int k = 0; k < 2; k++) {
            double ms = gpu_time(gpu, &r[k], args, from, to);
            if (i >= 0) r[k].ms[i] = ms;
        }
    double fused = median(r[0].ms, ROUNDS), unfused = median(r[1].ms, ROUNDS);
    coda_plan_stats_get(r[0].plan, &s);
    printf("\nTime per block on %s, median of %d\n", gpu->name, ROUNDS);
    printf("  fused   %8.3f ms  %6.1f TFLOP/s\n", fused, s.flops / fused / 1e9);
    printf("  unfused %8.3f ms  %6.1f TFLOP/s  on cuBLASLt\n", unfused, s.flops / unfused / 1e9);
}

/* Error of the first rows, which `head` describes, over an output that was poisoned before. */
static double gpu_error(const struct gpu *gpu, const struct gpu_run *r, const struct tensors *t, void **args,
                        const coda_arg_info *head, const double *ref)
{
    gpu_address y = (gpu_address)args[ARGS - 1];
    if (gpu->set(y, 0xff, t->info[ARGS - 1].bytes)) return NAN;
    if (coda_run(r->plan, args, NULL, (void *)r->work, NULL) || gpu->stream_wait(NULL))
        return complain(), NAN;
    if (gpu->download(t->host[ARGS - 1], y, t->info[ARGS - 1].bytes)) return NAN;
    return tensor_error(head, t->host[ARGS - 1], ref);
}

static void check_gpu(const struct gpu *gpu, const struct gpu_run r[2], const struct tensors *t, void **args)
{
    struct shape first = large;
    coda_arg_info y = CODA_ARG_INFO_INIT;
    first.tokens = CHECKED_ROWS;
    coda_graph *head = build(&first, CODA_BF16);
    coda_graph_arg(head, ARGS - 1, &y);
    progress_begin(&working, "the first %d rows in fp64", CHECKED_ROWS);
    double *ref = reference(head, t);
    progress_end(&working);
    double fused = gpu_error(gpu, &r[0], t, args, &y, ref), unfused = gpu_error(gpu, &r[1], t, args, &y, ref);
    bool good = fused <= 1.2 * unfused && fused <= 1e-2;
    printf("\nError against fp64, rows 0..%d\n  fused %.3e, unfused %.3e   %s\n", CHECKED_ROWS - 1, fused,
           unfused, good ? "good" : "TOO LARGE");
    failures += !good;
    free(ref);
    coda_graph_free(head);
}

static bool upload(const struct gpu *gpu, const struct tensors *t, void **args)
{
    for (int i = 0; i < ARGS; i++) {
        gpu_address p = gpu_alloc(gpu, t->info[i].bytes);
        if (!p || gpu->upload(p, t->host[i], t->info[i].bytes)) return false;
        args[i] = (void *)p;
    }
    return true;
}

static void run_gpu(const struct gpu *gpu, const coda_graph *g)
{
    struct tensors t = {0};
    struct gpu_run r[2] = {0};
    void *args[ARGS];
    progress_begin(&working, "weights and kernels of the block");
    bool loaded =
        fill(&t, g) && load(gpu, &r[0], g, 0) && load(gpu, &r[1], g, CODA_NO_FUSION | CODA_CUBLASLT);
    progress_end(&working);
    if (!loaded) failures++;
    else if (!upload(gpu, &t, args))
        failures++, fprintf(stderr, "llama_block: the GPU has too little memory\n");
    else {
        check_gpu(gpu, r, &t, args);
        time_gpu(gpu, r, args);
    }
    for (int k = 0; k < 2; k++) coda_plan_free(r[k].plan);
    tensors_free(&t); /* the GPU's memory goes back with the process */
}

static void run_cpu(void)
{
    printf("\nError against fp64 on the CPU device: D %d, %d heads, F %d, %d tokens\n", (int)small.d,
           (int)small.heads, (int)small.f, (int)small.tokens);
    printf("  %-5s %10s %10s %10s %10s\n", "", "fused", "folded", "unfused", "limit");
    check_cpu(CODA_BF16, 1e-2);
    check_cpu(CODA_F32, 1e-5);
}

int main(int argc, char **argv)
{
    struct gpu gpu;
    bool cpu_only = false;
    (void)argc;
    int wrong =
        usage_read(argv, "llama_block",
                   "usage: llama_block [--cpu]\nA LLaMA block from its formula to fused kernels. --cpu: as "
                   "if there were no GPU.",
                   "--cpu", &cpu_only);
    if (wrong >= 0) return wrong;
    setvbuf(stdout, NULL, _IOLBF, 0); /* complaints in their place */
    bool have_gpu = !cpu_only && gpu_open(&gpu) == 0;
    printf("LLaMA block: D %d, %d heads, F %d, %d tokens, bf16, on %s\n", (int)large.d, (int)large.heads,
           (int)large.f, (int)large.tokens, have_gpu ? gpu.name : "no GPU: kernels for sm_90a");
    coda_graph *g = build(&large, CODA_BF16);
    int kernels = explain(g);
    bool have_kernels = show_kernels(g, have_gpu ? CODA_DEVICE_GPU : CODA_DEVICE_NONE, kernels);
    if (have_gpu && have_kernels) run_gpu(&gpu, g);
    else run_cpu();
    coda_graph_free(g);
    printf("\n%s\n", failures ? "failed" : "done");
    return failures != 0;
}
