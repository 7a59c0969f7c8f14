/* test_profile.c -- what coda_plan_profile says of plans of the CPU device: which launches, what they move,
 * the floors; and what it leaves behind and refuses. No time is compared with anything but another time of
 * the same profile. */
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char block[] =
    "dim %T = 1..96\n"
    "%x = input bf16[T,128]\n%g = weight bf16[128]\n"
    "%up = weight bf16[256,128]\n%down = weight bf16[128,256]\n"
    "%n = rms_norm %x, %g {eps=0x1p-20} @layers.3.norm\n"
    "%u = matmul %n, %up @layers.3.mlp\n%s = silu %u @layers.3.mlp\n"
    "%d = matmul %s, %down @layers.3.mlp\n%y = add %d, %x @layers.3\noutput %y = %y\n";

static graph *g;
static coda_plan *plan;
static void **args, *workspace;

static coda_plan *compiled(const graph *of, coda_device device, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = device, opt.flags = flags;
    ck_assert_msg(!coda_compile(&p, of, &opt), "%s", coda_error());
    return p;
}

static void set_up(void)
{
    static const int64_t rows = 64;
    coda_graph *symbolic = NULL;
    ck_assert_msg(!coda_graph_parse(&symbolic, block), "%s", coda_error());
    ck_assert_msg(!coda_graph_bind(&g, symbolic, &rows, 1), "%s", coda_error());
    coda_graph_free(symbolic);
    plan = compiled(g, CODA_DEVICE_CPU, 0);
    args = random_args(g, 1, false);
    size_t bytes = coda_plan_workspace(plan) / 256 * 256 + 256;
    workspace = aligned_alloc(256, bytes);
    memset(workspace, 0xff, bytes);
}

static void tear_down(void)
{
    random_args_free(g, args);
    coda_plan_free(plan);
    coda_graph_free(g);
    free(workspace);
}

/* Rates that nobody has to measure. */
static coda_profile_options given(void)
{
    coda_profile_options o = CODA_PROFILE_OPTIONS_INIT;
    o.rounds = 3, o.copy_rate = 1e9, o.product_rate = 1e12;
    return o;
}

static coda_profile *profiled(const coda_profile_options *o, coda_profile_total *all)
{
    coda_profile *f;
    ck_assert_msg(!coda_plan_profile(&f, plan, args, NULL, workspace, NULL, o), "%s", coda_error());
    ck_assert_msg(!coda_profile_total_get(f, all), "%s", coda_error());
    return f;
}

static coda_profile_launch launch_of(const coda_profile *f, int i)
{
    coda_profile_launch l = CODA_PROFILE_LAUNCH_INIT;
    ck_assert_msg(!coda_profile_launch_get(f, i, &l), "%s", coda_error());
    return l;
}

START_TEST(says_what_the_plan_says)
{
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    int64_t bytes = 0;
    double flops = 0;
    coda_profile *f = profiled(&o, &all);
    coda_plan_stats_get(plan, &stats);
    ck_assert_int_eq(all.launches, stats.launches);
    for (int i = 0; i < all.launches; i++) {
        coda_profile_launch l = launch_of(f, i);
        bytes += l.bytes, flops += l.flops;
        ck_assert_int_eq(l.program, i);
    }
    ck_assert_int_eq(bytes, stats.bytes);
    ck_assert_int_eq(all.bytes, stats.bytes);
    ck_assert(flops == stats.flops && all.flops == stats.flops);
    ck_assert_int_eq(strncmp(all.device, "cpu v", 5), 0);
    coda_profile_free(f);
}
END_TEST

/* 2 M N K, and each tensor once, by hand; names as a person would look for them. */
START_TEST(names_and_counts_a_product)
{
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    coda_profile *f = profiled(&o, &all);
    coda_profile_launch l = launch_of(f, all.launches - 1);
    ck_assert_str_eq(l.kernel, "gemm");
    ck_assert_str_eq(l.work, "gemm batch=1 m=64 n=128 k=256: add");
    ck_assert_str_eq(l.makes, "%y");
    ck_assert_msg(strstr(l.scope, "layers.3.mlp") == l.scope, "%s", l.scope);
    ck_assert_str_eq(l.tile, "");
    ck_assert(l.flops == 2.0 * 64 * 128 * 256);
    ck_assert_int_eq(l.bytes, 2 * (64 * 256 + 128 * 256 + 64 * 128 + 64 * 128));
    coda_profile_free(f);
}
END_TEST

/* By rates of the caller's: first bytes decide all floors, then FLOPs those that have some. */
START_TEST(a_floor_is_the_larger_of_two_times)
{
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    double sum = 0;
    int by_flops = 0;
    if (_i) o.copy_rate = 1e15, o.product_rate = 1e6;
    coda_profile *f = profiled(&o, &all);
    for (int i = 0; i < all.launches; i++) {
        coda_profile_launch l = launch_of(f, i);
        double moved = 1e3 * (double)l.bytes / o.copy_rate, multiplied = 1e3 * l.flops / o.product_rate;
        double want = multiplied > moved ? multiplied : moved;
        ck_assert_double_eq_tol(l.floor_ms, want, 1e-12 * want);
        ck_assert(l.product_rate == (l.flops ? o.product_rate : 0));
        sum += l.floor_ms;
        by_flops += multiplied > moved;
    }
    ck_assert_int_eq(by_flops, _i ? 2 : 0);
    ck_assert_double_eq_tol(all.floor_ms, sum, 1e-12 * sum);
    ck_assert(all.copy_rate == o.copy_rate);
    coda_profile_free(f);
}
END_TEST

START_TEST(times_hang_together)
{
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    double sum = 0;
    if (_i) o.rounds = 1;
    coda_profile *f = profiled(&o, &all);
    ck_assert_int_eq(all.rounds, o.rounds);
    for (int i = 0; i < all.launches; i++) {
        coda_profile_launch l = launch_of(f, i);
        ck_assert(l.least_ms > 0 && l.least_ms <= l.ms);
        sum += l.ms;
    }
    ck_assert_double_eq_tol(all.sum_ms, sum, 1e-12 * sum);
    ck_assert(all.run_least_ms > 0 && all.run_least_ms <= all.run_ms);
    coda_profile_free(f);
}
END_TEST

/* Nothing is given: both rates are there, one of products for both, which have one dtype. */
START_TEST(measures_what_it_is_not_given)
{
    if (!scale_takes_one_in(SANITIZED ? 3 : 1, 0)) return; /* the rates of a machine that is slow */
    coda_profile_options o = CODA_PROFILE_OPTIONS_INIT;
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    o.rounds = 1;
    coda_profile *f = profiled(&o, &all);
    coda_profile_launch first = {.product_rate = 0};
    ck_assert(all.copy_rate > 1e6 && isfinite(all.copy_rate));
    for (int i = 0; i < all.launches; i++) {
        coda_profile_launch l = launch_of(f, i);
        if (!l.flops) continue;
        if (!first.product_rate) first = l;
        ck_assert(l.product_rate > 1e6 && isfinite(l.product_rate));
        ck_assert(l.product_rate == first.product_rate);
    }
    ck_assert(first.product_rate > 0 && all.floor_ms > 0);
    coda_profile_free(f);
}
END_TEST

/* What it leaves is what a run leaves, and it outlives the plan. */
START_TEST(leaves_what_runs_leave)
{
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    coda_profile_launch l;
    int y = coda_plan_find(plan, "y"), n = 64 * 128 * 2;
    char *want = malloc((size_t)n);
    ck_assert_msg(!coda_run(plan, args, NULL, workspace, NULL), "%s", coda_error());
    memcpy(want, args[y], (size_t)n);
    memset(args[y], 0xff, (size_t)n);
    coda_profile *f = profiled(&o, &all);
    ck_assert_mem_eq(args[y], want, n);
    coda_plan_free(plan);
    plan = NULL;
    l = launch_of(f, 0);
    ck_assert_int_gt((int)strlen(l.work), 0);
    coda_profile_free(f);
    free(want);
}
END_TEST

/* A sum has been added to by each run: the first one, two in each round of warm-up, and two in each round. */
START_TEST(adds_up_what_runs_add_up)
{
    float x = 1, w = 1, y = 0;
    void *own[] = {&x, &w, &y};
    coda_profile_options o = given();
    coda_profile *f;
    graph *sum =
        graph_parse("%x = input f32[1,1]\n%w = weight f32[1,1]\n%p = matmul %x, %w\noutput %y += %p\n");
    ck_assert_msg(sum != NULL, "%s", coda_error());
    coda_plan *p = compiled(sum, CODA_DEVICE_CPU, 0);
    size_t bytes = coda_plan_workspace(p) / 256 * 256 + 256;
    void *memory = aligned_alloc(256, bytes);
    _Alignas(16) float tensor[3][4] = {{1}, {1}, {0}};
    for (int i = 0; i < 3; i++) own[i] = tensor[i];
    ck_assert_msg(!coda_plan_profile(&f, p, own, NULL, memory, NULL, &o), "%s", coda_error());
    ck_assert_msg(tensor[2][0] == 1 + 2 * (2 + 3), "%g", (double)tensor[2][0]);
    coda_profile_free(f);
    free(memory);
    coda_plan_free(p);
    graph_free(sum);
}
END_TEST

/* ---- Symbols ---- */

START_TEST(a_shape_of_a_plan_with_symbols)
{
    const int64_t rows = 64;
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT, one = CODA_PROFILE_TOTAL_INIT;
    graph *symbolic = graph_parse(block);
    coda_plan *p = compiled(symbolic, CODA_DEVICE_CPU, 0);
    coda_profile *f = NULL;
    void *memory = aligned_alloc(256, coda_plan_workspace(p) / 256 * 256 + 256);
    ck_assert_int_eq(coda_plan_profile(&f, p, args, NULL, memory, NULL, &o), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "plan_profile") && strstr(coda_error(), "dim_count"), "%s",
                  coda_error());
    o.dims = &rows, o.dim_count = 1;
    ck_assert_msg(!coda_plan_profile(&f, p, args, NULL, memory, NULL, &o), "%s", coda_error());
    coda_profile_total_get(f, &all);
    coda_profile_free(f);
    o.dims = NULL, o.dim_count = 0;
    coda_profile_free(profiled(&o, &one));
    ck_assert_int_eq(all.launches, one.launches);
    ck_assert_int_eq(all.bytes, one.bytes);
    free(memory);
    coda_plan_free(p);
    graph_free(symbolic);
}
END_TEST

/* ---- Ranks ---- */

struct rank {
    const coda_plan *plan;
    coda_group *group;
    int threads, rounds;
    coda_status status;
};

static void *profile_rank(void *ctx)
{
    struct rank *r = ctx;
    _Alignas(16) float x[8] = {0}, y[8];
    void *work = aligned_alloc(256, coda_plan_workspace(r->plan) / 256 * 256 + 256), *of[] = {x, r->group, y};
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    coda_profile *f;
    o.rounds = 0, o.threads = r->threads;
    r->status = coda_plan_profile(&f, r->plan, of, NULL, work, NULL, &o);
    if (!r->status) coda_profile_total_get(f, &all);
    coda_profile_free(f);
    r->rounds = all.rounds;
    free(work);
    return NULL;
}

/* However long a rank's rounds take, all have as many. */
START_TEST(ranks_have_equal_rounds)
{
    enum { RANKS = 2 };
    graph *sum = graph_parse("%x = input f32 [8]\n%tp = group {ranks=2}\n%z = all_reduce %x, %tp\n"
                             "output %y = %z\n");
    coda_plan *p = compiled(sum, CODA_DEVICE_CPU, 0);
    coda_group *group[RANKS];
    pthread_t thread[RANKS];
    struct rank r[RANKS];
    ck_assert_int_eq(coda_group_local(group, RANKS, NULL), CODA_OK);
    for (int i = 0; i < RANKS; i++) {
        r[i] = (struct rank){.plan = p, .group = group[i], .threads = i};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, profile_rank, &r[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(r[i].status, CODA_OK);
        ck_assert_int_eq(r[i].rounds, 10);
        coda_group_free(group[i]);
    }
    coda_plan_free(p);
    graph_free(sum);
}
END_TEST

/* ---- What is refused ---- */

static void refused(const coda_plan *p, void *const *with, const coda_profile_options *o, const char *word)
{
    coda_profile *f = (coda_profile *)(void *)&f;
    coda_status status = coda_plan_profile(&f, p, with, NULL, workspace, NULL, o);
    ck_assert_int_eq(status, CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), word) != NULL, "%s", coda_error());
    ck_assert_ptr_null(f);
}

START_TEST(refuses_in_one_line)
{
    coda_profile_options o = given();
    void *missing[16];
    int count = coda_plan_args(plan);
    ck_assert_int_le(count, ARRAY_SIZE(missing));
    memcpy(missing, args, sizeof *missing * (size_t)count);
    missing[count - 1] = NULL;
    coda_plan *none = compiled(g, CODA_DEVICE_CPU, CODA_PLAN_ONLY);
    refused(NULL, args, NULL, "plan is NULL");
    refused(plan, NULL, &o, "args");
    refused(plan, missing, &o, "NULL");
    refused(none, args, &o, "no device");
    o.rounds = -1;
    refused(plan, args, &o, "rounds is -1");
    o = given(), o.rounds = 10001;
    refused(plan, args, &o, "10001");
    o = given(), o.threads = 65;
    refused(plan, args, &o, "threads is 65");
    o = given(), o.copy_rate = -1;
    refused(plan, args, &o, "copy_rate is -1");
    o = given(), o.product_rate = NAN;
    refused(plan, args, &o, "product_rate is");
    o = given(), o.dim_count = 1;
    refused(plan, args, &o, "no symbols");
    ck_assert_int_eq(coda_plan_profile(NULL, plan, args, NULL, workspace, NULL, NULL), CODA_E_INVALID);
    coda_plan_free(none);
}
END_TEST

START_TEST(refuses_questions)
{
    coda_profile_options o = given();
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    coda_profile_launch l = CODA_PROFILE_LAUNCH_INIT;
    coda_profile *f = profiled(&o, &all);
    ck_assert_int_eq(coda_profile_launch_get(f, -1, &l), CODA_E_INVALID);
    ck_assert_int_eq(coda_profile_launch_get(f, all.launches, &l), CODA_E_INVALID);
    ck_assert_int_eq(coda_profile_launch_get(f, 0, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_profile_launch_get(NULL, 0, &l), CODA_E_INVALID);
    ck_assert_int_eq(coda_profile_total_get(f, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_profile_total_get(NULL, &all), CODA_E_INVALID);
    ck_assert_ptr_null(l.kernel);
    coda_profile_free(f);
    coda_profile_free(NULL);
}
END_TEST

TESTS(profile, AROUND(set_up, tear_down), ONE(adds_up_what_runs_add_up), ONE(ranks_have_equal_rounds),
      CASE("alone"), TAG("alone"), AROUND(set_up, tear_down), ONE(says_what_the_plan_says),
      ONE(names_and_counts_a_product), EACH(a_floor_is_the_larger_of_two_times, 2),
      EACH(times_hang_together, 2), ONE(leaves_what_runs_leave), ONE(a_shape_of_a_plan_with_symbols),
      ONE(refuses_in_one_line), ONE(refuses_questions), CASE("rates"), TAG("rates"),
      AROUND(set_up, tear_down), ONE(measures_what_it_is_not_given));
