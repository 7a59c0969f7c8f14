/*
 * test_unusual.c -- nothing is refused for being unusual: dimensions of 0, and more of everything than one
 * kernel has room for, against fp64 on the CPU device; and what layers share.
 */
#include "util_run.h" /* before check.h, which has a macro called fail */
#include "util_scale.h"
#include "util_unusual.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct mode {
    const char *name;
    unsigned flags;
    coda_fold fold;
} modes[] = {{"fused", 0, CODA_FOLD_NONE},
             {"unfused", CODA_NO_FUSION, CODA_FOLD_NONE},
             {"folded", 0, CODA_FOLD_COPY},
             {"folded in place", 0, CODA_FOLD_IN_PLACE}};

/* Every executor's texts, and the results of the CPU device. */
static void check(const graph *g, const char *name, int n)
{
    void **want = run_reference(g, 7);
    ck_assert_msg(want, "%s of %d: %s", name, n, coda_error());
    for (int m = 0; m < ARRAY_SIZE(modes); m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p;
        opt.flags = modes[m].flags;
        opt.fold = modes[m].fold;
        opt.device = CODA_DEVICE_CPU;
        double error = run_on_cpu(g, 7, &opt, want);
        ck_assert_msg(error >= 0 && error < 1e-4, "%s of %d, %s: error %g %s", name, n, modes[m].name, error,
                      error < 0 ? coda_error() : "");
        opt.device = CODA_DEVICE_NONE;
        opt.flags |= CODA_PLAN_ONLY;
        for (int a = 0; a < 2; a++) {
            opt.arch = a ? "sm_80" : "sm_90a";
            ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s of %d, %s, %s: %s", name, n,
                          modes[m].name, opt.arch, coda_error());
            ck_assert_int_gt(coda_plan_print(p, CODA_TEXT_PLAN, NULL, 0), 0);
            coda_plan_free(p);
        }
    }
    random_args_free(g, want);
}

/* ---- More than one kernel has room for ---- */

START_TEST(crosses_limits)
{
    const struct unusual *u = &unusual[_i];
    for (int i = 0; i < ARRAY_SIZE(u->most) && u->most[i]; i++) {
        if (!scale_takes(2 * _i + i, true)) continue;
        graph *g = u->make(u->most[i]);
        ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s of %d: %s", u->name, u->most[i], coda_error());
        check(g, u->name, u->most[i]);
        graph_free(g);
    }
}
END_TEST

/* The most that this thread's stack may grow to; what it was before. */
static rlim_t limit_stack(rlim_t bytes)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_STACK, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_STACK, &limit), 0);
    return before;
}

/* Recursion over a graph would overflow the stack: a short run has fewer nodes, and less of it. */
START_TEST(is_deep)
{
    graph *g = coda_graph_new();
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = {0};
    coda_plan *p;
    coda_value x = coda_input(g, "x", CODA_F32, 1, (int64_t[]){4}), y = x;
    const int adds =
        SANITIZED || !scale_is_full() ? 25000 : 100000; /* a sanitizer's stack frames are larger */
    rlim_t stack = SANITIZED || scale_is_full() ? 0 : limit_stack(1 << 20);
    for (int i = 0; i < adds; i++) y = coda_add(g, y, x);
    coda_output(g, "y", y);
    float in[4] = {0, 1, -2, 0.5f}, out[4];
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *work = aligned_alloc(256, (coda_plan_workspace(p) + 256) / 256 * 256), *args[] = {in, out};
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_OK);
    for (int i = 0; i < 4; i++)
        ck_assert_float_eq_tol(out[i], (float)(adds + 1) * in[i], 1); /* sums stay below 2^24 */
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    ck_assert_int_lt(stats.launches, adds / 10);
    free(work);
    coda_plan_free(p);
    graph_free(g);
    if (stack) limit_stack(stack);
}
END_TEST

/* ---- Nothing at all ---- */

/* Of so many sequences without a token nothing is computed, counted or read: each would end in years. */
#define MANY "1099511627776"
static const char *const of_many[] = {
    "%x = input f32[" MANY ",0,64]\n%w = weight f32[64,4]\n%y = conv1d %x, %w, _, _, _\n",
    "%x = input f32[" MANY ",0,64]\n%a = weight f32[64]\n%b = input f32[" MANY ",0,8]\n"
    "%y = scan %x, %x, %a, %b, %b, _, _, _, _, _\n",
    "%k = input bf16[" MANY ",0,64]\n%d = input f32[" MANY
    ",0,1]\n%y = delta %k, %k, %k, %d, %d, _, _ {heads=1}\n",
    "%q = input f32[" MANY ",0,64]\n%k = input f32[" MANY ",16,64]\n%y = attention %q, %k, %k\n",
    "%x = input f32[" MANY ",0]\n%y = softmax %x\n",
    "%x = input f32[" MANY ",0,64]\n%w = weight f32[64,64]\n%y = matmul %x, %w\n"};

START_TEST(empty_of_many)
{
    static _Alignas(256) char nowhere[256];
    char text[400];
    snprintf(text, sizeof text, "%soutput %%y = %%y\n", of_many[_i]);
    graph *g = graph_parse(text);
    ck_assert_msg(g, "%s", coda_error());
    for (int m = 0; m < 2; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        void *args[8];
        coda_plan *p;
        opt.flags = modes[m].flags, opt.device = CODA_DEVICE_CPU;
        ck_assert_msg(!coda_compile(&p, g, &opt), "%s%s", text, coda_error());
        for (int a = 0; a < coda_plan_args(p); a++) args[a] = nowhere;
        ck_assert_uint_eq(coda_plan_workspace(p), 0);
        ck_assert_msg(!coda_run(p, args, NULL, NULL, NULL), "%s%s", text, coda_error());
        coda_plan_free(p);
        opt.flags |= CODA_PLAN_ONLY, opt.device = CODA_DEVICE_NONE;
        ck_assert_msg(!coda_compile(&p, g, &opt), "%s%s", text, coda_error());
        ck_assert_int_eq(coda_plan_kernels(p), 0);
        coda_plan_free(p);
    }
    graph_free(g);
}
END_TEST

START_TEST(is_empty)
{
    const char *name;
    graph *g;
    int i = 0;
    for (; (g = unusual_empty(i, &name)); i++) {
        coda_status s = coda_graph_status(g);
        if (s != CODA_OK) ck_assert_msg(s == CODA_E_INVALID && coda_error()[0], "%s of %d", name, i);
        else if (!SANITIZED || scale_takes_one_in(3, i)) check(g, name, i);
        graph_free(g);
    }
    ck_assert_int_gt(i, 150);
}
END_TEST

static float one(coda_value (*make)(coda_graph *, coda_value), int product)
{
    graph *g = coda_graph_new();
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    float in[4] = {1, 2, 3, 4}, out[4] = {77, 77, 77, 77};
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){2, product ? 2 : 0});
    if (product) x = coda_matmul(g, x, coda_weight(g, "w", CODA_F32, 2, (int64_t[]){0, 2}));
    coda_output(g, "y", make(g, x));
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *work = aligned_alloc(256, (coda_plan_workspace(p) + 256) / 256 * 256);
    void *args[] = {in, product ? in : (void *)out, out};
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_OK);
    ck_assert(out[0] == out[1] || (isnan(out[0]) && isnan(out[1])));
    ck_assert(out[2] == 77);
    free(work);
    coda_plan_free(p);
    graph_free(g);
    return out[0];
}

/* As NumPy has it, but for the largest of nothing, which it refuses. */
START_TEST(statistics_of_nothing)
{
    for (int product = 0; product < 2; product++) {
        ck_assert(one(coda_row_sum, product) == 0);
        ck_assert(isnan(one(coda_row_mean, product)));
        ck_assert(one(coda_row_max, product) == -INFINITY);
        ck_assert(one(coda_log_sum_exp, product) == -INFINITY);
    }
}
END_TEST

/* ---- Steps and sizes at the ends of int64 ---- */

START_TEST(extreme_slices)
{
    static const int64_t edge[] = {INT64_MIN, -1, 0, 1, 2, 3, 4, 5, INT64_MAX / 3, INT64_MAX - 1, INT64_MAX};
    enum { N = ARRAY_SIZE(edge) };
    int good = 0;
    for (int i = 0; i < N * N * N; i++) {
        int64_t start = edge[i % N], stop = edge[i / N % N], step = edge[i / N / N];
        graph *g = coda_graph_new();
        coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 4});
        coda_value y = coda_slice(g, coda_slice(g, x, 0, 0, 4, INT64_MAX), 1, start, stop, step);
        coda_output(g, "y", coda_relu(g, coda_slice(g, coda_slice(g, y, 1, 0, 0, step), 1, 0, 0, step)));
        coda_output(g, "z", coda_relu(g, y));
        bool valid = start >= 0 && start <= stop && stop <= 4 && step >= 1;
        ck_assert_msg((coda_graph_status(g) == CODA_OK) == valid, "%lld %lld %lld", (long long)start,
                      (long long)stop, (long long)step);
        if (valid && ++good % 4 == 0) check(g, "slice", i);
        graph_free(g);
    }
    ck_assert_int_gt(good, 50);
}
END_TEST

START_TEST(huge_sizes)
{
    const int64_t big = INT64_MAX / 2;
    graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){(int64_t)1 << 30, (int64_t)1 << 30});
    coda_value in[8] = {x, x, x, x, x, x, x, x};
    coda_concat(g, 0, in, 8); /* more than 2^62 bytes */
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    graph_free(g);
    for (int i = 0; i < 4; i++) {
        g = coda_graph_new();
        x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 4});
        if (i == 0) coda_reshape(g, x, 3, (int64_t[]){big, big, big});
        if (i == 1) coda_reshape(g, x, 3, (int64_t[]){-4, -4, 1});
        if (i == 2) coda_transpose(g, x, (int[]){1, 1});
        if (i == 3) coda_input_strided(g, "z", CODA_F32, 2, (int64_t[]){4, 4}, (int64_t[]){big, 1});
        ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
        ck_assert(coda_error()[0] && !strchr(coda_error(), '\n'));
        graph_free(g);
    }
}
END_TEST

/* ---- What layers share ---- */

static coda_plan *texts(const graph *g, const struct mode *m)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = m->flags | CODA_PLAN_ONLY;
    opt.fold = m->fold;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    return p;
}

static int kernels(const graph *block, int layers, const struct mode *m)
{
    graph *g = unusual_layers(block, layers);
    coda_plan *p = texts(g, m);
    int n = coda_plan_kernels(p);
    coda_plan_free(p);
    graph_free(g);
    return n;
}

/* A layer of LLaMA that is neither first nor last is five kernels: rope of q k v with the row factor of the
 * norm before it, attention, o and down (they differ by K alone, a constant of the mainloop), gate and up.
 * The ends have three of their own: the norm of the caller's x, whose squares no product has summed; rope of
 * its rows, which are normed already; and the last sum, which no norm reads. A block alone has no rope with a
 * factor and no down with a norm after it: six. BERT's last sum leaves no states of its rows, either, for the
 * norm behind it is walked, not folded. */
START_TEST(layers_share_kernels)
{
    static const struct {
        const char *name;
        int most[4]; /* distinct kernels, by mode */
    } block[] = {{"llama", {8, 9, 10, 10}}, {"llama_small", {8, 9, 10, 10}},
                 {"gpt2", {9, 11, 15, 15}}, {"gpt2_small", {9, 11, 15, 15}},
                 {"bert", {7, 11, 12, 12}}, {"bert_small", {7, 11, 12, 12}}};
    char path[128];
    snprintf(path, sizeof path, "examples/graphs/%s.coda", block[_i].name);
    graph *g = run_load(path);
    ck_assert_msg(g, "%s", coda_error());
    for (int m = 0; m < ARRAY_SIZE(modes); m++)
        for (int layers = 2; layers <= (SANITIZED ? 8 : 32); layers *= 4)
            ck_assert_msg(kernels(g, layers, &modes[m]) <= block[_i].most[m],
                          "%s, %s: %d layers have %d kernels", block[_i].name, modes[m].name, layers,
                          kernels(g, layers, &modes[m]));
    graph_free(g);
}
END_TEST

/* Six of a layer, two of the embeddings, and the mean's product; folded, the last layer's sum is its own. */
START_TEST(minilm_shares_kernels)
{
    for (int layers = 1; layers <= 6; layers += 5)
        for (int m = 0; m < ARRAY_SIZE(modes); m++) {
            graph *g = unusual_minilm(CODA_F16, layers, 32, 128, 384);
            ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
            coda_plan *p = texts(g, &modes[m]);
            int most = modes[m].flags ? 15 : modes[m].fold ? 15 : 9, n = coda_plan_kernels(p);
            ck_assert_msg(n <= most, "%s: %d layers have %d kernels", modes[m].name, layers, n);
            coda_plan_free(p);
            graph_free(g);
        }
    graph *small = unusual_minilm(CODA_F32, 2, 2, 9, 64);
    check(small, "minilm", 2);
    graph_free(small);
}
END_TEST

/* No name and no order of leaves reaches a kernel. */
START_TEST(names_do_not_matter)
{
    uint64_t seed = random_seed() + (uint64_t)_i * 1000;
    for (int i = 0; i < 40; i++) {
        graph *g = random_graph(seed + (uint64_t)i, NULL), *h = unusual_renamed(g, seed);
        ck_assert_msg(coda_graph_status(h) == CODA_OK, "%s", coda_error());
        const struct mode *m = &modes[i % ARRAY_SIZE(modes)];
        coda_plan *p = texts(g, m), *q = texts(h, m);
        ck_assert_int_eq(coda_plan_kernels(p), coda_plan_kernels(q));
        for (int k = 0; k < coda_plan_kernels(p); k++) {
            coda_kernel_info a = {0}, b = {0};
            coda_plan_kernel(p, k, &a);
            coda_plan_kernel(q, k, &b);
            ck_assert_str_eq(a.name, b.name);
            ck_assert_msg(!strcmp(a.source, b.source), "seed %llu, %s:\n%s\n%s", (unsigned long long)seed + i,
                          m->name, a.source, b.source);
        }
        coda_plan_free(p);
        coda_plan_free(q);
        graph_free(g);
        graph_free(h);
    }
}
END_TEST

/* ---- Threads ---- */

struct meeting {
    pthread_barrier_t all;
    atomic_int came;
};

static void meet(void *ctx, int64_t i)
{
    struct meeting *m = ctx;
    (void)i;
    m->came++;
    pthread_barrier_wait(&m->all); /* until as many are here at once */
}

START_TEST(items_run_at_once)
{
    struct meeting m = {.came = 0};
    pthread_barrier_init(&m.all, NULL, 16);
    parallel_for_most(16, 16, meet, &m);
    ck_assert_int_eq(m.came, 16);
    pthread_barrier_destroy(&m.all);
}
END_TEST

START_TEST(threads_heed_affinity)
{
    cpu_set_t old, first;
    ck_assert_int_eq(sched_getaffinity(0, sizeof old, &old), 0);
    int before = parallel_threads(), cpu = 0;
    ck_assert(before >= 1 && before <= CPU_COUNT(&old));
    while (!CPU_ISSET(cpu, &old)) cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    ck_assert_int_eq(sched_setaffinity(0, sizeof first, &first), 0);
    ck_assert_int_eq(parallel_threads(), 1);
    ck_assert_int_eq(sched_setaffinity(0, sizeof old, &old), 0);
}
END_TEST

TESTS(unusual, EACH(empty_of_many, ARRAY_SIZE(of_many)), EACH(crosses_limits, unusuals), ONE(is_deep),
      ONE(is_empty), ONE(statistics_of_nothing), ONE(extreme_slices), ONE(huge_sizes),
      EACH(layers_share_kernels, 6), ONE(minilm_shares_kernels), EACH(names_do_not_matter, 4),
      ONE(items_run_at_once), ONE(threads_heed_affinity));
