/* test_templates.c -- plans that are written down from others of their template: each is what all stages make
 * of its shape, program by program, byte by byte. */
#include "family.h"
#include "schedule.h"
#include "util_random.h"
#include "util_run.h"
#include "util_scale.h"
#include "util_symbolic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

struct tried {
    struct family family;
    coda_plan *whole;
    long shapes, written; /* the latter: from a template */
    char shape[200];
};

static void open_family(struct tried *t, const graph *g, coda_device device, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = device;
    opt.flags = flags | (device == CODA_DEVICE_NONE ? CODA_PLAN_ONLY : 0);
    t->whole = NULL;
    ck_assert_msg(!family_open(&t->family, g, &opt), "%s", coda_error());
    if (family_whole(&t->family, &t->whole, false)) t->whole = NULL;
}

static void close_family(struct tried *t)
{
    executable_free(t->whole);
    family_close(&t->family);
}

/* ---- Two plans ---- */

#define EXPECT(t, what) ck_assert_msg(what, "%s: not %s", (t)->shape, #what)

static void expect_same_program(const struct tried *t, const coda_plan *p, const coda_plan *q, int i)
{
    const struct program *a = &p->plan.program[i], *b = &q->plan.program[i];
    struct text x = {0}, y = {0};
    const char *field = program_differs(a, b, FIELD_ALL);
    ck_assert_msg(!field, "%s: @%d differs in %s", t->shape, i, field);
    program_print(NULL, a, &x);
    program_print(NULL, b, &y);
    ck_assert_msg(!strcmp(text_str(&x), text_str(&y)), "%s:\n%s\n%s", t->shape, text_str(&x), text_str(&y));
    text_free(&x);
    text_free(&y);
    if (a->kind == PROGRAM_GEMM) EXPECT(t, tile_equal(&p->plan.schedule[i].tile, &q->plan.schedule[i].tile));
}

static void expect_same_memory(const struct tried *t, const coda_plan *p, const coda_plan *q)
{
    EXPECT(t, p->plan.workspace == q->plan.workspace && p->plan.prepared == q->plan.prepared);
    EXPECT(t, p->plan.prepared_id == q->plan.prepared_id && p->plan.buffers == q->plan.buffers);
    for (int i = 0; i < p->plan.buffers; i++) {
        const struct buffer *a = &p->plan.buffer[i], *b = &q->plan.buffer[i];
        EXPECT(t, a->space == b->space && a->arg == b->arg && a->bytes == b->bytes);
        EXPECT(t, a->offset == b->offset && a->first == b->first && a->last == b->last);
        EXPECT(t, a->folded == b->folded && a->holds == b->holds);
    }
    EXPECT(t, p->args == q->args && p->states == q->states);
    for (int i = 0; i < p->args; i++) {
        const struct place *a = &p->place[i], *b = &q->place[i];
        EXPECT(t, !strcmp(a->name, b->name) && a->kind == b->kind && a->align == b->align);
        EXPECT(t, a->holds == b->holds && a->at.bytes == b->at.bytes && a->at.run == b->at.run);
        EXPECT(t, a->at.rank == b->at.rank);
        for (int d = 0; d < a->at.rank; d++)
            EXPECT(t, a->at.step[d] == b->at.step[d] && a->at.count[d] == b->at.count[d]);
    }
}

static void expect_same_kernel(const struct tried *t, const struct kernel *a, const struct kernel *b)
{
    EXPECT(t, !a->text == !b->text);
    if (!a->text) return; /* cuBLASLt's */
    ck_assert_msg(!strcmp(a->text, b->text), "%s:\n%s\n%s", t->shape, a->text, b->text);
    EXPECT(t, !strcmp(a->symbol, b->symbol));
    EXPECT(t, a->maps == b->maps && a->pointers == b->pointers && a->scalars == b->scalars);
    for (int i = 0; i < a->maps; i++) {
        const struct map_spec *x = &a->map[i], *y = &b->map[i];
        EXPECT(t, x->buffer == y->buffer && x->offset == y->offset && x->dtype == y->dtype);
        EXPECT(t, x->rank == y->rank && x->swizzle == y->swizzle && x->l2_promotion == y->l2_promotion);
        EXPECT(t, !memcmp(x->dim, y->dim, sizeof x->dim) && !memcmp(x->stride, y->stride, sizeof x->stride));
        EXPECT(t, !memcmp(x->box, y->box, sizeof x->box));
    }
    for (int i = 0; i < a->pointers; i++)
        EXPECT(t, a->pointer[i].buffer == b->pointer[i].buffer && a->pointer[i].bytes == b->pointer[i].bytes);
    for (int i = 0; i < a->scalars; i++)
        EXPECT(t, a->scalar[i].buffer == b->scalar[i].buffer && a->scalar[i].number == b->scalar[i].number);
    const struct launch_spec *x = &a->launch, *y = &b->launch;
    EXPECT(t, x->grid == y->grid && x->cluster == y->cluster && x->threads == y->threads);
    EXPECT(t, x->shared_bytes == y->shared_bytes && x->persistent == y->persistent);
    EXPECT(t, x->early == y->early && x->streams == y->streams);
}

/* ---- A shape ---- */

static coda_plan *planned(struct tried *t, const int64_t *dims, bool fully, bool base)
{
    const struct plan_request w = {
        .call = "test", .dims = dims, .text_only = true, .fully = fully, .base = base};
    coda_plan *p = NULL;
    return family_plan(&t->family, &p, t->whole, &w) ? NULL : p;
}

static void compare(struct tried *t, const int64_t *dims, bool base)
{
    family_say(&t->family, dims, t->shape, sizeof t->shape);
    coda_plan *p = planned(t, dims, false, base), *q = planned(t, dims, true, base);
    EXPECT(t, !p == !q);
    EXPECT(t, !p || p->plan.programs == q->plan.programs);
    t->shapes++;
    t->written += p && !p->plan.graph;
    for (int i = 0; p && i < p->plan.programs; i++) {
        expect_same_program(t, p, q, i);
        if (p->program) expect_same_kernel(t, &p->program[i].emitted, &q->program[i].emitted);
        if (p->program) EXPECT(t, p->program[i].kernel == q->program[i].kernel);
    }
    if (p) expect_same_memory(t, p, q);
    executable_free(p);
    executable_free(q);
}

START_TEST(random_graphs)
{
    enum { SHAPES = 60 };
    uint64_t seed = random_seed() + 1000003 * (uint64_t)_i;
    struct tried t = {.written = 0};
    for (int i = 0; i < scaled(40); i++, seed++) {
        uint64_t of = i % 3 ? seed | SYMBOLIC_WIDE : seed & ~SYMBOLIC_WIDE;
        if (i % 5 == 4) of |= SYMBOLIC_GRADIENTS;
        graph *g = symbolic_graph(of, NULL);
        open_family(&t, g, _i ? CODA_DEVICE_CPU : CODA_DEVICE_NONE, i % 4 ? 0 : CODA_BATCH_INVARIANT);
        for (int shape = 0; t.whole && shape < SHAPES; shape++) {
            int64_t dims[SYMBOLIC_DIMS];
            symbolic_shape(of, shape, dims);
            compare(&t, dims, shape % 4 == 3);
        }
        close_family(&t);
        graph_free(g);
    }
    printf("%ld of %ld shapes of random graphs are written down\n", t.written, t.shapes);
    /* Of most seeds a third, of some an eighth; of one graph perhaps none. */
    if (t.shapes >= 10 * SHAPES) ck_assert_int_ge(t.written * 20, t.shapes);
}
END_TEST

/* ---- Graphs of models: each number of rows that ends or begins a class, and any ---- */

static int64_t any_value(struct random *r, const struct symbol *s, int shape)
{
    int64_t power = (int64_t)1 << random_below(r, 13), near = power * (1 + random_below(r, 8));
    int64_t value = shape % 3 ? near - 1 + random_below(r, 3) : random_below(r, s->most + 1);
    if (shape < 4) value = shape % 2 ? s->most : 1;
    value = MIN(MAX(value, s->least), s->most);
    return MAX(value / s->multiple * s->multiple, s->least);
}

static void walk_file(const char *name, int shapes)
{
    struct tried t = {.written = 0};
    struct random r = {random_seed()};
    graph *g = run_load(name);
    ck_assert_msg(g, "%s: %s", name, coda_error());
    open_family(&t, g, CODA_DEVICE_NONE, 0);
    ck_assert_msg(t.whole, "%s: %s", name, coda_error());
    for (int shape = 0; shape < shapes; shape++) {
        int64_t dims[MOST_SYMBOLS];
        for (int i = 0; i < g->dims->symbols; i++) dims[i] = any_value(&r, &g->dims->symbol[i], shape);
        if (shape % 5 == 4)
            for (int i = 1; i < g->dims->symbols; i++)
                if (dims[0] <= g->dims->symbol[i].most) dims[i] = dims[0];
        if (!dims_check(g->dims, "test", dims)) compare(&t, dims, shape % 2);
    }
    printf("%s: %ld of %ld shapes are written down\n", name, t.written, t.shapes);
    /* Of 16 shapes there may be 3, of 100 there are some 80. */
    if (t.shapes >= 90) ck_assert_int_ge(t.written * 5, t.shapes);
    close_family(&t);
    graph_free(g);
}

static const char *const file[] = {"examples/graphs/llama_cache.coda", "examples/graphs/qwen3_cache.coda"};

START_TEST(graphs_of_models) { walk_file(file[_i], scaled(400)); }
END_TEST

/* ---- Small graphs in which numbers of symbols are equal, or on other sides of a limit, by chance ---- */

static const char *const text_of[] = {
    /* strides that a row's extents make dense for one value of S alone, beside ones that are never dense */
    "dim %B = 1..9\ndim %T = 1..300\ndim %S = 0..20000\n%x = input bf16[B,T,64] stride=[64*T+S,64,1]\n"
    "%b = input bf16[B,1,64]\n%y = add %x, %b\noutput %o = %y\n",
    /* columns that lie apart by a symbol */
    "dim %T = 1..300\n%x = input bf16[64,T]\n%t = transpose %x {p0=1}\n%y = silu %t\noutput %o = %y\n",
    /* ... and tables, whose rows do */
    "dim %T = 1..300\ndim %S = 64..20000\n%w = input bf16[19,64] stride=[S,1]\n%i = input i32[T]\n"
    "%e = embedding %w, %i\n%y = silu %e\noutput %o = %y\n",
    /* the largest of rows whose columns lie apart by a symbol */
    "dim %T = 1..300\n%x = input bf16[64,T]\n%t = transpose %x {p0=1}\n%v = top_k %t {k=3}\noutput %o = %v\n",
    /* offsets into one tensor that are equal by chance: 128 S and 64 T */
    "dim %T = 1..3000\ndim %S = 1..3000\n%x = input bf16[4096,128]\n"
    "%a = slice %x {start=S,stop=S+7,step=1}\n%a1 = slice %a {axis=1,stop=64,step=1}\n"
    "%z = reshape %x {rank=2,d0=8192,d1=64}\n%b = slice %z {start=T,stop=T+7,step=1}\n"
    "%y = add %a1, %b\noutput %o = %y\n",
    /* a vector for each sample, of 2 T rows */
    "dim %B = 1..9\ndim %T = 1..300\n%x = input bf16[B,T,2,64]\n%w = weight bf16[96,64]\n"
    "%v = input bf16[B,1,1,96]\n%m = matmul %x, %w\n%y = mul %m, %v\noutput %o = %y\n",
    /* lines of T ids, and of 2 S */
    "dim %T = 1..300\ndim %S = 1..3000\n%i = input i32[T]\n%j = input i32[S,2]\n%k = reshape %j "
    "{rank=1,d0=2*S}\n"
    "%a = add %i, %i\n%b = add %k, %k\noutput %o = %a\noutput %p = %b\n",
    /* strides of more than 2^31 elements */
    "dim %T = 1..300\ndim %S = 64..8589934592\n%x = input bf16[T,64] stride=[S,1]\n%y = silu %x\noutput %o = "
    "%y\n",
    /* as many elements, or more */
    "dim %T = 1..400000\ndim %S = 1..400000\n%x = input bf16[T,S,1,64] stride=[128*S,128,64,1]\n%y = silu "
    "%x\noutput %o = %y\n",
    /* keys by a table whose pages lie apart by a symbol, and slopes */
    "dim %B = 1..40\ndim %S = 1..300\n%q = input bf16[B,1,128]\n%k = input bf16[4096,128]\n%n = input "
    "i32[B]\n"
    "%t = input i32[32,B]\n%u = transpose %t {p0=1}\n"
    "%a = attention %q, %k, %k, %n, _, _, _, %u {heads=2,causal=1,align=3,page=16,scale=0.125}\noutput %o = "
    "%a\n",
    "dim %B = 1..40\ndim %S = 1..300\n%q = input bf16[B,1,128]\n%n = input i32[B]\n"
    "%s = input f32[2,S]\n%c = slice %s {axis=1,stop=1,step=1}\n%l = reshape %c {rank=1,d0=2}\n"
    "%a = attention %q, %q, %q, %n, _, %l {heads=2,causal=1,scale=0.125}\noutput %o = %a\n",
    "dim %B = 1..9\ndim %T = 1..300\n%q = input bf16[B,T,128]\n%r = input i32[2,B,T]\n"
    "%s = transpose %r {p0=1,p1=2}\n%a = attention %q, %q, %q, _, %s {heads=2,scale=0.125}\noutput %o = %a\n",
    /* a residual, and a result, whose rows lie apart by a symbol */
    "dim %T = 1..3000\ndim %S = 96..2000 step 8\n%x = input bf16[T,64]\n%w = weight bf16[96,64]\n"
    "%r = input bf16[T,96] stride=[S,1]\n%m = matmul %x, %w\n%y = add %m, %r\noutput %o = %y stride=[S,1]\n",
    /* products whose operands lie apart by symbols: of columns, and of batches */
    "dim %T = 1..3000\ndim %S = 64..2000 step 8\n%x = input bf16[64,T] stride=[3000+S,1]\n%w = weight "
    "bf16[96,64]\n"
    "%t = transpose %x {p0=1}\n%m = matmul %t, %w\n%y = gelu_tanh %m\noutput %o = %y\n",
    "dim %B = 1..90\ndim %T = 1..300\n%x = input bf16[T,B,64]\n%w = input bf16[B,96,64]\n"
    "%t = transpose %x {p0=1,p1=0,p2=2}\n%m = matmul %t, %w\n%y = silu %m\noutput %o = %y\n",
    /* rows of a transposed tensor that are reduced, and columns that are */
    "dim %T = 1..3000\n%x = input f32[72,T]\n%t = transpose %x {p0=1}\n%m = mean %t\n%y = sub %t, %m\n"
    "output %o = %y\n",
    /* a table's rows that lie apart by a symbol, as operands of a product's epilogue */
    "dim %T = 1..3000\ndim %S = 96..20000\n%x = input bf16[T,64]\n%w = weight bf16[96,64]\n%i = input "
    "i32[T]\n"
    "%r = input bf16[19,96] stride=[S,1]\n%e = embedding %r, %i\n%m = matmul %x, %w\n%y = add %m, %e\noutput "
    "%o = %y\n",
    /* rows of a packed table, and products by packed weights, whole, in part and turned */
    "dim %T = 1..3000\n%i = input i32[T]\n%g = weight bf16[256]\n%b = weight u8[36864]\n"
    "%t = unpack %b {format=q4_k,d0=256,d1=256,rank=2,to=bf16}\n%p = weight u8[12672]\n"
    "%w = unpack %p {format=int4_g128_f16,d0=96,d1=256,rank=2,to=bf16}\n%e = embedding %t, %i\n"
    "%n = rms_norm %e, %g {eps=1e-5}\n%m = matmul %n, %w\n%v = slice %w {start=20,stop=84,step=1}\n"
    "%k = matmul %n, %v\n%y = matmul %m, %w {kn=1}\noutput %o = %y\noutput %q = %k\n",
    /* rows of a tensor beside its columns as rows, which equal symbols make one place */
    "dim %T = 1..300\ndim %S = 1..300\n%x = input bf16[600,600]\n%a = slice %x {start=T,stop=T+64,step=1}\n"
    "%b = slice %x {start=S,stop=S+64,step=1}\n%c = slice %a {axis=1,start=S,stop=S+64,step=1}\n"
    "%d = slice %b {axis=1,start=T,stop=T+64,step=1}\n%y = add %c, %d\noutput %o = %y\n",
};

/* One of them so many times another, or so many rows and pieces that they no longer fit 31 bits. */
static void relate(struct random *r, const struct dims *t, int64_t *dims)
{
    int i = (int)random_below(r, t->symbols), j = (int)random_below(r, t->symbols);
    int64_t by = (int64_t)1 << random_below(r, 9), value = random_chance(r, 50) ? dims[j] * by : dims[j] / by;
    const struct symbol *s = &t->symbol[i];
    if (i != j && value >= s->least && value <= s->most && value % s->multiple == 0) dims[i] = value;
}

START_TEST(small_graphs)
{
    struct tried t = {.written = 0};
    struct random r = {random_seed()};
    graph *g = NULL;
    ck_assert_msg(!coda_graph_parse(&g, text_of[_i]), "%s", coda_error());
    open_family(&t, g, CODA_DEVICE_NONE, 0);
    ck_assert_msg(t.whole, "%s", coda_error());
    for (int shape = 0; shape < scaled(200); shape++) {
        int64_t dims[MOST_SYMBOLS];
        for (int i = 0; i < g->dims->symbols; i++) dims[i] = any_value(&r, &g->dims->symbol[i], shape);
        if (shape % 2) relate(&r, g->dims, dims);
        if (!dims_check(g->dims, "test", dims)) compare(&t, dims, shape % 4 > 1);
    }
    printf("small graph %d: %ld of %ld shapes are written down\n", _i, t.written, t.shapes);
    close_family(&t);
    graph_free(g);
}
END_TEST

TESTS(templates, EACH(random_graphs, 2), EACH(graphs_of_models, ARRAY_SIZE(file)),
      EACH(small_graphs, ARRAY_SIZE(text_of)));
