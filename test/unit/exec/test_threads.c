/*
 * test_threads.c -- one plan run by many threads at once, and many threads that compile at once. The
 * thread sanitizer runs this too.
 */
#include "executable.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_folder.h"
#include "util_random.h"

enum { THREADS = 4, RUNS = 3, BYTES = 64 * 48 * 2 };

static coda_graph *mlp(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){64, 48});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){80, 48});
    coda_value d = coda_weight(g, "d", CODA_BF16, 2, (int64_t[]){48, 40});
    coda_value a = coda_swiglu(g, coda_matmul(g, coda_rms_norm(g, x, CODA_NONE, 1e-5f), w), CODA_STACKED);
    coda_output(g, "y", coda_add(g, coda_matmul(g, a, d), x));
    return g;
}

static coda_plan *compile(const coda_graph *g, coda_device device, unsigned flags, coda_cache *cache)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = device;
    opt.flags = flags;
    opt.cache = cache;
    coda_compile(&p, g, &opt);
    return p;
}

/* ---- One plan, many runs in flight ---- */

struct runner {
    const coda_plan *p;
    void *const *args;
    _Alignas(16) unsigned char y[BYTES];
    coda_status status;
};

static void *run(void *ctx)
{
    struct runner *r = ctx;
    void *args[4] = {r->args[0], r->args[1], r->args[2], r->y};
    void *work = aligned_alloc(256, (coda_plan_workspace(r->p) + 256) / 256 * 256);
    for (int i = 0; i < RUNS && !r->status; i++) {
        memset(r->y, 0xff - i, sizeof r->y);
        memset(work, 0x5f + i, coda_plan_workspace(r->p));
        r->status = coda_run(r->p, args, NULL, work, NULL);
    }
    free(work);
    return NULL;
}

START_TEST(threads_share_a_plan)
{
    static struct runner r[THREADS];
    pthread_t thread[THREADS];
    coda_graph *g = mlp();
    coda_plan *p = compile(g, CODA_DEVICE_CPU, 0, NULL);
    ck_assert_msg(p, "%s", coda_error());
    void **args = random_args(g, 1, false);
    for (int i = 0; i < THREADS; i++) r[i] = (struct runner){.p = p, .args = args};
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, run, &r[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(r[i].status, CODA_OK);
        ck_assert_mem_eq(r[i].y, r[0].y, BYTES);
    }
    random_args_free(g, args);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- As many threads as the caller says ---- */

/* A product, a norm and an attention, each large enough for threads. */
static coda_graph *large(void)
{
    coda_graph *g = coda_graph_new();
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = 4, opt.causal = 1;
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){97, 256});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){256, 256});
    coda_value q = coda_gelu_erf(g, coda_matmul(g, coda_rms_norm(g, x, CODA_NONE, 1e-5f), w));
    coda_output(g, "y", coda_softmax(g, coda_attention(g, q, x, x, CODA_NONE, &opt)));
    return g;
}

START_TEST(threads_do_not_show)
{
    enum { LARGE = 97 * 256 };
    static float y[2][LARGE];
    coda_graph *g = large();
    coda_plan *p = compile(g, CODA_DEVICE_CPU, 0, NULL);
    ck_assert_msg(p, "%s", coda_error());
    void **given = random_args(g, 1, false), *args[] = {given[0], given[1], y[0]};
    void *work = aligned_alloc(256, (coda_plan_workspace(p) + 256) / 256 * 256);
    for (int threads = 0; threads <= 64; threads = 2 * threads + 1) {
        coda_run_options opt = CODA_RUN_OPTIONS_INIT;
        opt.threads = threads;
        memset(y[0], 0xff, sizeof y[0]);
        ck_assert_msg(coda_run_shaped(p, args, NULL, work, NULL, &opt) == CODA_OK, "%s", coda_error());
        if (threads == 0) memcpy(y[1], y[0], sizeof y[0]);
        ck_assert_msg(!memcmp(y[0], y[1], sizeof y[0]), "%d threads give other bits", threads);
    }
    free(work);
    random_args_free(g, given);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

START_TEST(odd_numbers_of_threads)
{
    coda_graph *g = large();
    coda_plan *p = compile(g, CODA_DEVICE_CPU, 0, NULL);
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.threads = _i ? 65 : -1;
    ck_assert_int_eq(coda_run_shaped(p, NULL, NULL, NULL, NULL, &opt), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(),
                     _i ? "run: threads is 65; must be 0..64" : "run: threads is -1; must be 0..64");
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Many compilations of the same kernels ---- */

static coda_cache *shared;

static void *compile_and_print(void *ctx)
{
    coda_plan **p = ctx;
    coda_graph *g = mlp();
    *p = compile(g, CODA_DEVICE_NONE, 0, shared);
    coda_graph_free(g);
    return NULL;
}

START_TEST(threads_compile_at_once)
{
    coda_plan *p[THREADS] = {0};
    pthread_t thread[THREADS];
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    folder_make();
    opt.dir = folder;
    ck_assert_int_eq(coda_cache_open(&shared, &opt), CODA_OK);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, compile_and_print, &p[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_ptr_nonnull(p[i]);
        ck_assert_int_eq(coda_plan_kernels(p[i]), coda_plan_kernels(p[0]));
    }
    coda_cache_stats_get(shared, &s);
    ck_assert_int_eq((int)s.compiles, coda_plan_kernels(p[0])); /* each once, whoever was first */
    for (int i = 0; i < THREADS; i++) coda_plan_free(p[i]);
    coda_cache_free(shared);
    folder_remove();
}
END_TEST

/* Each thread has its own message. */
static void *fail_apart(void *ctx)
{
    char *name = ctx;
    coda_graph *g;
    for (int i = 0; i < 100; i++) {
        char text[64];
        snprintf(text, sizeof text, "%%x = input %s[1]\n", name);
        if (coda_graph_parse(&g, text) == CODA_OK || !strstr(coda_error(), name)) return name;
    }
    return NULL;
}

START_TEST(threads_have_their_own_message)
{
    static char name[THREADS][8] = {"aaa", "bbb", "ccc", "ddd"};
    pthread_t thread[THREADS];
    void *wrong;
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, fail_apart, name[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &wrong);
        ck_assert_msg(!wrong, "thread %s: \"%s\"", (char *)wrong, coda_error());
    }
}
END_TEST

/* A plan that is freed waits for the kernel that the background is at, and for no more of that shape. */
START_TEST(no_kernel_is_begun_once_it_stops)
{
    const struct jit_options jit = {.arch = "sm_90a", .no_cache = true};
    atomic_bool stops = true;
    coda_graph *g = mlp();
    coda_plan *p = compile(g, CODA_DEVICE_NONE, CODA_PLAN_ONLY, NULL);
    ck_assert_msg(p && p->kernels > 1, "%s", coda_error());
    ck_assert_int_eq(kernels_compile(p, 0, &jit, 2, &stops), CODA_E_UNSUPPORTED);
    ck_assert_msg(strstr(coda_error(), ": the plan is freed while it is compiled"), "%s", coda_error());
    for (int i = 0; i < p->kernels; i++) ck_assert_ptr_null(p->kernel[i].cubin.image);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(threads, ONE(threads_share_a_plan), ONE(threads_do_not_show), EACH(odd_numbers_of_threads, 2),
      ONE(threads_compile_at_once), ONE(threads_have_their_own_message),
      ONE(no_kernel_is_begun_once_it_stops));
