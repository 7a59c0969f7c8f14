/* test_kernel_table.c -- texts that are not printed again: each is what would have been printed, and each
 * launch passes the same. */
#include "executable.h"
#include "kernel_table.h"
#include "pipeline.h"
#include "util_random.h"
#include "util_scale.h"
#include "util_symbolic.h"
#include "variants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* One table of texts and tiles, as a plan of all shapes has. */
struct shared {
    struct variants *variants;
    struct kernel_table *table;
    const char *arch;
    unsigned flags;
    long programs, found; /* the latter: texts that an earlier shape had */
    const char *seen[4096];
    int seens;
};

static void open_shared(struct shared *s, const char *arch)
{
    *s = (struct shared){.variants = variants_new(), .table = kernel_table_new(), .arch = arch};
    ck_assert(s->variants && s->table);
}

static void close_shared(struct shared *s)
{
    kernel_table_free(s->table);
    variants_free(s->variants);
}

static coda_plan *plan_of(const struct shared *s, const graph *g, bool base, struct kernel_table *table)
{
    const struct compile_context context = {.variants = s->variants, .base = base, .table = table};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | s->flags;
    opt.arch = s->arch;
    return compile_graph(&p, g, &opt, &context) == CODA_OK ? p : NULL;
}

static void expect_same_maps(const struct kernel *a, const struct kernel *b)
{
    ck_assert_int_eq(a->maps, b->maps);
    for (int i = 0; i < a->maps; i++) {
        const struct map_spec *x = &a->map[i], *y = &b->map[i];
        ck_assert(x->buffer == y->buffer && x->offset == y->offset && x->dtype == y->dtype);
        ck_assert(x->rank == y->rank && x->swizzle == y->swizzle);
        ck_assert(!memcmp(x->dim, y->dim, sizeof x->dim) && !memcmp(x->stride, y->stride, sizeof x->stride));
        ck_assert(!memcmp(x->box, y->box, sizeof x->box));
    }
}

static void expect_same(const struct kernel *a, const struct kernel *b)
{
    if (!a->text && !b->text) return; /* cuBLASLt's */
    ck_assert_str_eq(a->text, b->text);
    ck_assert_str_eq(a->symbol, b->symbol);
    expect_same_maps(a, b);
    ck_assert(a->pointers == b->pointers && a->scalars == b->scalars);
    for (int i = 0; i < a->pointers; i++)
        ck_assert(a->pointer[i].buffer == b->pointer[i].buffer && a->pointer[i].bytes == b->pointer[i].bytes);
    for (int i = 0; i < a->scalars; i++)
        ck_assert(a->scalar[i].buffer == b->scalar[i].buffer && a->scalar[i].number == b->scalar[i].number);
    const struct launch_spec *x = &a->launch, *y = &b->launch;
    ck_assert(x->grid == y->grid && x->cluster == y->cluster && x->threads == y->threads);
    ck_assert(x->shared_bytes == y->shared_bytes && x->persistent == y->persistent);
    ck_assert(x->early == y->early && x->streams == y->streams);
}

static void count_found(struct shared *s, const char *text)
{
    for (int i = 0; i < s->seens; i++)
        if (s->seen[i] == text) s->found++, i = s->seens;
    if (s->seens < 4096) s->seen[s->seens++] = text;
}

/* The plan with what is known, and as if nothing were. */
static void compare(struct shared *s, const graph *g, bool base)
{
    coda_plan *a = plan_of(s, g, base, s->table), *b = plan_of(s, g, base, NULL);
    ck_assert(!a == !b);
    for (int i = 0; a && i < a->plan.programs; i++) {
        const struct kernel *k = &a->program[i].emitted;
        expect_same(k, &b->program[i].emitted);
        ck_assert_int_eq(a->program[i].kernel, b->program[i].kernel);
        s->programs += a->plan.program[i].kind == PROGRAM_GEMM;
        if (a->plan.program[i].kind == PROGRAM_GEMM && k->text) count_found(s, k->text);
    }
    executable_free(a);
    executable_free(b);
}

static void compare_shape(struct shared *s, const graph *g, const int64_t *dims)
{
    graph *bound = graph_bind(g, "test", dims);
    ck_assert_msg(bound, "%s", coda_error());
    compare(s, bound, false);
    compare(s, bound, true);
    graph_free(bound);
}

static const char *const arch[] = {"sm_90a", "sm_80"};

START_TEST(texts_of_random_graphs)
{
    enum { SHAPES = 20 };
    struct shared s;
    uint64_t seed = random_seed() + 1000003 * (uint64_t)_i;
    for (int i = 0; i < scaled(40); i++, seed++) {
        uint64_t of = i % 3 ? seed : seed | SYMBOLIC_GRADIENTS;
        graph *g = symbolic_graph(of, NULL);
        open_shared(&s, arch[_i]);
        s.flags = i % 4 ? 0 : CODA_BATCH_INVARIANT;
        for (int shape = 0; shape < SHAPES; shape++) {
            int64_t dims[SYMBOLIC_DIMS];
            symbolic_shape(of, shape, dims);
            compare_shape(&s, g, dims);
        }
        close_shared(&s);
        graph_free(g);
    }
}
END_TEST

/* A block, by rows: norms, positions, gates, statistics that tiles leave; few texts are printed twice. */
static const char block[] = "dim %T = 1..16384\n"
                            "%x = input bf16[T,1024]\n%g = weight bf16[1024]\n%q = weight bf16[3072,1024]\n"
                            "%o = weight bf16[1024,1024]\n%u = weight bf16[5632,1024]\n"
                            "%d = weight bf16[1024,2816]\n%n = rms_norm %x, %g {eps=1e-5}\n"
                            "%1 = matmul %n, %q\n"
                            "%2 = rope %1 {base=10000,head_dim=128,rotary=128,heads=16,half=1}\n"
                            "%3 = slice %2 {axis=1,start=0,stop=1024,step=1}\n"
                            "%4 = slice %2 {axis=1,start=1024,stop=2048,step=1}\n"
                            "%5 = slice %2 {axis=1,start=2048,stop=3072,step=1}\n"
                            "%a = attention %3, %4, %5 {scale=0.1,heads=8,kv_heads=8,causal=1}\n"
                            "%6 = matmul %a, %o\n%h = add %6, %x\n%7 = rms_norm %h, %g {eps=1e-5}\n"
                            "%8 = matmul %7, %u\n%9 = slice %8 {axis=1,start=0,stop=2816,step=1}\n"
                            "%10 = slice %8 {axis=1,start=2816,stop=5632,step=1}\n%11 = swiglu %9, %10\n"
                            "%12 = matmul %11, %d\n%y = add %12, %h\noutput %out = %y\n";

START_TEST(texts_of_a_block)
{
    struct shared s;
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, block) == CODA_OK, "%s", coda_error());
    open_shared(&s, arch[_i]);
    for (int64_t rows = 1; rows <= 16384; rows += 1 + rows / 24) compare_shape(&s, g, &rows);
    printf("%s: %ld of %ld texts are not printed\n", s.arch, s.found, s.programs);
    ck_assert_int_ge(s.found * 10, s.programs * 9);
    close_shared(&s);
    coda_graph_free(g);
}
END_TEST

/* Rows of several sequences, whose positions start anew; of one, where they do not; a table; a map of the
 * user, of which each bound graph has its own. */
static const char sequences[] =
    "map past(1; 0) \"DEV static float apply(float x) { return x + 1.0f; }\"\n"
    "dim %B = 1..4\ndim %T = 1..300\ndim %S = 16..4096 step 16\n"
    "%x = input bf16[B*T,256]\n%w = weight bf16[512,256]\n%v = weight bf16[256,512]\n"
    "%ids = input i32[B*T]\n%table = input bf16[S,256]\n%1 = matmul %x, %w\n"
    "%2 = reshape %1 {rank=3,d0=B,d1=T,d2=512}\n"
    "%3 = rope %2 {base=10000,head_dim=128,rotary=128,heads=4,half=1}\n"
    "%4 = reshape %3 {rank=2,d0=B*T,d1=512}\n%5 = matmul %4, %v\n%6 = embedding %table, %ids\n"
    "%7 = add %5, %6\n%8 = past %7\n%9 = sum_sq %8\n%10 = mul %8, %9\noutput %y = %10\n";

START_TEST(texts_of_sequences)
{
    struct shared s;
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, sequences) == CODA_OK, "%s", coda_error());
    open_shared(&s, arch[_i]);
    for (int64_t b = 1; b <= 4; b++)
        for (int64_t t = 1; t <= 300; t += 1 + t / 9)
            compare_shape(&s, g, (int64_t[]){b, t, 16 + (b * t * 48) % 4080});
    printf("%s: %ld of %ld texts of sequences are not printed\n", s.arch, s.found, s.programs);
    ck_assert_int_ge(s.found * 10, s.programs * 9);
    close_shared(&s);
    coda_graph_free(g);
}
END_TEST

TESTS(kernel_table, EACH(texts_of_random_graphs, 2), EACH(texts_of_a_block, 2), EACH(texts_of_sequences, 2));
