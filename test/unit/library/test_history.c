/* test_history.c -- what a shape's run leaves is a matter of the graph and of the shape: every shape runs in
 * the workspace that the plan as a whole asks for, and no shape that ran before changes its bits. */
#include "util_company.h"
#include "util_random.h"
#include "util_scale.h"
#include "util_symbolic.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHAPES = SANITIZED ? 16 : 40, PLANS = 2, FULL_GRAPHS = 1000, GRAPHS = 30 };

struct history {
    graph *graph;
    uint64_t seed;
    bool of_company; /* one symbol, T; else those of util_symbolic.h */
    uint64_t bits[SHAPES];
    bool ran[SHAPES];
    unsigned char poison;
};

/* Few rows, sizes at which kernels change, numbers that extents of the graph are, and any. */
static void shape_of(const struct history *h, int shape, int64_t *dims)
{
    static const int64_t rows[] = {1, 2, 3, 8, 15, 16, 17, 24, 32, 33, 48, 63, 64, 65, 72, 128, 129};
    struct random r = {h->seed + 31 * (uint64_t)shape};
    if (!h->of_company) symbolic_shape(h->seed, shape, dims);
    else if (shape < ARRAY_SIZE(rows)) dims[0] = rows[shape];
    else dims[0] = 1 + random_below(&r, shape % 2 ? 20 : 300);
    if (h->of_company && shape == SHAPES - 1 && h->seed % 16 == 0) dims[0] = 4097;
}

static void shuffle(struct random *r, int *order)
{
    for (int i = 0; i < SHAPES; i++) order[i] = i;
    for (int i = SHAPES - 1; i > 0; i--) {
        int j = (int)random_below(r, i + 1), k = order[i];
        order[i] = order[j], order[j] = k;
    }
}

static uint64_t bits_of(const graph *g, void **args)
{
    uint64_t all = 0;
    int i = 0;
    for (int l = 0; l < g->leaves; l++, i++) {
        const struct node *n = &g->node[g->leaf[l]];
        all = 31 * all + hash_of(args[i], random_arg_bytes(&n->type, n->stride));
    }
    for (int o = 0; o < g->outputs; o++, i++)
        all = 31 * all +
              hash_of(args[i], random_arg_bytes(&g->node[g->output[o].value].type, g->output[o].stride));
    return all;
}

static void *poisoned(struct history *h, size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 256) / 256 * 256);
    ck_assert(p != NULL);
    return memset(p, h->poison += 37, bytes);
}

static coda_status run(struct history *h, const coda_plan *p, void **args, const int64_t *dims)
{
    void *work = poisoned(h, coda_plan_workspace(p)), *prepared = poisoned(h, coda_plan_prepared(p));
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = dims, opt.dim_count = coda_plan_symbols(p);
    coda_status status = coda_plan_prepared_id(p) ? coda_prepare(p, args, prepared, work, NULL) : CODA_OK;
    if (!status) status = coda_run_shaped(p, args, prepared, work, NULL, &opt);
    if (coda_plan_prepared_id(p)) coda_prepare_forget(prepared, coda_plan_prepared(p));
    free(work);
    free(prepared);
    return status;
}

static void run_shape(struct history *h, const coda_plan *p, int shape)
{
    int64_t dims[MOST_SYMBOLS];
    struct text say = {0};
    shape_of(h, shape, dims);
    graph *g = graph_bind(h->graph, "test", dims);
    ck_assert_msg(g != NULL, "%s", coda_error());
    if (h->of_company || random_is_small(g)) {
        void **args = random_args(g, h->seed, false);
        for (int i = 0; i < h->graph->dims->symbols; i++) text_printf(&say, " %lld", (long long)dims[i]);
        coda_status status = run(h, p, args, dims);
        ck_assert_msg(!status, "seed %llu, dims%s: %s", (unsigned long long)h->seed, text_str(&say),
                      coda_error());
        uint64_t bits = bits_of(g, args);
        ck_assert_msg(!h->ran[shape] || h->bits[shape] == bits,
                      "seed %llu, dims%s: other bits in another order", (unsigned long long)h->seed,
                      text_str(&say));
        h->bits[shape] = bits, h->ran[shape] = true;
        random_args_free(g, args);
    }
    text_free(&say);
    graph_free(g);
}

static void run_in_any_order(struct history *h, struct random *r, const coda_compile_options *opt)
{
    int order[SHAPES];
    coda_plan *p = NULL;
    ck_assert_msg(!coda_compile(&p, h->graph, opt), "seed %llu: %s", (unsigned long long)h->seed,
                  coda_error());
    shuffle(r, order);
    for (int i = 0; i < SHAPES; i++) run_shape(h, p, order[i]);
    coda_plan_free(p);
}

/* Bit 0 of the loop: of which kind; bit 1: the flag. */
START_TEST(random_orders)
{
    uint64_t seed = random_seed() + 1000003 * (uint64_t)_i;
    int graphs = scale_is_full() ? FULL_GRAPHS / 4 : scaled(GRAPHS / 4);
    for (int i = 0; i < graphs; i++, seed++) {
        struct history h = {.seed = seed & ~SYMBOLIC_WIDE, .of_company = _i & 1};
        if (i % 4 == 3) h.seed |= SYMBOLIC_GRADIENTS;
        struct random r = {seed};
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU, opt.flags = _i & 2 ? CODA_BATCH_INVARIANT : 0;
        opt.fold = i % 2 ? CODA_FOLD_COPY : CODA_FOLD_NONE;
        opt.shapes = i % 3 ? 0 : 5;
        h.graph = h.of_company ? company_graph(h.seed) : symbolic_graph(h.seed, NULL);
        for (int plan = 0; plan < PLANS; plan++) run_in_any_order(&h, &r, &opt);
        graph_free(h.graph);
    }
}
END_TEST

/* Rules that compared rows with a number of their own: plans of few rows stored what those of many computed
 * again, in memory that the plan as a whole has not, and shapes of one side got plans of the other; what one
 * row reads of a weight was computed by the run, and prepared for others. */
static const char *const once_apart[] = {
    "dim %T = 1..4200\n%x = input f32[T,48]\n%s = input f32[48]\n%o = constant {to=f32,value=1}\n"
    "%a = add %s, %o\n%y = mul %x, %a\noutput %y = %y\n",
    "dim %T = 1..4200\n%x = input bf16[T,48]\n%s = input bf16[48]\n%o = constant {to=bf16,value=1}\n"
    "%w = weight bf16[48,48]\n%a = add %s, %o\n%y = mul %x, %a\n%m = matmul %x, %w\n%n = softmax %m\n"
    "output %y = %y\noutput %n = %n\n",
    "dim %T = 1..4200\n%x = input bf16[T,48]\n%r = input bf16[T,1]\n%a = mul %x, %x\n%b = silu %a\n"
    "%c = mul %b, %r\n%y = mul %x, %c\noutput %y = %y\n",
    "dim %T = 1..4200\n%x = input f32[T,24]\n%w = weight f32[1,1]\n%s = scale %w {alpha=1.5}\n%d = sub %s, "
    "%s\n"
    "%y = add %d, %x\noutput %y = %y\n",
};

START_TEST(found_orders)
{
    struct history h = {.seed = random_seed(), .of_company = true};
    struct random r = {h.seed};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU, opt.flags = _i % 2 ? CODA_BATCH_INVARIANT : 0, opt.fold = CODA_FOLD_COPY;
    ck_assert_msg(!coda_graph_parse(&h.graph, once_apart[_i / 2]), "%s", coda_error());
    for (int plan = 0; plan < 4; plan++) run_in_any_order(&h, &r, &opt);
    graph_free(h.graph);
}
END_TEST

/* Shapes that wanted more memory than the largest one. Where S is 0, nothing is put together: there are fewer
 * buffers, but these lie in another order. Where T is 64, rows that are as many by chance were joined, and a
 * buffer lived longer. */
static const char *const once_hungry[] = {
    "dim %B = 1..2\ndim %T = 0..24\ndim %S = 0..16 step 8\n"
    "%x = input f32[B*T,16]\n%w = weight f32[16,16]\n%a = matmul %x, %w {kn=1}\n"
    "%q = reshape %a {d0=B, d1=T, d2=16, rank=3}\n%p = input f32[B,S,16]\n%k = concat %p, %q {axis=1}\n"
    "%o = attention %q, %k, %k {scale=0.35, heads=2, kv_heads=2}\n"
    "%b = reshape %o {d0=B*T, d1=16, rank=2}\n%i = input i32[B,T]\n%e = weight f32[19,16]\n"
    "%c = embedding %e, %i\n%d = reshape %c {d0=B*T, d1=16, rank=2}\n%f = add %b, %d\n%m = sum %f\n"
    "%n = sub %f, %m\n%v = weight f32[16,16]\n%g = matmul %n, %v\n"
    "%h = reshape %g {d0=B, d1=T, d2=16, rank=3}\n%r = input f32[B,S,16]\n%l = concat %r, %h {axis=1}\n"
    "%u = attention %h, %l, %l {scale=0.35, heads=2, kv_heads=2}\noutput %y = %u\n",
    "dim %T = 1..130\n%x = input f32[T,64]\n%i = input i32[T]\n"
    "%l = cross_entropy %x, %i {ignore=-100, reduction=1}\n%a = input f32[8,64]\n%b = input f32[1,64]\n"
    "%c = input f32[1,64]\n%d = concat %a, %b, %c\n%e = add %b, %b\n%f = add %c, %c\n"
    "%g = reshape %d {d0=640, rank=1}\n%h = silu %g\n"
    "output %o = %l\noutput %p = %e\noutput %q = %f\noutput %r = %h\n",
};

/* The next values of all symbols; false: these were the last ones. */
static bool next_shape(const struct dims *t, int64_t *dims)
{
    for (int i = 0; i < t->symbols; i++) {
        dims[i] += t->symbol[i].multiple;
        if (dims[i] <= t->symbol[i].most) return true;
        dims[i] = t->symbol[i].least;
    }
    return false;
}

/* For every shape; with each fold, invariant or not. */
START_TEST(workspace_is_enough)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    int64_t dims[MOST_SYMBOLS];
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_CPU, opt.flags = _i & 1 ? CODA_BATCH_INVARIANT : 0;
    opt.fold = _i & 2 ? CODA_FOLD_COPY : CODA_FOLD_NONE;
    ck_assert_msg(!coda_graph_parse(&g, once_hungry[_i / 4]), "%s", coda_error());
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    for (int i = 0; i < g->dims->symbols; i++) dims[i] = g->dims->symbol[i].least;
    do {
        size_t bytes = coda_plan_workspace_for(p, dims); /* SIZE_MAX if it fails */
        ck_assert_msg(bytes <= coda_plan_workspace(p), "%s", coda_error());
    } while (next_shape(g->dims, dims));
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(history, SECONDS(3000), EACH(random_orders, 4), EACH(found_orders, 2 * ARRAY_SIZE(once_apart)),
      EACH(workspace_is_enough, 4 * ARRAY_SIZE(once_hungry)));
