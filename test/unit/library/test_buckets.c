/* test_buckets.c -- values of a symbol to which others are rounded up: what that costs, at each value; and
 * all values, with the kernels that they want. */
#include "coda.h"
#include "every.h"
#include "executable.h"
#include "shapes.h"
#include "util_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_BUCKETS = 512 };

/* A block without attention; %s is T's range. */
static const char block[] = "dim %%T = %s\n"
                            "%%x = input bf16[T,1024]\n"
                            "%%u = weight bf16[2816,1024]\n"
                            "%%d = weight bf16[1024,2816]\n"
                            "%%n = rms_norm %%x {eps=1e-5}\n"
                            "%%m = matmul %%n, %%u\n"
                            "%%g = gelu_tanh %%m\n"
                            "%%o = matmul %%g, %%d\n"
                            "%%y = add %%o, %%x\n"
                            "%%s = softmax %%y\n"
                            "output %%y = %%s\n";
/* Prompts that attend to themselves. */
static const char prompts[] = "dim %%B = 0..6\n"
                              "dim %%T = %s\n"
                              "%%x = input bf16[B,T,256]\n"
                              "%%w = weight bf16[768,256]\n"
                              "%%p = matmul %%x, %%w\n"
                              "%%q = slice %%p {axis=2,start=0,stop=256,step=1}\n"
                              "%%k = slice %%p {axis=2,start=256,stop=512,step=1}\n"
                              "%%v = slice %%p {axis=2,start=512,stop=768,step=1}\n"
                              "%%a = attention %%q, %%k, %%v {heads=4,kv_heads=4,scale=0.125,causal=1}\n"
                              "output %%y = %%a\n";

static coda_plan *compiled(const char *form, const char *range, coda_device device)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    char text[1024];
    coda_graph *g;
    coda_plan *p;
    snprintf(text, sizeof text, form, range);
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    opt.device = device;
    if (device == CODA_DEVICE_NONE) opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
    return p;
}

/* With the last symbol at this value, and the others at one end of their ranges. */
static double price(const coda_plan *p, int64_t value, bool largest)
{
    int64_t dims[MOST_SYMBOLS];
    double clocks;
    int n = coda_plan_symbols(p);
    for (int i = 0; i < n; i++) {
        coda_symbol_info s = CODA_SYMBOL_INFO_INIT;
        ck_assert_int_eq(coda_plan_symbol(p, i, &s), CODA_OK);
        dims[i] = largest ? s.most : s.least ? s.least : s.multiple;
    }
    dims[n - 1] = value;
    ck_assert_msg(shapes_price(p, dims, &clocks) == CODA_OK, "%s", coda_error());
    return clocks;
}

/* By how much more a run of `to` costs than one of `from`, where that is worst. */
static double padding(const coda_plan *p, int64_t from, int64_t to)
{
    double least = price(p, to, false) / price(p, from, false);
    double most = price(p, to, true) / price(p, from, true);
    return least > most ? least : most;
}

static int buckets_of(const coda_plan *p, int percent, int64_t *out)
{
    int n = coda_plan_buckets(p, coda_plan_symbols(p) - 1, percent, out, MOST_BUCKETS);
    ck_assert_msg(n > 0 && n <= MOST_BUCKETS, "%d: %s", n, coda_error());
    return n;
}

/* Every value may be rounded up, and no bucket is one too many. */
static void expect_promise(const coda_plan *p, int percent)
{
    int64_t bucket[MOST_BUCKETS];
    coda_symbol_info s = CODA_SYMBOL_INFO_INIT;
    int n = buckets_of(p, percent, bucket), at = 0;
    double allowed = 1 + percent / 100.0, worst = 1;
    coda_plan_symbol(p, coda_plan_symbols(p) - 1, &s);
    ck_assert(bucket[n - 1] == s.most);
    for (int64_t v = s.least ? s.least : s.multiple; v <= s.most; v += s.multiple) {
        if (v > bucket[at]) at++;
        double more = padding(p, v, bucket[at]);
        if (more > worst) worst = more;
        ck_assert_msg(more <= allowed, "%d %%: %lld to %lld costs %.4f", percent, (long long)v,
                      (long long)bucket[at], more);
    }
    for (int i = 0; i + 1 < n; i++) {
        ck_assert(bucket[i] < bucket[i + 1] && bucket[i] % s.multiple == 0);
        ck_assert_msg(padding(p, bucket[i], bucket[i + 1]) > allowed, "%d %%: %lld is one too many", percent,
                      (long long)bucket[i]);
    }
    printf("%d %%: %d buckets, worst %.4f\n", percent, n, worst);
}

START_TEST(padding_costs_so_much)
{
    static const struct {
        const char *form, *range;
        coda_device device;
    } test[] = {{block, "1..1400", CODA_DEVICE_NONE},
                {block, "16..16384 step 16", CODA_DEVICE_NONE},
                {block, "0..96", CODA_DEVICE_CPU},
                {prompts, "0..700", CODA_DEVICE_NONE},
                {prompts, "24..2400 step 24", CODA_DEVICE_NONE},
                {prompts, "1..300", CODA_DEVICE_CPU}};
    static const int percent[] = {3, 10, 25, 100};
    coda_plan *p = compiled(test[_i].form, test[_i].range, test[_i].device);
    for (int i = 0; i < 4; i++)
        if (scale_takes_one_in(SANITIZED ? 3 : 2, i + _i)) expect_promise(p, percent[i]);
    coda_plan_free(p);
}
END_TEST

/* A host has no tiles: twice the rows, twice the price, but for the weights. */
START_TEST(a_host_is_linear)
{
    int64_t bucket[MOST_BUCKETS];
    coda_plan *p = compiled("dim %%T = %s\n%%x = input f32[T,64]\n%%y = relu %%x\noutput %%y = %%y\n",
                            "1..1000", CODA_DEVICE_CPU);
    ck_assert_int_eq(buckets_of(p, 100, bucket), 9);
    for (int i = 0, most = 1000; i < 9; i++, most = (most - 1) / 2) ck_assert_int_eq(bucket[8 - i], most);
    coda_plan_free(p);
}
END_TEST

START_TEST(as_many_as_fit)
{
    int64_t all[MOST_BUCKETS], some[MOST_BUCKETS];
    coda_plan *p = compiled(block, "1..4096", CODA_DEVICE_NONE);
    int n = buckets_of(p, 10, all);
    ck_assert_int_gt(n, 5);
    ck_assert_int_eq(coda_plan_buckets(p, 0, 10, NULL, 0), n);
    some[3] = -7;
    ck_assert_int_eq(coda_plan_buckets(p, 0, 10, some, 3), n);
    ck_assert(!memcmp(all, some, 3 * sizeof *all) && some[3] == -7);
    ck_assert_int_lt(coda_plan_buckets(p, 0, 30, NULL, 0), n);
    ck_assert_int_gt(coda_plan_buckets(p, 0, 3, NULL, 0), n);
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    ck_assert_int_eq(coda_shape_stats_get(p, &s), CODA_OK);
    ck_assert(s.planned == 0 && s.kept == 0);
    coda_plan_free(p);
}
END_TEST

START_TEST(one_value)
{
    int64_t value = -1;
    coda_plan *p = compiled(block, "0..1", CODA_DEVICE_NONE);
    ck_assert(coda_plan_buckets(p, 0, 5, &value, 1) == 1 && value == 1);
    coda_plan_free(p);
    p = compiled(block, "48..48 step 16", CODA_DEVICE_NONE);
    ck_assert(coda_plan_buckets(p, 0, 5, &value, 1) == 1 && value == 48);
    coda_plan_free(p);
}
END_TEST

START_TEST(mistakes)
{
    int64_t value[4];
    coda_plan *p = compiled(block, "1..64", CODA_DEVICE_NONE);
    ck_assert_int_eq(coda_plan_buckets(NULL, 0, 5, value, 4), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_buckets: plan is NULL");
    ck_assert_int_eq(coda_plan_buckets(p, 1, 5, value, 4), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_buckets: symbol is 1 of 1");
    ck_assert_int_eq(coda_plan_buckets(p, 0, 0, value, 4), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_buckets: percent is 0; must be >= 1");
    ck_assert_int_eq(coda_plan_buckets(p, 0, 5, value, -1), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_buckets: most is -1; must be >= 0");
    ck_assert_int_eq(coda_plan_buckets(p, 0, 5, NULL, 4), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "plan_buckets: out is NULL; most is 4");
    coda_plan_free(p);
}
END_TEST

/* ---- All shapes ---- */

static int64_t walk(const char *range, int64_t *seen, int room)
{
    struct every e;
    char text[1024];
    graph *g;
    int64_t n = 0, dims[MOST_SYMBOLS];
    snprintf(text, sizeof text, block, range);
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    for (every_begin(&e, g->dims); every_next(&e, dims); n++) {
        ck_assert(n == 0 || dims[0] > seen[(n - 1) % room]);
        seen[n % room] = dims[0];
    }
    ck_assert(!every_next(&e, dims) && seen[(n - 1) % room] == g->dims->symbol[0].most);
    coda_graph_free(g);
    return n;
}

static bool has(const int64_t *seen, int64_t n, int64_t value)
{
    for (int64_t i = 0; i < n; i++)
        if (seen[i] == value) return true;
    return false;
}

/* Few values are all walked through; of many those on both sides of what may be a border. */
START_TEST(every_shape)
{
    static int64_t seen[1 << 14];
    ck_assert_int_eq(walk("0..1000", seen, ARRAY_SIZE(seen)), 1001);
    ck_assert_int_eq(walk("24..24 step 8", seen, ARRAY_SIZE(seen)), 1);
    ck_assert_int_eq(walk("8..131072 step 8", seen, ARRAY_SIZE(seen)), 16384);
    int64_t n = walk("5..1000000000", seen, ARRAY_SIZE(seen));
    ck_assert(n <= 1 << 14 && n > 1 << 12 && seen[0] == 5);
    for (int64_t v = 64; v <= 1 << 20; v *= 2)
        ck_assert_msg(has(seen, n, v) && has(seen, n, v + 1), "%lld", (long long)v);
    for (int64_t v = 64; v <= 1024; v += 64) ck_assert(has(seen, n, v) && has(seen, n, v + 1));
}
END_TEST

static void count_kernel(void *count, const coda_kernel_info *k)
{
    ck_assert(k->name && strstr(k->source, k->name));
    ++*(int *)count;
}

static int all_kernels(const coda_plan *p)
{
    int n = 0;
    coda_warm_options all = CODA_WARM_OPTIONS_INIT;
    all.bindings = CODA_WARM_ALL;
    all.kernel = count_kernel;
    all.context = &n;
    ck_assert_msg(coda_warm(p, &all) == CODA_OK, "%s", coda_error());
    return n;
}

/* More than those of the largest shape; fewer where there are fewer shapes. */
START_TEST(every_kernel)
{
    coda_plan *p = compiled(block, "1..300", CODA_DEVICE_NONE),
              *host = compiled(block, "1..9", CODA_DEVICE_CPU);
    int n = all_kernels(p), some;
    ck_assert_int_gt(n, coda_plan_kernels(p));
    coda_plan *few = compiled(block, "200..300", CODA_DEVICE_NONE);
    some = all_kernels(few);
    ck_assert(some >= coda_plan_kernels(few) && some < n);
    ck_assert_int_eq(all_kernels(host), 0);
    char text[1 << 14];
    ck_assert_int_gt(coda_plan_print(p, CODA_TEXT_SHAPES, text, sizeof text), 200);
    ck_assert(strstr(text, " tiles for 1..300 rows\n") && strstr(text, "\n   base sm90"));
    coda_warm_options w = CODA_WARM_OPTIONS_INIT;
    w.bindings = -2;
    ck_assert_int_eq(coda_warm(p, &w), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "warm: bindings is -2; must be >= 0, or CODA_WARM_ALL");
    w.bindings = CODA_WARM_ALL;
    ck_assert_int_eq(coda_plan_seal(p), CODA_OK);
    ck_assert_int_eq(coda_warm(p, &w), CODA_E_UNSUPPORTED);
    ck_assert_str_eq(coda_error(), "warm: the plan is sealed");
    coda_plan_free(few), coda_plan_free(host), coda_plan_free(p);
}
END_TEST

TESTS(buckets, EACH(padding_costs_so_much, 6), ONE(a_host_is_linear), ONE(as_many_as_fit), ONE(one_value),
      ONE(mistakes), ONE(every_shape), ONE(every_kernel));
