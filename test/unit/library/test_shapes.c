/* test_shapes.c -- plans of graphs with symbols: each shape as its own exact plan, bit for bit where both
 * have the same tiles. */
#include "util_run.h"
#include "util_scale.h"
#include "util_symbolic.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static coda_plan *compiled(const coda_graph *g, coda_fold fold, unsigned flags, int shapes)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags;
    opt.fold = fold;
    opt.shapes = shapes;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    return p;
}

static coda_status run_shape(const coda_plan *p, void **args, void *prepared, void *work, const int64_t *dims)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = dims;
    opt.dim_count = coda_plan_symbols(p);
    return coda_run_shaped(p, args, prepared, work, NULL, &opt);
}

/* ---- One plan for all shapes, and one for each ---- */

static void expect_equal_answers(const coda_plan *p, const coda_plan *exact, const int64_t *dims)
{
    for (int i = 0; i < coda_plan_args(exact); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT, b = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_plan_arg_for(p, i, dims, &a), CODA_OK);
        ck_assert_int_eq(coda_plan_arg(exact, i, &b), CODA_OK);
        ck_assert_str_eq(a.name, b.name);
        ck_assert(coda_plan_find(p, a.name) == i && coda_plan_find(exact, a.name) == i);
        a.name = b.name;
        a.unread = b.unread; /* of plans without symbols alone */
        ck_assert(!memcmp(&a, &b, sizeof a));
    }
    ck_assert_uint_eq(coda_plan_prepared_id(p), coda_plan_prepared_id(exact));
    ck_assert_uint_le(coda_plan_workspace_for(p, dims), coda_plan_workspace(p));
}

/* Products of three symbols make some graphs larger than this test wants. */
static bool is_large(const coda_graph *g)
{
    int64_t elements = 0;
    for (int i = 0; i < coda_graph_args(g); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        int64_t n = 1;
        ck_assert_int_eq(coda_graph_arg(g, i, &a), CODA_OK);
        for (int d = 0; d < a.rank; d++) n *= a.dims[d];
        elements += n;
    }
    return elements > (SANITIZED ? 1 << 18 : 1 << 20);
}

/* What the random graphs of a run were compiled as, and how their shapes compared. */
struct compared {
    coda_fold fold;
    unsigned flags;
    int shapes, rounded;
};

/* A product that has another tile adds up its partial sums in another order: then `p` is at most twice as far
 * from fp64 as the exact plan, whose results b has. With CODA_BATCH_INVARIANT the bits are the same. */
static void expect_rounding(const struct compared *c, struct run_buffers *b, const coda_plan *p,
                            uint64_t seed)
{
    char differs[300];
    snprintf(differs, sizeof differs, "%s", coda_error());
    ck_assert_msg(!(c->flags & CODA_BATCH_INVARIANT), "seed %llu, shape %lld %lld %lld: %s",
                  (unsigned long long)seed, (long long)b->dims[0], (long long)b->dims[1],
                  (long long)b->dims[2], differs);
    void **want = run_reference(b->g, seed + 5);
    ck_assert_msg(want != NULL, "%s", coda_error());
    double exact = run_worst_error(b->g, b->host, want);
    ck_assert_msg(run_plan(b, p), "%s", coda_error());
    double own = run_worst_error(b->g, b->host, want);
    ck_assert_msg(own <= 2 * exact + 1e-6, "seed %llu: off by %g, the exact plan by %g: %s",
                  (unsigned long long)seed, own, exact, differs);
    random_args_free(b->g, want);
}

/* Weights are prepared by the exact plan and by the plan of all shapes in turn. */
static void compare_shape(const coda_graph *g, const coda_plan *p, struct compared *c, uint64_t seed,
                          int shape)
{
    int64_t dims[SYMBOLIC_DIMS];
    coda_graph *bound;
    struct run_buffers b;
    symbolic_shape(seed, shape, dims);
    ck_assert_msg(coda_graph_bind(&bound, g, dims, SYMBOLIC_DIMS) == CODA_OK, "%s", coda_error());
    if (is_large(bound)) return coda_graph_free(bound);
    coda_plan *exact = compiled(bound, c->fold, c->flags, 0);
    void **args = random_args(bound, seed + 5, false);
    ck_assert_msg(run_upload(&b, bound, exact, args, false), "%s", coda_error());
    b.dims = dims;
    ck_assert_msg(run_prepare(&b, shape % 2 ? p : exact), "%s", coda_error());
    ck_assert_msg(run_plan(&b, exact), "%s", coda_error());
    c->shapes++;
    if (!run_same(&b, p) || !run_same(&b, p)) {
        c->rounded++;
        expect_rounding(c, &b, p, seed);
    }
    expect_equal_answers(p, exact, dims);
    run_release(&b);
    random_args_free(bound, args);
    coda_plan_free(exact);
    coda_graph_free(bound);
}

START_TEST(shapes_are_exact_plans)
{
    uint64_t seed = random_seed();
    struct compared c = {.shapes = 0};
    for (int i = 0; i < scaled(24); i++, seed++) {
        c.fold = i % 2 ? CODA_FOLD_COPY : CODA_FOLD_NONE;
        c.flags = i / 2 % 2 ? CODA_BATCH_INVARIANT : 0;
        uint64_t of = i / 4 % 2 ? seed | SYMBOLIC_GRADIENTS : seed;
        graph *g = symbolic_graph(of, NULL);
        coda_plan *p = compiled(g, c.fold, c.flags, 1 + (int)(seed % 7));
        for (int shape = 0; shape < 8; shape++) compare_shape(g, p, &c, of, shape);
        for (int shape = 0; shape < 3; shape++) compare_shape(g, p, &c, of, shape);
        coda_plan_free(p);
        graph_free(g);
    }
    printf("%d of %d shapes by another tile, whose sums are rounded otherwise\n", c.rounded, c.shapes);
    if (c.shapes >= 60) ck_assert_int_le(c.rounded * 10, c.shapes); /* of one graph it may be all */
}
END_TEST

/* ---- A small plan: y = relu x, x [T, 4] ---- */

static const char small[] = "dim %B = 1..4\ndim %T = 0..64 step 8\n%x = input f32[B*T,4]\n%1 = relu %x\n"
                            "output %y = %1\n";

static coda_plan *small_plan(int shapes, coda_policy policy)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    opt.shapes = shapes;
    opt.policy = policy;
    ck_assert_int_eq(coda_graph_parse(&g, small), CODA_OK);
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g); /* the plan has its own */
    return p;
}

static bool run_small(const coda_plan *p, int64_t b, int64_t t)
{
    int64_t dims[] = {b, t};
    _Alignas(16) float x[4 * 64 * 4], y[4 * 64 * 4 + 1];
    for (int i = 0; i < 4 * 64 * 4; i++) x[i] = (float)(i % 7 - 3), y[i] = -1;
    void *args[] = {x, y};
    y[b * t * 4] = -1;
    if (run_shape(p, args, NULL, NULL, dims)) return false;
    for (int i = 0; i < b * t * 4; i++)
        if (y[i] != (x[i] > 0 ? x[i] : 0)) return false;
    return y[b * t * 4] == -1;
}

static coda_shape_stats stats_of(const coda_plan *p)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    ck_assert_int_eq(coda_shape_stats_get(p, &s), CODA_OK);
    return s;
}

START_TEST(the_last_used_stay)
{
    coda_plan *p = small_plan(3, CODA_POLICY_WAIT);
    for (int t = 0; t <= 64; t += 8) ck_assert_msg(run_small(p, 2, t), "%s", coda_error());
    coda_shape_stats s = stats_of(p);
    ck_assert(s.runs == 9 && s.planned == 9 && s.dropped == 6 && s.kept == 3);
    ck_assert(run_small(p, 2, 48)); /* the oldest of the three: now it is the newest */
    ck_assert(run_small(p, 1, 8));  /* takes the place of 56 */
    ck_assert_int_eq(coda_plan_ready(p, (int64_t[]){2, 48}), 1);
    ck_assert_int_eq(coda_plan_ready(p, (int64_t[]){2, 56}), 0);
    ck_assert_int_eq(coda_plan_ready(p, (int64_t[]){2, 64}), 1);
    s = stats_of(p);
    ck_assert(s.runs == 11 && s.planned == 10 && s.dropped == 7 && s.kept == 3);
    coda_plan_free(p);
}
END_TEST

static int asked;
static int twice(void *context, int done, int all)
{
    ck_assert(context == &asked && all == 3 && done == ++asked);
    return done == 2;
}

START_TEST(warm)
{
    coda_plan *p = small_plan(0, CODA_POLICY_ERROR);
    coda_warm_options w = CODA_WARM_OPTIONS_INIT;
    w.dims = (int64_t[]){1, 8, 4, 64, 3, 0};
    w.bindings = 3;
    w.progress = twice;
    w.context = &asked;
    ck_assert(!coda_plan_ready(p, (int64_t[]){4, 64}));
    ck_assert_int_eq(coda_warm(p, &w), CODA_OK);
    ck_assert_int_eq(asked, 2);
    ck_assert(run_small(p, 1, 8) && run_small(p, 4, 64) && !coda_plan_ready(p, (int64_t[]){3, 0}));
    w.progress = NULL;
    ck_assert_int_eq(coda_warm(p, &w), CODA_OK);
    ck_assert(run_small(p, 3, 0));
    coda_shape_stats s = stats_of(p);
    ck_assert(s.runs == 3 && s.planned == 3 && s.kept == 3);
    coda_plan_free(p);
}
END_TEST

START_TEST(mistakes)
{
    coda_plan *p = small_plan(0, CODA_POLICY_WAIT);
    coda_run_options run = CODA_RUN_OPTIONS_INIT;
    coda_warm_options w = CODA_WARM_OPTIONS_INIT;
    coda_symbol_info symbol = CODA_SYMBOL_INFO_INIT;
    coda_arg_info arg = CODA_ARG_INFO_INIT;
    int64_t dims[] = {1, 8}, far[] = {1, 72}, odd[] = {1, 12};
    ck_assert_int_eq(coda_run(p, NULL, NULL, NULL, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "run: the plan has symbols (B, T): coda_run_shaped gives them values");
    ck_assert_int_eq(coda_run_shaped(p, NULL, NULL, NULL, NULL, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "run: the plan has 2 symbols (B, T); dim_count is 0");
    run.dim_count = 2;
    ck_assert_int_eq(coda_run_shaped(p, NULL, NULL, NULL, NULL, &run), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "run: dims is NULL; the plan has 2 symbols (B, T)");
    run.dims = far;
    ck_assert_int_eq(coda_run_shaped(p, NULL, NULL, NULL, NULL, &run), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "run: T is 72; must be 0..64");
    run.dims = dims;
    ck_assert_int_eq(coda_run_shaped(p, NULL, NULL, NULL, NULL, &run), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "run: args is NULL; 2 pointers are needed");
    ck_assert_int_eq(coda_plan_ready(p, odd), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_ready: T is 12; must be a multiple of 8");
    ck_assert(coda_plan_workspace_for(p, odd) == SIZE_MAX && coda_plan_workspace_for(NULL, dims) == SIZE_MAX);
    w.bindings = 1;
    ck_assert_int_eq(coda_warm(p, &w), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "warm: dims is NULL; bindings is 1");
    w.dims = far;
    ck_assert_int_eq(coda_warm(p, &w), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "warm: T is 72; must be 0..64");
    w.deadline_ms = -1;
    ck_assert_int_eq(coda_warm(p, &w), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "warm: deadline_ms is -1; must be >= 0");
    ck_assert_int_eq(coda_plan_symbols(p), 2);
    ck_assert_int_eq(coda_plan_symbol(p, 1, &symbol), CODA_OK);
    ck_assert(!strcmp(symbol.name, "T") && symbol.most == 64 && symbol.multiple == 8);
    ck_assert_int_eq(coda_plan_symbol(p, 2, &symbol), CODA_E_INVALID);
    ck_assert_int_eq(coda_plan_arg_for(p, 2, dims, &arg), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_arg_for: 2 is none of 0..1");
    ck_assert_int_eq(coda_plan_arg(p, 0, &arg), CODA_OK);
    ck_assert(arg.dims[0] == 4 * 64);
    ck_assert(coda_plan_find(p, "x") == 0 && coda_plan_find(p, "y") == 1);
    ck_assert_int_eq(coda_plan_find(p, "T"), CODA_E_INVALID);
    ck_assert_str_eq(
        coda_error(),
        "plan_find: none of the plan's 2 arguments is called \"T\"; coda_plan_arg has their names");
    ck_assert_int_eq(coda_plan_find(p, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_find: name is NULL");
    ck_assert_int_eq(coda_plan_find(NULL, "x"), CODA_E_INVALID);
    ck_assert(stats_of(p).planned == 1 && stats_of(p).runs == 1);
    coda_plan_free(p);
}
END_TEST

START_TEST(without_symbols)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_run_options run = CODA_RUN_OPTIONS_INIT;
    coda_warm_options w = CODA_WARM_OPTIONS_INIT;
    coda_symbol_info symbol = CODA_SYMBOL_INFO_INIT;
    _Alignas(16) float x[8] = {-1, 2, -3, 4}, y[8] = {9, 9, 9, 9};
    void *args[] = {x, y};
    coda_graph *g;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_int_eq(coda_graph_parse(&g, "%x = input f32[4]\n%1 = relu %x\noutput %y = %1\n"), CODA_OK);
    opt.shapes = -1;
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "compile: shapes is -1; must be >= 0");
    opt.shapes = 0;
    opt.policy = (coda_policy)7;
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "compile: policy 7 is none of 0..3");
    opt.policy = CODA_POLICY_WAIT;
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
    ck_assert_int_eq(coda_run_shaped(p, args, NULL, NULL, NULL, NULL), CODA_OK);
    ck_assert(y[0] == 0 && y[1] == 2 && y[2] == 0 && y[3] == 4);
    run.dim_count = 1;
    ck_assert_int_eq(coda_run_shaped(p, args, NULL, NULL, NULL, &run), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "run: the plan has no symbols; dim_count is 1");
    ck_assert(coda_plan_symbols(p) == 0 && coda_plan_ready(p, NULL) == 1 && stats_of(p).runs == 0);
    ck_assert(coda_plan_symbol(p, 0, &symbol) == CODA_E_INVALID && coda_warm(p, &w) == CODA_OK);
    ck_assert_uint_eq(coda_plan_workspace_for(p, NULL), coda_plan_workspace(p));
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Threads that want the same shapes at once, of which few are kept ---- */

enum { THREADS = 6 };

struct walker {
    const coda_plan *p;
    uint64_t seed;
    int runs, good;
};

static void *walk(void *context)
{
    struct walker *w = context;
    struct random r = {w->seed};
    for (int i = 0; i < w->runs; i++)
        w->good += run_small(w->p, 1 + random_below(&r, 3), 8 * random_below(&r, 4));
    return NULL;
}

START_TEST(threads)
{
    coda_plan *p = small_plan(4, CODA_POLICY_WAIT);
    pthread_t thread[THREADS];
    struct walker w[THREADS];
    int runs = scaled(150);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct walker){p, 40 + (uint64_t)i / 2, runs, 0};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, walk, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        ck_assert_int_eq(w[i].good, runs);
    }
    coda_shape_stats s = stats_of(p);
    ck_assert(s.runs == THREADS * (int64_t)runs && s.kept == 4 && s.planned - s.dropped == 4);
    coda_plan_free(p);
}
END_TEST

TESTS(shapes, ONE(shapes_are_exact_plans), ONE(the_last_used_stay), ONE(warm), ONE(mistakes),
      ONE(without_symbols), ONE(threads));
