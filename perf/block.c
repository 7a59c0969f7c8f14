/* block.c -- the block of block.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"

static const char text[] = "dim %T = 1..4096\n%x = input bf16[T,4096]\n%attn_gain = weight bf16[4096]\n"
                           "%w_qkv = weight bf16[12288,4096]\n%w_o = weight bf16[4096,4096]\n"
                           "%mlp_gain = weight bf16[4096]\n%w_gate_up = weight bf16[22016,4096]\n"
                           "%w_down = weight bf16[4096,11008]\n%n1 = rms_norm %x, %attn_gain {eps=1e-5}\n"
                           "%qkv = matmul %n1, %w_qkv\n"
                           "%r = rope %qkv {base=10000,head_dim=128,rotary=128,heads=64,half=1}\n"
                           "%q = slice %r {axis=1,start=0,stop=4096,step=1}\n"
                           "%k = slice %r {axis=1,start=4096,stop=8192,step=1}\n"
                           "%v = slice %r {axis=1,start=8192,stop=12288,step=1}\n"
                           "%a = attention %q, %k, %v "
                           "{scale=0.08838834764831845,heads=32,kv_heads=32,causal=1}\n"
                           "%o = matmul %a, %w_o\n%h = add %o, %x\n"
                           "%n2 = rms_norm %h, %mlp_gain {eps=1e-5}\n%gu = matmul %n2, %w_gate_up\n"
                           "%gate = slice %gu {axis=1,start=0,stop=11008,step=1}\n"
                           "%up = slice %gu {axis=1,start=11008,stop=22016,step=1}\n%m = swiglu %gate, %up\n"
                           "%d = matmul %m, %w_down\n%s = add %d, %h\noutput %y = %s\n";

void good(coda_status s, const char *what)
{
    if (s == CODA_OK) return;
    fprintf(stderr, "perf: %s: %s\n", what, coda_error());
    exit(1);
}

uint64_t random_bits(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = (*state ^ *state >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void block_compile(struct block *b)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.policy = CODA_POLICY_BACKGROUND;
    opt.cache = b->cache;
    good(coda_graph_parse(&b->g, text), "coda_graph_parse");
    good(coda_compile(&b->plan, b->g, &opt), "coda_compile");
}

/* ---- Memory ---- */

static address allocated(const struct machine *m, size_t bytes)
{
    address at;
    must(m->alloc(&at, bytes ? bytes : 1) || m->set(at, 0, bytes ? bytes : 1), "memory");
    return at;
}

/* bf16 between -amount and amount. */
static void fill(const struct machine *m, address at, size_t bytes, float amount)
{
    uint16_t *host = malloc(bytes);
    must(!host, "malloc");
    uint64_t state = bytes;
    for (size_t i = 0; i < bytes / 2; i++) {
        float x = ((float)(random_bits(&state) >> 40) * 0x1p-23f - 1) * amount;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        host[i] = (uint16_t)(bits >> 16);
    }
    must(m->upload(at, host, bytes), "upload");
    free(host);
}

static void prepare(const struct block *b, const coda_plan *p)
{
    good(coda_prepare(p, b->args, (void *)(uintptr_t)b->prepared, (void *)(uintptr_t)b->work, b->m.stream),
         "coda_prepare");
}

void block_memory(struct block *b, bool random)
{
    for (int i = 0; i < BLOCK_ARGS; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        good(coda_plan_arg(b->plan, i, &a), "coda_plan_arg");
        b->at[i] = allocated(&b->m, a.bytes);
        if (random) fill(&b->m, b->at[i], a.bytes, a.rank == 2 && i ? 0.027f : 1.7f);
        b->args[i] = (void *)(uintptr_t)b->at[i];
    }
    b->work = allocated(&b->m, coda_plan_workspace(b->plan));
    b->prepared = allocated(&b->m, coda_plan_prepared(b->plan));
    prepare(b, b->plan);
    block_wait(b);
}

/* ---- Runs ---- */

void block_wait(const struct block *b) { must(b->m.stream_wait(b->m.stream), "run"); }

double block_run(const struct block *b, int64_t n)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = &n, opt.dim_count = 1;
    double start = clock_us();
    coda_status s = coda_run_shaped(b->plan, b->args, (void *)(uintptr_t)b->prepared,
                                    (void *)(uintptr_t)b->work, b->m.stream, &opt);
    double took = clock_us() - start;
    good(s, "coda_run_shaped");
    return took;
}

void block_last(const struct block *b, int64_t n, uint16_t *row)
{
    size_t bytes = BLOCK_HIDDEN * sizeof *row;
    must(b->m.download(row, b->at[BLOCK_ARGS - 1] + (address)((size_t)(n - 1) * bytes), bytes), "download");
}

double block_distance(const uint16_t *a, const uint16_t *b)
{
    double off = 0, all = 0;
    for (int i = 0; i < BLOCK_HIDDEN; i++) {
        float x, y;
        uint32_t bits[2] = {(uint32_t)a[i] << 16, (uint32_t)b[i] << 16};
        memcpy(&x, &bits[0], 4), memcpy(&y, &bits[1], 4);
        off += (x - y) * (x - y), all += (double)y * y;
    }
    return sqrt(off / all);
}

coda_plan *block_exact(const struct block *b, int64_t n)
{
    coda_graph *bound;
    coda_plan *exact;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.cache = b->cache;
    good(coda_graph_bind(&bound, b->g, &n, 1), "coda_graph_bind");
    good(coda_compile(&exact, bound, &opt), "coda_compile");
    coda_graph_free(bound);
    prepare(b, exact);
    return exact;
}

void block_run_exact(const struct block *b, const coda_plan *exact)
{
    good(coda_run(exact, b->args, (void *)(uintptr_t)b->prepared, (void *)(uintptr_t)b->work, b->m.stream),
         "coda_run");
}

replay block_capture(const struct block *b, const coda_plan *exact, int64_t n)
{
    graph g;
    replay r;
    must(b->m.capture_begin(b->m.stream, 0), "capture");
    for (int i = 0; i < BLOCK_RUNS; i++) {
        if (exact) block_run_exact(b, exact);
        else block_run(b, n);
    }
    must(b->m.capture_end(b->m.stream, &g) || b->m.replay_new(&r, g, 0) || b->m.graph_free(g), "capture");
    return r;
}

double block_replay(const struct block *b, replay r, const event e[2])
{
    float ms = 0;
    must(b->m.event_record(e[0], b->m.stream) || b->m.replay_run(r, b->m.stream) ||
             b->m.event_record(e[1], b->m.stream) || b->m.stream_wait(b->m.stream) ||
             b->m.event_ms(&ms, e[0], e[1]),
         "replay");
    return (double)ms / BLOCK_RUNS;
}
