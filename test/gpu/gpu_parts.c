/*
 * gpu_parts.c -- products whose weights lie in several tensors, on the GPU against fp64: of q, k and v, with
 * biases, norms of heads and rope, and of gates, for each main loop that numbers of rows, types and pitches
 * lead to.
 */
#include <stdio.h>
#include <string.h>

#include "executable.h"
#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_parts(void);

/* Of q, k and v; q has `heads` heads, the others half as many. `kept`: they are outputs, as a forward pass
 * has them. */
struct block {
    const char *dtype;
    int rows, k, heads, head_dim;
    bool biases, norms;
    double tolerance;
    bool kept;
};

static const struct block blocks[] = {
    {"f32", 24, 64, 4, 16, false, false, 1e-5, false},
    {"f32", 130, 36, 2, 64, true, false, 1e-5, false},
    {"f32", 70, 64, 4, 64, false, true, 1e-5, false},
    {"bf16", 1, 128, 4, 64, false, false, 2e-2, false},
    {"bf16", 1, 128, 4, 64, true, false, 2e-2, false},
    {"bf16", 5, 512, 4, 64, false, false, 2e-2, false},
    {"bf16", 14, 512, 8, 64, true, false, 2e-2, false},
    {"bf16", 200, 128, 8, 64, false, false, 2e-2, false},
    {"bf16", 300, 128, 4, 128, false, true, 2e-2, false},
    {"f16", 150, 100, 4, 64, true, false, 5e-3, false},
    {"f32", 70, 64, 4, 64, false, false, 1e-5, true},
    {"bf16", 130, 128, 4, 64, false, false, 2e-2, true},
};

static void print_one(const struct block *b, const char *name, int columns, struct text *t)
{
    bool norm = b->norms && *name != 'v', turns = *name != 'v';
    text_printf(t, "%%p%s = matmul %%x, %%w%s\n", name, name);
    if (b->biases) text_printf(t, "%%a%s = add %%p%s, %%b%s\n", name, name, name);
    const char *last = b->biases ? "a" : "p";
    if (norm)
        text_printf(t,
                    "%%s%s = reshape %%%s%s {rank=3,d0=%d,d1=%d,d2=%d}\n%%n%s = rms_norm %%s%s {eps=1e-6}\n"
                    "%%m%s = reshape %%n%s {rank=2,d0=%d,d1=%d}\n",
                    name, last, name, b->rows, columns / b->head_dim, b->head_dim, name, name, name, name,
                    b->rows, columns);
    if (norm) last = "m";
    if (turns)
        text_printf(t, "%%t%s = rope %%%s%s {base=10000,head_dim=%d,half=1}\n", name, last, name,
                    b->head_dim);
    else text_printf(t, "%%t%s = reshape %%%s%s {rank=2,d0=%d,d1=%d}\n", name, last, name, b->rows, columns);
}

static graph *graph_of_block(const struct block *b)
{
    struct text t = {0};
    const char *const name[] = {"q", "k", "v"};
    text_printf(&t, "%%x = input %s [%d,%d]\n", b->dtype, b->rows, b->k);
    for (int i = 0; i < ARRAY_SIZE(name); i++) {
        int columns = b->head_dim * (i ? b->heads / 2 : b->heads);
        text_printf(&t, "%%w%s = weight %s [%d,%d]\n", name[i], b->dtype, columns, b->k);
        if (b->biases) text_printf(&t, "%%b%s = weight %s [%d]\n", name[i], b->dtype, columns);
    }
    for (int i = 0; i < ARRAY_SIZE(name); i++)
        print_one(b, name[i], b->head_dim * (i ? b->heads / 2 : b->heads), &t);
    text_printf(&t, "%%o = attention %%tq, %%tk, %%tv {heads=%d,kv_heads=%d,causal=1}\noutput %%o = %%o\n",
                b->heads, b->heads / 2);
    if (b->kept) text_append(&t, "output %tq = %tq\noutput %tk = %tk\noutput %tv = %tv\n");
    graph *g = graph_parse(text_str(&t));
    text_free(&t);
    return g;
}

struct gate {
    const char *dtype;
    int rows, k, columns;
    double tolerance;
};

static const struct gate gates[] = {
    {"f32", 70, 50, 91, 1e-5},      {"bf16", 1, 96, 192, 2e-2}, {"bf16", 12, 1024, 512, 2e-2},
    {"bf16", 200, 128, 320, 2e-2},  {"f16", 130, 64, 96, 5e-3}, {"bf16", 200, 100, 320, 2e-2},
    {"bf16", 260, 192, 1024, 2e-2},
};

static graph *graph_of_gate(const struct gate *c)
{
    struct text t = {0};
    text_printf(
        &t,
        "%%x = input %s [%d,%d]\n%%g = weight %s [%d,%d]\n%%u = weight %s [%d,%d]\n%%a = matmul %%x, %%g\n"
        "%%b = matmul %%x, %%u\n%%s = silu %%a\n%%y = mul %%s, %%b\noutput %%y = %%y\n",
        c->dtype, c->rows, c->k, c->dtype, c->columns, c->k, c->dtype, c->columns, c->k);
    graph *g = graph_parse(text_str(&t));
    text_free(&t);
    return g;
}

/* Programs of products that the plan for it has; -1: it has none. */
static int products_of(const graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    int n = 0;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    if (coda_compile(&p, (graph *)(uintptr_t)g, &opt)) return -1;
    for (int i = 0; i < p->plan.programs; i++) n += p->plan.program[i].kind == PROGRAM_GEMM;
    coda_plan_free(p);
    return n;
}

static int check(graph *g, const char *what, int i, double tolerance)
{
    uint64_t seed = 1 + (uint64_t)i;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = g ? run_reference(g, seed) : NULL;
    double error = want ? run_on_gpu(g, seed, &opt, want) : -1;
    int n = g ? products_of(g) : -1;
    bool good = error >= 0 && error <= tolerance && n == 1;
    int failed = gpu_case(good, what, "%d: %d products, error %.2e, at most %.0e %s", i, n, error, tolerance,
                          error < 0 ? coda_error() : "");
    if (want) random_args_free(g, want);
    graph_free(g);
    return failed;
}

int gpu_parts(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&dev, err)) return gpu_case(false, "parts", "%s", err);
    bool all = !device_emulated(&dev);
    for (int i = 0; i < ARRAY_SIZE(blocks); i++)
        if (gpu_mine(i) && (all || scale_takes_half(i)))
            failed += check(graph_of_block(&blocks[i]), "weights of q, k and v", i, blocks[i].tolerance);
    for (int i = 0; i < ARRAY_SIZE(gates); i++)
        if (gpu_mine(i) && (all || scale_takes_half(i)))
            failed += check(graph_of_gate(&gates[i]), "gates", i, gates[i].tolerance);
    return failed;
}
