/*
 * test_callbacks.c -- every function that a caller gives the library calls every call of it that could wait
 * for what is under way: each answers at once, or with one line. A call that waits for itself runs into the
 * limit of time of a test.
 */
#include "base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { COLUMNS = 16, MOST = 64 };

static coda_plan *plan;   /* with a symbol; of the device that can do most here */
static coda_graph *graph; /* of plan */
static coda_plan *small;  /* without one, on the CPU device */
static int called;

/* A cache of its own: that of the process may have thousands of entries, which each test would list. */
static void begin(void)
{
    folder_make();
    setenv("CODA_CACHE_DIR", folder_under("own"), 1);
}
static void end(void)
{
    unsetenv("CODA_CACHE_DIR");
    folder_remove();
}

static coda_graph *make_graph(bool symbol)
{
    coda_graph *g = coda_graph_new();
    int64_t t = symbol ? coda_symbol(g, "T", 1, MOST, 1) : 3;
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){t, COLUMNS});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){COLUMNS, COLUMNS});
    coda_output(g, "y", coda_relu(g, coda_matmul(g, x, w)));
    return g;
}

static coda_plan *compile(const coda_graph *g, coda_device device, unsigned flags)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    o.device = device, o.flags = flags, o.arch = device == CODA_DEVICE_CPU ? NULL : "sm_90a";
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s", coda_error());
    return p;
}

static _Alignas(64) float data[3][MOST * COLUMNS];

static coda_status run_of(coda_plan *p, bool shaped)
{
    static _Alignas(256) char workspace[1 << 16];
    coda_run_options o = CODA_RUN_OPTIONS_INIT;
    o.dims = (int64_t[]){5}, o.dim_count = shaped;
    float *y = malloc(sizeof data[2]);
    coda_status status = coda_run_shaped(p, (void *[]){data[0], data[1], y}, NULL, workspace, NULL, &o);
    free(y);
    return status;
}

/* ---- What they call ---- */

static int count_kernel_calls;
static int stop(void *context, int done, int all) { return (void)context, (void)done, (void)all, 1; }
static int one(void *context, const coda_cache_entry *e) { return (void)context, (void)e, 0; }

static coda_status warm_some(int64_t dim)
{
    coda_warm_options o = CODA_WARM_OPTIONS_INIT;
    o.dims = &dim, o.bindings = 1;
    return coda_warm(plan, &o);
}
static coda_status do_warm(void) { return warm_some(17); }
static coda_status do_warm_all(void)
{
    coda_warm_options o = CODA_WARM_OPTIONS_INIT;
    o.bindings = CODA_WARM_ALL, o.progress = stop;
    return coda_warm(plan, &o);
}
static coda_status do_seal(void) { return coda_plan_seal(plan); }
static coda_status do_ready(void)
{
    return coda_plan_ready(plan, (int64_t[]){9}) < 0 ? CODA_E_INVALID : CODA_OK;
}
static coda_status do_buckets(void)
{
    return coda_plan_buckets(plan, 0, 10, NULL, 0) > 0 ? CODA_OK : CODA_E_INVALID;
}
static coda_status do_stats(void)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    return coda_shape_stats_get(plan, &s);
}
static coda_status do_workspace(void)
{
    return coda_plan_workspace_for(plan, (int64_t[]){11}) == SIZE_MAX ? CODA_E_INVALID : CODA_OK;
}
static coda_status do_print(void) { return coda_plan_print(plan, CODA_TEXT_SHAPES, NULL, 0) < 0; }
static coda_status do_run(void) { return run_of(plan, true); }
static coda_status do_run_small(void) { return run_of(small, false); }
static coda_status do_evaluate(void)
{
    coda_graph *g = make_graph(false);
    double *y = malloc(8 * 3 * COLUMNS);
    coda_status status = coda_evaluate(g, (void *[]){data[0], data[1], y});
    free(y);
    coda_graph_free(g);
    return status;
}
static coda_status do_compile(void)
{
    coda_plan_free(compile(graph, CODA_DEVICE_CPU, 0));
    coda_plan_free(compile(graph, CODA_DEVICE_NONE, CODA_PLAN_ONLY));
    return CODA_OK;
}
static coda_status do_list(void) { return coda_cache_list(NULL, one, NULL); }
static coda_status do_cache_stats(void)
{
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    return coda_cache_stats_get(NULL, &s);
}
static coda_status do_prune(void)
{
    coda_cache_prune_options o = CODA_CACHE_PRUNE_OPTIONS_INIT;
    o.dry_run = 1;
    return coda_cache_prune(NULL, &o, NULL);
}
static coda_status do_free(void) { return coda_plan_free(plan), plan = NULL, CODA_OK; } /* last */

static const struct act {
    const char *name;
    coda_status (*act)(void);
    bool refused; /* may be, with a line */
} acts[] = {
    {"coda_warm", do_warm, false},
    {"coda_warm of all", do_warm_all, false},
    {"coda_plan_ready", do_ready, false},
    {"coda_plan_buckets", do_buckets, false},
    {"coda_shape_stats_get", do_stats, false},
    {"coda_plan_workspace_for", do_workspace, false},
    {"coda_plan_print", do_print, false},
    {"coda_run_shaped", do_run, true}, /* where the plan is for no device */
    {"coda_run", do_run_small, false},
    {"coda_evaluate", do_evaluate, false},
    {"coda_compile", do_compile, false},
    {"coda_cache_list", do_list, true}, /* there may be no directory */
    {"coda_cache_stats_get", do_cache_stats, false},
    {"coda_cache_prune", do_prune, true},
    {"coda_plan_seal", do_seal, false},
    {"coda_plan_free", do_free, false},
};

static const struct act *now;

/* Once, by the first function that is called, so that what it calls may call functions, too. */
static void act(void)
{
    if (called++) return;
    coda_status status = now->act();
    ck_assert_msg(!status || now->refused, "%s: %d, %s", now->name, (int)status, coda_error());
    ck_assert_msg(!status || *coda_error(), "%s says nothing", now->name);
}

/* ---- Who calls ---- */

static int progress(void *context, int done, int all)
{
    (void)context, (void)done, (void)all;
    act();
    return 0;
}
static void kernel(void *context, const coda_kernel_info *k)
{
    (void)context;
    ck_assert_ptr_nonnull(k->name);
    count_kernel_calls++;
    act();
}
static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static double reference(const double *in, const double *params)
{
    (void)params;
    pthread_mutex_lock(&once); /* from many threads */
    bool first = !called;
    called += !first;
    if (first) act();
    pthread_mutex_unlock(&once);
    return in[0];
}
static int visit(void *context, const coda_cache_entry *e) { return (void)context, (void)e, act(), 1; }

static coda_status by_progress(void)
{
    coda_warm_options o = CODA_WARM_OPTIONS_INIT;
    o.dims = (int64_t[]){5, 33, 64}, o.bindings = 3, o.progress = progress;
    return coda_warm(plan, &o);
}
static coda_status by_progress_of_all(void)
{
    coda_warm_options o = CODA_WARM_OPTIONS_INIT;
    o.bindings = CODA_WARM_ALL, o.progress = progress;
    return coda_warm(plan, &o);
}
static coda_status by_kernel(void)
{
    coda_warm_options o = CODA_WARM_OPTIONS_INIT;
    o.bindings = CODA_WARM_ALL, o.kernel = kernel;
    return coda_warm(plan, &o);
}
static coda_graph *mapped(void)
{
    coda_graph *g = coda_graph_new();
    coda_map_def d = CODA_MAP_DEF_INIT;
    d.name = "same", d.source = "DEV static float apply(float x) { return x; }", d.reference = reference;
    ck_assert_int_eq(coda_define_map(g, &d), CODA_OK);
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){MOST, COLUMNS});
    coda_output(g, "y", coda_apply(g, "same", &x, 1, NULL));
    return g;
}
static coda_status by_run(void)
{
    coda_graph *g = mapped();
    coda_plan *p = compile(g, CODA_DEVICE_CPU, 0);
    coda_status status = coda_run(p, (void *[]){data[0], data[2]}, NULL, NULL, NULL);
    coda_plan_free(p);
    coda_graph_free(g);
    return status;
}
static coda_status by_evaluate(void)
{
    coda_graph *g = mapped();
    double *y = malloc(8 * MOST * COLUMNS);
    coda_status status = coda_evaluate(g, (void *[]){data[0], y});
    free(y);
    coda_graph_free(g);
    return status;
}
static coda_status by_list(void) { return coda_cache_list(NULL, visit, NULL), CODA_OK; }

static const struct caller {
    const char *name;
    coda_status (*call)(void);
    bool may_be_silent; /* it has nothing to show without a GPU */
} callers[] = {
    {"progress", by_progress, false},
    {"progress of all", by_progress_of_all, false},
    {"kernel", by_kernel, false},
    {"a map in a run", by_run, false},
    {"a map in coda_evaluate", by_evaluate, false},
    {"coda_cache_list", by_list, true},
};

/* Each with each, for a plan that runs and for one that has kernels. */
START_TEST(each_calls_each)
{
    const struct caller *by = &callers[_i % ARRAY_SIZE(callers)];
    now = &acts[_i / ARRAY_SIZE(callers)];
    for (int runs = 0; runs < 2; runs++) {
        graph = make_graph(true);
        coda_graph *g = make_graph(false);
        plan = compile(graph, runs ? CODA_DEVICE_CPU : CODA_DEVICE_NONE, runs ? 0 : CODA_PLAN_ONLY);
        small = compile(g, CODA_DEVICE_CPU, 0);
        called = 0;
        coda_status status = by->call();
        bool kernels = !runs || by->call != by_kernel;
        if (by->call == by_progress_of_all && runs) kernels = false; /* the CPU device has none */
        ck_assert_msg(called || by->may_be_silent || !kernels, "%s was not called", by->name);
        ck_assert_msg(!status || now->act == do_seal, "%s after %s: %d %s", by->name, now->name, (int)status,
                      coda_error());
        coda_plan_free(plan);
        coda_plan_free(small);
        coda_graph_free(graph);
        coda_graph_free(g);
    }
}
END_TEST

/* Two that warm all at once, and both seal: neither waits for the other. */
static pthread_barrier_t both;
static int seal_together(void *context, int done, int all)
{
    (void)context, (void)done, (void)all;
    pthread_barrier_wait(&both);
    return coda_plan_seal(plan);
}
static void *warm_and_seal(void *context)
{
    coda_warm_options o = CODA_WARM_OPTIONS_INIT;
    (void)context;
    o.bindings = CODA_WARM_ALL, o.progress = seal_together;
    ck_assert_int_eq(coda_warm(plan, &o), CODA_OK); /* nothing was left to do */
    return NULL;
}
START_TEST(two_seal)
{
    pthread_t thread[2];
    graph = make_graph(true);
    plan = compile(graph, CODA_DEVICE_NONE, CODA_PLAN_ONLY);
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, warm_and_seal, NULL), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    coda_plan_free(plan);
    coda_graph_free(graph);
}
END_TEST

TESTS(callbacks, SECONDS(100), AROUND(begin, end),
      EACH(each_calls_each, ARRAY_SIZE(acts) * ARRAY_SIZE(callers)), ONE(two_seal));
