/*
 * test_edges.c -- the CPU device at the edges of its loops: sizes around a vector's, rows at odd addresses
 * and strides, against fp64; a fork between runs; ten thousand runs that leave nothing behind.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu.h"
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */

/* ---- Sizes, addresses, strides ---- */

static const int64_t sizes[] = {1, 15, 16, 17};

/* Of x [2 m + 1, 2 n + 3]: every other row from row 1 on, n columns from column 3 on, so that rows begin at
 * odd addresses, a pitch of two rows apart. */
static coda_value some_of(graph *g, coda_dtype t, const char *name, int64_t m, int64_t n)
{
    coda_value x = coda_input(g, name, t, 2, (int64_t[]){2 * m + 1, 2 * n + 3});
    return coda_slice(g, coda_slice(g, x, 0, 1, 2 * m, 2), 1, 3, n + 3, 1);
}

static void rows(graph *g, coda_dtype t, int64_t m, int64_t n)
{
    coda_value x = some_of(g, t, "x", m, n), w = coda_weight(g, "w", t, 1, &n);
    coda_output(g, "softmax", coda_softmax(g, x));
    coda_output(g, "norm", coda_layer_norm(g, x, w, w, 1e-3f));
    coda_output(g, "map", coda_gelu_erf(g, coda_add(g, x, w)));
    coda_output(g, "sum", coda_row_sum(g, x));
}

static void products(graph *g, coda_dtype t, int64_t m, int64_t n)
{
    for (int i = 0; i < ARRAY_SIZE(sizes); i++) {
        char name[3][8];
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "%c%d", "xwy"[k], i);
        coda_value x = some_of(g, t, name[0], m, sizes[i]), w = some_of(g, t, name[1], n, sizes[i]);
        coda_output(g, name[2], coda_matmul(g, x, w));
    }
}

/* m queries, n keys. */
static void attention(graph *g, coda_dtype t, int64_t m, int64_t n)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_value q = some_of(g, t, "q", m, 3 * 17), k = some_of(g, t, "k", n, 3 * 17);
    o.heads = 3;
    coda_output(g, "y", coda_attention(g, q, k, some_of(g, t, "v", n, 3 * 17), CODA_NONE, &o));
}

START_TEST(around_a_vector)
{
    static void (*const make[])(graph *, coda_dtype, int64_t, int64_t) = {rows, products, attention};
    static const coda_dtype types[] = {CODA_F32, CODA_BF16, CODA_F16};
    static const double allowed[] = {1e-5, 0.03, 0.004}; /* a few roundings to the outputs' dtype */
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    setenv("CODA_CPU", _i / 3 == 0 ? "v2" : _i / 3 == 1 ? "v3" : "v4", 1);
    for (int t = 0; t < ARRAY_SIZE(types); t++)
        for (int i = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(sizes); i++) {
            int64_t m = sizes[i / ARRAY_SIZE(sizes)], n = sizes[i % ARRAY_SIZE(sizes)];
            graph *g = coda_graph_new();
            make[_i % 3](g, types[t], m, n);
            void **want = run_reference(g, 1);
            ck_assert_msg(want, "%s", coda_error());
            double error = run_on_cpu(g, 1, &opt, want);
            ck_assert_msg(error >= 0 && error <= allowed[t], "%s, %lld x %lld: error %g; %s",
                          dtype_name(types[t]), (long long)m, (long long)n, error,
                          error < 0 ? coda_error() : "");
            random_args_free(g, want);
            coda_graph_free(g);
        }
    unsetenv("CODA_CPU");
}
END_TEST

/* ---- One plan, run again ---- */

struct again {
    coda_graph *g;
    coda_plan *p;
    void **args, *work;
    int outputs;
    size_t bytes; /* of the output */
    char *first;  /* what the first run made */
};

/* A product, a norm, attention and a softmax; of many rows each loop is large enough for threads. */
static struct again begin(int64_t rows_)
{
    struct again a = {.g = coda_graph_new(), .bytes = (size_t)rows_ * 128 * sizeof(float)};
    coda_attention_options heads = CODA_ATTENTION_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU, heads.heads = 4, heads.causal = 1;
    coda_value x = coda_input(a.g, "x", CODA_F32, 2, (int64_t[]){rows_, 128});
    coda_value w = coda_weight(a.g, "w", CODA_BF16, 2, (int64_t[]){128, 128});
    coda_value q = coda_gelu_erf(a.g, coda_matmul(a.g, coda_rms_norm(a.g, x, CODA_NONE, 1e-5f), w));
    coda_output(a.g, "y", coda_softmax(a.g, coda_attention(a.g, q, x, x, CODA_NONE, &heads)));
    ck_assert_msg(coda_compile(&a.p, a.g, &opt) == CODA_OK, "%s", coda_error());
    a.args = random_args(a.g, 1, false);
    a.work = aligned_alloc(256, (coda_plan_workspace(a.p) + 256) / 256 * 256);
    a.first = calloc(1, a.bytes);
    ck_assert(a.args && a.work && a.first);
    return a;
}

static void end(struct again *a)
{
    random_args_free(a->g, a->args);
    free(a->work), free(a->first);
    coda_plan_free(a->p);
    coda_graph_free(a->g);
}

static bool run(struct again *a, int threads)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.threads = threads;
    memset(a->args[2], 0xff, a->bytes);
    return coda_run_shaped(a->p, a->args, NULL, a->work, NULL, &opt) == CODA_OK;
}

static bool same_again(struct again *a, int threads)
{
    return run(a, threads) && !memcmp(a->args[2], a->first, a->bytes);
}

#if defined __SANITIZE_THREAD__ /* ends a child of many threads that starts some */
enum { CHILDREN = 0 };
#else
enum { CHILDREN = 5 };
#endif

START_TEST(a_fork_between_runs)
{
    struct again a = begin(200);
    ck_assert_msg(run(&a, 4), "%s", coda_error());
    memcpy(a.first, a.args[2], a.bytes);
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        fflush(NULL);
        pid_t child = fork();
        if (!child) {
            alarm(300); /* rather than hang */
            _exit(!(same_again(&a, 4) && same_again(&a, 1) && same_again(&a, 7)));
        }
        ck_assert(same_again(&a, 4)); /* while the child runs, too */
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d: status %x", i,
                      (unsigned)status);
    }
    end(&a);
}
END_TEST

static long resident_pages(void)
{
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert(f && fscanf(f, "%ld %ld", &all, &resident) == 2);
    fclose(f);
    return resident;
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    ck_assert(d != NULL);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* On one thread, and on two where a loop is worth it: 64 bytes a run would show. */
START_TEST(ten_thousand_runs)
{
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__ /* keep what is freed, and see one leak */
    enum { RUNS = 100, WARM = 10, PAGES = 1 << 20 };
#else
    enum { RUNS = 10000, WARM = 1000, PAGES = 128 };
#endif
    struct again a = begin(_i ? 24 : 3);
    int threads = 1 + _i;
    ck_assert_msg(run(&a, threads), "%s", coda_error());
    memcpy(a.first, a.args[2], a.bytes);
    for (int i = 0; i < WARM; i++) ck_assert(same_again(&a, threads));
    long pages = resident_pages();
    int tasks = entries("/proc/self/task"), files = entries("/proc/self/fd");
    for (int i = 0; i < RUNS; i++) ck_assert(same_again(&a, threads));
    long more = resident_pages() - pages;
    ck_assert_msg(more <= PAGES, "%d runs left %ld pages", RUNS, more);
    ck_assert_int_eq(entries("/proc/self/task"), tasks);
    ck_assert_int_eq(entries("/proc/self/fd"), files);
    end(&a);
}
END_TEST

/* Every code of 8 bits, as neighbours and far apart, is what it is one by one, NaN's sign and all. */
START_TEST(codes_of_a_byte)
{
    static const coda_dtype types[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8, CODA_U8};
    for (int i = 0; i < 2 * ARRAY_SIZE(types); i++) {
        coda_dtype t = types[i / 2];
        int stride = i % 2 ? 3 : 1;
        uint8_t codes[3 * 256];
        float got[256];
        for (int k = 0; k < ARRAY_SIZE(codes); k++) codes[k] = (uint8_t)(k / stride);
        cpu_read(got, t, codes, 0, stride, ARRAY_SIZE(got));
        for (int k = 0; k < ARRAY_SIZE(got); k++) {
            float want = (float)dtype_load(t, codes, k * stride);
            ck_assert_msg(!memcmp(&got[k], &want, sizeof want), "%s, code %d, stride %d: %g, not %g",
                          dtype_name(t), k, stride, (double)got[k], (double)want);
        }
    }
}
END_TEST

/* Every code of 16 bits, likewise; of NaN only that it is one. */
START_TEST(codes_of_two_bytes)
{
    enum { CODES = 1 << 16, STRIDE = 3 };
    coda_dtype t = _i % 2 ? CODA_BF16 : CODA_F16;
    int64_t stride = _i / 2 ? STRIDE : 1;
    uint16_t *codes = malloc(sizeof *codes * CODES * STRIDE);
    float *got = malloc(sizeof *got * CODES);
    ck_assert(codes && got);
    for (int64_t k = 0; k < CODES * stride; k++) codes[k] = (uint16_t)(k / stride);
    cpu_read(got, t, codes, 0, stride, CODES);
    for (int64_t k = 0; k < CODES; k++) {
        float want = (float)dtype_load(t, codes, k * stride);
        ck_assert_msg(!memcmp(&got[k], &want, sizeof want) || (isnan(got[k]) && isnan(want)),
                      "%s, code %04x, stride %d: %g, not %g", dtype_name(t), (unsigned)k, (int)stride,
                      (double)got[k], (double)want);
    }
    free(codes), free(got);
}
END_TEST

/* Each number of 16 bits, what lies half way to the next one, which is even or odd, and the floats beside;
 * from 65520 on fp16 is infinite. */
START_TEST(rounded_to_two_bytes)
{
    coda_dtype t = _i ? CODA_BF16 : CODA_F16;
    enum { AROUND = 7 };
    for (int code = 0; code < 1 << 16; code++) {
        float x = (float)dtype_load(t, &(uint16_t){(uint16_t)code}, 0);
        float next = (float)dtype_load(t, &(uint16_t){(uint16_t)(code + 1)}, 0), half = x + (next - x) / 2;
        float from[AROUND] = {x,
                              half,
                              nextafterf(x, 0),
                              nextafterf(x, next),
                              nextafterf(half, 0),
                              nextafterf(half, next),
                              65520 - (float)(code % 2) / 256};
        uint16_t got[AROUND], want;
        cpu_write(t, got, 0, from, AROUND);
        for (int k = 0; k < AROUND; k++) {
            dtype_store(t, &want, 0, (double)from[k]);
            ck_assert_msg(got[k] == want, "%s of %a: %04x, not %04x", dtype_name(t), (double)from[k],
                          (unsigned)got[k], (unsigned)want);
        }
    }
}
END_TEST

/* Loops have the instructions that a process began with. */
TESTS(edges, ONE(codes_of_a_byte), EACH(codes_of_two_bytes, 4), EACH(rounded_to_two_bytes, 2), SECONDS(1000),
      ONE(a_fork_between_runs), EACH(ten_thousand_runs, 2), CASE("instructions"), TAG("processes"),
      SECONDS(1000), EACH(around_a_vector, 3 * VECTORS_LEVELS));
