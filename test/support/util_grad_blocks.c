/* util_grad_blocks.c -- blocks of models with the gradients of all their leaves. */
#include "util_grad_blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* QK-norm: each head of q and k by its own root mean square (Qwen3). */
static const char qwen3[] =
    "%x = input bf16[48,128]\n%g1 = weight bf16[128]\n%w_qkv = weight bf16[256,128]\n"
    "%gq = weight bf16[32]\n%gk = weight bf16[32]\n%w_o = weight bf16[128,128]\n%g2 = weight bf16[128]\n"
    "%w_gu = weight bf16[352,128]\n%w_d = weight bf16[128,176]\n"
    "%n1 = rms_norm %x, %g1 {eps=1e-6}\n%qkv = matmul %n1, %w_qkv\n"
    "%q = slice %qkv {axis=1,start=0,stop=128,step=1}\n%k = slice %qkv {axis=1,start=128,stop=192,step=1}\n"
    "%v = slice %qkv {axis=1,start=192,stop=256,step=1}\n%q3 = reshape %q {rank=3,d0=48,d1=4,d2=32}\n"
    "%k3 = reshape %k {rank=3,d0=48,d1=2,d2=32}\n%nq = rms_norm %q3, %gq {eps=1e-6}\n"
    "%nk = rms_norm %k3, %gk {eps=1e-6}\n%q2 = reshape %nq {rank=2,d0=48,d1=128}\n"
    "%k2 = reshape %nk {rank=2,d0=48,d1=64}\n%rq = rope %q2 {base=1e6,head_dim=32,half=1}\n"
    "%rk = rope %k2 {base=1e6,head_dim=32,half=1}\n"
    "%a = attention %rq, %rk, %v {heads=4,kv_heads=2,causal=1}\n%o = matmul %a, %w_o\n%h = add %o, %x\n"
    "%n2 = rms_norm %h, %g2 {eps=1e-6}\n%gu = matmul %n2, %w_gu\n"
    "%gate = slice %gu {axis=1,start=0,stop=176,step=1}\n%up = slice %gu {axis=1,start=176,stop=352,step=1}\n"
    "%m = swiglu %gate, %up\n%d = matmul %m, %w_d\n%s = add %d, %h\noutput %y = %s\n";

/* Norms before and behind each branch, capped scores, GeGLU, a window (Gemma 2). */
static const char gemma[] =
    "%x = input bf16[48,128]\n%g1 = weight bf16[128]\n%w_qkv = weight bf16[256,128]\n"
    "%w_o = weight bf16[128,128]\n%g2 = weight bf16[128]\n%g3 = weight bf16[128]\n"
    "%w_gu = weight bf16[352,128]\n%w_d = weight bf16[128,176]\n%g4 = weight bf16[128]\n"
    "%n1 = rms_norm %x, %g1 {eps=1e-6}\n%qkv = matmul %n1, %w_qkv\n"
    "%r = rope %qkv {base=10000,head_dim=32,heads=6,half=1}\n"
    "%q = slice %r {axis=1,start=0,stop=128,step=1}\n%k = slice %r {axis=1,start=128,stop=192,step=1}\n"
    "%v = slice %r {axis=1,start=192,stop=256,step=1}\n"
    "%a = attention %q, %k, %v {heads=4,kv_heads=2,causal=1,window=16,softcap=50}\n%o = matmul %a, %w_o\n"
    "%p = rms_norm %o, %g2 {eps=1e-6}\n%h = add %p, %x\n%n2 = rms_norm %h, %g3 {eps=1e-6}\n"
    "%gu = matmul %n2, %w_gu\n%gate = slice %gu {axis=1,start=0,stop=176,step=1}\n"
    "%up = slice %gu {axis=1,start=176,stop=352,step=1}\n%m = geglu %gate, %up\n%d = matmul %m, %w_d\n"
    "%e = rms_norm %d, %g4 {eps=1e-6}\n%s = add %e, %h\noutput %y = %s\n";

/* A head: the norm, logits, and the mean loss of tokens of which some are ignored. */
static const char head[] =
    "%x = input bf16[64,128]\n%g = weight bf16[128]\n%w = weight bf16[500,128]\n%t = input i32[64]\n"
    "%n = rms_norm %x, %g {eps=1e-5}\n%z = matmul %n, %w\n"
    "%l = cross_entropy %z, %t {ignore=3,reduction=1}\noutput %loss = %l\n";

/* The loss of three chunks of rows, whose logits take turns in one memory. */
static const char chunks[] =
    "%x = input bf16[96,128]\n%w = weight bf16[504,128]\n%t = input i32[96]\n"
    "%x0 = slice %x {axis=0,start=0,stop=32,step=1}\n%t0 = slice %t {axis=0,start=0,stop=32,step=1}\n"
    "%z0 = matmul %x0, %w\n%l0 = cross_entropy %z0, %t0 {ignore=3,reduction=2}\n"
    "%x1 = slice %x {axis=0,start=32,stop=64,step=1}\n%t1 = slice %t {axis=0,start=32,stop=64,step=1}\n"
    "%z1 = matmul %x1, %w\n%l1 = cross_entropy %z1, %t1 {ignore=3,reduction=2}\n"
    "%x2 = slice %x {axis=0,start=64,stop=96,step=1}\n%t2 = slice %t {axis=0,start=64,stop=96,step=1}\n"
    "%z2 = matmul %x2, %w\n%l2 = cross_entropy %z2, %t2 {ignore=3,reduction=2}\n"
    "%s = add %l0, %l1\n%l = add %s, %l2\noutput %loss = %l\n";

/* Adapters of rank 8 on packed weights: of gate and up together, and of the way down. */
static const char adapters[] =
    "%x = input bf16[48,128]\n%g1 = weight bf16[128]\n%p_gu = weight u8[35840]\n%p_d = weight u8[18432]\n"
    "%a_gu = weight bf16[8,128]\n%b_gu = weight bf16[512,8]\n%a_d = weight bf16[8,256]\n"
    "%b_d = weight bf16[128,8]\n%w_gu = unpack %p_gu "
    "{format=int4_g64_f16_zeros,d0=512,d1=128,rank=2,to=bf16}\n"
    "%w_d = unpack %p_d {format=q4_k,d0=128,d1=256,rank=2,to=bf16}\n%n1 = rms_norm %x, %g1 {eps=1e-6}\n"
    "%gu = matmul %n1, %w_gu\n%l_gu = matmul %n1, %a_gu\n%h_gu = matmul %l_gu, %b_gu\n"
    "%s_gu = scale %h_gu {alpha=2}\n%t_gu = add %gu, %s_gu\n"
    "%gate = slice %t_gu {axis=1,start=0,stop=256,step=1}\n%up = slice %t_gu "
    "{axis=1,start=256,stop=512,step=1}\n"
    "%m = swiglu %gate, %up\n%d = matmul %m, %w_d\n%l_d = matmul %m, %a_d\n%h_d = matmul %l_d, %b_d\n"
    "%s_d = scale %h_d {alpha=2}\n%t_d = add %d, %s_d\n%s = add %t_d, %x\noutput %y = %s\n";

const struct grad_block grad_blocks[] = {
    {"LLaMA", "examples/graphs/llama_small.coda", NULL, 0.9},
    {"GPT-2", "examples/graphs/gpt2_small.coda", NULL, 1.05},
    {"BERT", "examples/graphs/bert_small.coda", NULL, 1.05},
    {"Qwen3", NULL, qwen3, 1.05},
    {"Gemma 2", NULL, gemma, 1.05},
    {"head", NULL, head, 1.05},
    {"chunks of a loss", NULL, chunks, 1.05},
    {"adapters", NULL, adapters, 1.05},
};
const int grad_block_count = ARRAY_SIZE(grad_blocks);

/* ---- The graph ---- */

static coda_value value_of(int index) { return (coda_value){(uint32_t)(index + 1)}; }

/* Inputs of y's type for each output, behind what is there. */
static void cotangents(graph *g, coda_value *y, coda_value *dy)
{
    for (int i = 0; i < g->outputs; i++) {
        char name[280];
        struct type t = g->node[g->output[i].value].type;
        y[i] = value_of(g->output[i].value);
        snprintf(name, sizeof name, "d_%s", g->output[i].name);
        dy[i] = coda_input(g, name, t.dtype, t.rank, t.dim);
    }
}

static int float_leaves(const graph *g, coda_value *x)
{
    int n = 0;
    for (int i = 0; i < g->leaves; i++)
        if (dtype_is_float(g->node[g->leaf[i]].type.dtype)) x[n++] = value_of(g->leaf[i]);
    return n;
}

graph *grad_block_graph(const struct grad_block *b)
{
    enum { MOST = 32 };
    coda_value y[MOST], dy[MOST], x[MOST], dx[MOST];
    graph *g = b->path ? run_load(b->path) : graph_parse(b->text);
    if (!g) return NULL;
    int ny = g->outputs, nx = float_leaves(g, x);
    cotangents(g, y, dy);
    coda_grad(g, y, dy, ny, x, nx, dx, NULL);
    for (int i = 0; i < nx && g->status == CODA_OK; i++) {
        char name[280];
        snprintf(name, sizeof name, "g_%s", g->node[x[i].id - 1].name);
        coda_output(g, name, dx[i]);
    }
    if (graph_mistake(g) == CODA_OK) return g;
    graph_free(g);
    return NULL;
}

/* ---- Its errors ---- */

static double distance(const graph *g, int output, const void *got, const double *want)
{
    const struct type *t = &g->node[g->output[output].value].type;
    double difference = 0, size = 0;
    for (int64_t e = 0; e < type_elements(t); e++) {
        double d = dtype_load(t->dtype, got, e) - want[e];
        difference += d * d;
        size += want[e] * want[e];
    }
    return sqrt(difference / fmax(size, 1e-300));
}

bool grad_block_errors(const graph *g, uint64_t seed, unsigned flags, bool on_gpu, double *error)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b = {0};
    coda_plan *p;
    opt.device = on_gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    opt.flags = flags;
    if (coda_compile(&p, g, &opt) != CODA_OK) return false;
    void **want = run_reference(g, seed), **got = random_args(g, seed, false);
    bool good = want && run_upload(&b, g, p, got, on_gpu) && run_prepare(&b, p) && run_plan(&b, p);
    for (int i = 0; good && i < g->outputs; i++)
        error[i] = distance(g, i, got[g->leaves + i], want[g->leaves + i]);
    run_release(&b);
    if (want) random_args_free(g, want);
    random_args_free(g, got);
    coda_plan_free(p);
    return good;
}

/* Of one output, whose few numbers chance moves. */
static const double most_alone = 1.3;

bool grad_block_good(const struct grad_block *b, uint64_t seed, bool on_gpu, char *why, size_t size)
{
    enum { MOST = 64 };
    double fused[MOST], apart[MOST], worst = 0, sum_fused = 0, sum_apart = 0;
    int at = 0;
    graph *g = grad_block_graph(b);
    bool ran = g && grad_block_errors(g, seed, 0, on_gpu, fused) &&
               grad_block_errors(g, seed, CODA_NO_FUSION, on_gpu, apart);
    for (int i = 0; ran && i < g->outputs; i++) {
        double ratio = fused[i] / fmax(apart[i], 1e-4);
        if (ratio > worst || isnan(ratio)) worst = isnan(ratio) ? INFINITY : ratio, at = i;
        sum_fused += fused[i] * fused[i];
        sum_apart += apart[i] * apart[i];
    }
    double together = sqrt(sum_fused / fmax(sum_apart, 1e-12));
    if (!ran) snprintf(why, size, "%s", coda_error());
    else
        snprintf(why, size, "%.3f of one by one; %s has %.2e, one by one %.2e: %.3f", together,
                 g->output[at].name, fused[at], apart[at], worst);
    graph_free(g);
    return ran && together <= b->most && worst <= most_alone;
}
