/* test_indices.c -- int64 where int32 is asked for: every place of it, and numbers that int32 has not. */
#include "base.h" /* before check.h, which has a macro called fail */

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executable.h"
#include "jit.h"
#include "util_indices.h"
#include "util_mistake.h"
#include "util_print.h"
#include "util_run.h"
#include "util_scale.h"

#define FAR ((int64_t)1 << 32) /* with a small number added, its lower half is that number */

/* ---- Each place ---- */

static graph *parsed(const char *text)
{
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    return g;
}

START_TEST(runs_on_the_host)
{
    const struct index_case *c = &index_cases[_i];
    graph *g = parsed(c->text);
    uint64_t rounds = SANITIZED && !scale_is_full() ? 2 : 8;
    for (uint64_t round = 0, seed = random_seed(); round < rounds; round++, seed++) {
        void **want = run_reference(g, seed);
        ck_assert_msg(want != NULL, "%s: %s", c->name, coda_error());
        for (int m = 0; m < RUN_MODES; m++) {
            coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
            opt.device = CODA_DEVICE_CPU;
            opt.flags = run_modes[m].flags;
            opt.fold = run_modes[m].fold;
            double error = run_on_cpu(g, seed, &opt, want);
            ck_assert_msg(error >= 0 && error <= c->tolerance, "%s, %s, seed %llu: error %g %s", c->name,
                          run_modes[m].name, (unsigned long long)seed, error, coda_error());
        }
        random_args_free(g, want);
    }
    graph_free(g);
}
END_TEST

static coda_plan *planned(const graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = "sm_90a";
    opt.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    return p;
}

/* Kernels read 64 bits where they read 32 of int32: nothing is converted ahead. The places that top_k finds
 * are int32, and a cast to int32 that changes nothing is none. */
START_TEST(no_launch_is_added)
{
    const struct index_case *c = &index_cases[_i];
    char narrow[1024];
    snprintf(narrow, sizeof narrow, "%s", c->text);
    for (char *at; (at = strstr(narrow, "i64"));) memcpy(at, "i32", 3);
    graph *g = parsed(c->text), *h = parsed(narrow);
    for (unsigned flags = 0; flags <= CODA_NO_FUSION; flags += CODA_NO_FUSION) {
        coda_plan *p = planned(g, CODA_PLAN_ONLY | flags), *q = planned(h, CODA_PLAN_ONLY | flags);
        coda_plan_stats a = CODA_PLAN_STATS_INIT, b = CODA_PLAN_STATS_INIT;
        ck_assert(!coda_plan_stats_get(p, &a) && !coda_plan_stats_get(q, &b));
        if (!strstr(c->name, "casts") && !strstr(c->name, "places")) ck_assert_int_eq(a.launches, b.launches);
        coda_plan_free(p);
        coda_plan_free(q);
    }
    graph_free(g);
    graph_free(h);
}
END_TEST

START_TEST(prints_what_it_parses)
{
    char *text[2];
    graph *g = parsed(index_cases[_i].text);
    for (int i = 0; i < 2; i++) {
        text[i] = printed_graph(g);
        graph_free(g);
        g = parsed(text[i]);
    }
    ck_assert_str_eq(text[0], text[1]);
    ck_assert_ptr_nonnull(strstr(text[0], " i64["));
    graph_free(g);
    free(text[0]);
    free(text[1]);
}
END_TEST

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    const struct index_case *c = &index_cases[_i];
    char why[256];
    if (!scale_takes_one_in(4, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = parsed(c->text);
    coda_plan *p = planned(g, scale_kernels_are_kept() ? 0 : CODA_NO_CACHE);
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        ck_assert_msg(k->info.spill_bytes == 0, "%s: %s spills %d bytes", c->name, k->info.name,
                      k->info.spill_bytes);
        ck_assert_msg(!k->cubin.warning[0], "%s: %s: %s", c->name, k->info.name, k->cubin.warning);
    }
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* ---- Numbers ---- */

START_TEST(are_stored_to_the_nearest)
{
    static const struct {
        double x;
        int64_t want;
    } table[] = {{0.9, 0},
                 {-0.9, 0},
                 {-100, -100},
                 {0x1p31, (int64_t)1 << 31},
                 {-0x1p40, -((int64_t)1 << 40)},
                 {0x1p53 - 1, ((int64_t)1 << 53) - 1},
                 {0x1p63, INT64_MAX},
                 {-0x1p63, INT64_MIN},
                 {0x1p63 - 1024, INT64_MAX - 1023},
                 {1e300, INT64_MAX},
                 {-1e300, INT64_MIN},
                 {INFINITY, INT64_MAX},
                 {-INFINITY, INT64_MIN},
                 {NAN, 0}};
    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        int64_t memory[2] = {7, 7};
        dtype_store(CODA_I64, memory, 1, table[i].x);
        ck_assert_int_eq(memory[1], table[i].want);
        ck_assert_int_eq(memory[0], 7);
        ck_assert_double_eq(dtype_load(CODA_I64, memory, 1), (double)table[i].want);
    }
    ck_assert_int_eq(dtype_bytes(CODA_I64, 1), 8);
    ck_assert(dtype_is_index(CODA_I64) && !dtype_is_float(CODA_I64));
}
END_TEST

/* A graph of few arguments, by the evaluator (0), unfused (1), fused (2) and folded (3). */
enum { WAYS = 4, MOST_ARGS = 8 };

static void *roomy(size_t bytes, const void *data)
{
    void *p = aligned_alloc(256, bytes / 256 * 256 + 256);
    memset(p, 0xaa, bytes / 256 * 256 + 256);
    if (data) memcpy(p, data, bytes);
    return p;
}

static void evaluate(const coda_graph *g, void **args)
{
    ck_assert_msg(!coda_evaluate(g, args), "%s", coda_error());
}

static void run_plan_of(const coda_graph *g, void **args, int way)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = way == 1 ? CODA_NO_FUSION : 0;
    opt.fold = way == 3 ? CODA_FOLD_COPY : CODA_FOLD_NONE;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    void *work = roomy(coda_plan_workspace(p), NULL), *prepared = roomy(coda_plan_prepared(p), NULL);
    if (way == 3) ck_assert_msg(!coda_prepare(p, args, prepared, work, NULL), "%s", coda_error());
    ck_assert_msg(!coda_run(p, args, prepared, work, NULL), "%s", coda_error());
    free(work);
    free(prepared);
    coda_plan_free(p);
}

/* The last argument is the only output, of fp32; `leaf` has the others' data. */
static void compute(const coda_graph *g, const void *const *leaf, int way, float *out, int64_t n)
{
    void *args[MOST_ARGS];
    int count = coda_graph_args(g);
    ck_assert_msg(!coda_graph_status(g), "%s", coda_error());
    ck_assert_int_le(count, MOST_ARGS);
    for (int i = 0; i + 1 < count; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_graph_arg(g, i, &a);
        args[i] = roomy(a.bytes, leaf[i]);
    }
    args[count - 1] = roomy(sizeof(double) * (size_t)n, NULL);
    if (way) run_plan_of(g, args, way);
    else evaluate(g, args);
    for (int64_t i = 0; i < n; i++)
        out[i] = way ? ((float *)args[count - 1])[i] : (float)((double *)args[count - 1])[i];
    for (int i = 0; i < count; i++) free(args[i]);
}

START_TEST(ids_beyond_int32_name_no_row)
{
    static const int64_t id[] = {4,       0,         -1,        5,        (int64_t)1 << 31, FAR + 3,
                                 3 - FAR, INT64_MIN, INT64_MAX, -FAR * 2, FAR * 1024,       3};
    enum { IDS = ARRAY_SIZE(id) };
    graph *g = parsed("%t = weight f32[5,2]\n%i = input i64[12]\n%y = embedding %t, %i\noutput %y = %y\n");
    float table[10], y[2 * IDS];
    for (int i = 0; i < 10; i++) table[i] = (float)(i + 1);
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){table, id}, way, y, 2 * IDS);
        for (int i = 0; i < 2 * IDS; i++) {
            int64_t row = id[i / 2];
            ck_assert_float_eq(y[i], row >= 0 && row < 5 ? table[2 * row + i % 2] : 0);
        }
    }
    graph_free(g);
}
END_TEST

/* A table as wide as there are rows: row i's id is i, which is the number of column i besides. */
START_TEST(rows_are_counted_of_a_square)
{
    enum { N = 3 };
    graph *g = parsed("%t = weight f32[4,3]\n%i = iota {n=3}\n%y = embedding %t, %i\noutput %y = %y\n");
    graph *none = parsed("%t = weight f32[1,0]\n%i = iota {n=0}\n%y = embedding %t, %i\noutput %y = %y\n");
    graph *key = parsed("%x = input f32[3,3]\n%i = iota {n=3}\n%y = select %x, %i\noutput %y = %y\n");
    float table[4 * N], y[N * N];
    for (int i = 0; i < 4 * N; i++) table[i] = (float)(i + 1);
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){table}, way, y, N * N);
        for (int i = 0; i < N * N; i++) ck_assert_float_eq(y[i], table[i]);
        compute(key, (const void *[]){table}, way, y, N);
        for (int i = 0; i < N; i++) ck_assert_float_eq(y[i], table[i * N + i]);
        compute(none, (const void *[]){table}, way, y, 0);
    }
    graph_free(g);
    graph_free(none);
    graph_free(key);
}
END_TEST

/* Of one column, the product's rows are its elements: 0, 1 and 0 as keys of the other operand. */
START_TEST(a_product_of_one_column_is_a_key)
{
    static const float t[] = {5, 6, 7}, x[] = {1, -1, 1, 0, 0, 0}, w[] = {1, 1}, want[] = {5, 0, 7};
    graph *g = parsed("%t = input f32[3,1]\n%x = input f32[3,2]\n%w = weight f32[1,2]\n%m = matmul %x, %w\n"
                      "%y = select %t, %m\noutput %y = %y\n");
    float y[3];
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){t, x, w}, way, y, 3);
        for (int i = 0; i < 3; i++) ck_assert_float_eq(y[i], want[i]);
    }
    graph_free(g);
}
END_TEST

/* Equal logits: each class that there is costs log 4. */
START_TEST(targets_beyond_int32_are_no_class)
{
    static const int64_t target[] = {2,         -100,      FAR + 2, FAR - 100, -100 - FAR,
                                     INT64_MIN, INT64_MAX, -1,      3,         (int64_t)1 << 31};
    static const float x[40];
    enum { ROWS = ARRAY_SIZE(target) };
    graph *g = parsed("%x = input f32[10,4]\n%i = input i64[10]\n%y = cross_entropy %x, %i {ignore=-100}\n"
                      "output %y = %y\n");
    float y[ROWS];
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){x, target}, way, y, ROWS);
        for (int i = 0; i < ROWS; i++) {
            if (target[i] == -100) ck_assert_float_eq(y[i], 0);
            else if (target[i] >= 0 && target[i] < 4) ck_assert_float_eq_tol(y[i], logf(4), 1e-6f);
            else ck_assert_float_nan(y[i]);
        }
    }
    graph_free(g);
}
END_TEST

/* Every other one of the positions is the caller's; of the pair (1, 0), column 0 becomes cos(position). */
START_TEST(positions_may_be_strided)
{
    static const int64_t at[] = {0, INT64_MAX, 3, INT64_MIN, 1000, 77};
    static const float x[] = {1, 0, 1, 0, 1, 0};
    graph *g =
        parsed("%x = input f32[3,2]\n%i = input i64[3] stride=[2]\n%y = rope %x, %i\noutput %y = %y\n");
    float y[6];
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){x, at}, way, y, 6);
        for (int i = 0; i < 3; i++) {
            ck_assert_float_eq_tol(y[2 * i], cosf((float)at[2 * i]), 1e-5f);
            ck_assert_float_eq_tol(y[2 * i + 1], sinf((float)at[2 * i]), 1e-5f);
        }
    }
    graph_free(g);
}
END_TEST

/* Queries of 0 weigh all keys alike: the result is the mean of the values that are seen, 1, 2, 3 ... */
static float mean_to(int64_t keys) { return keys ? (float)(keys + 1) / 2 : 0; }

START_TEST(lengths_beyond_int32_are_none_or_all)
{
    static const int64_t length[] = {3,         0,        -1, FAR + 3, 3 - FAR, INT64_MIN,
                                     INT64_MAX, -FAR - 5, 8,  9,       7,       (int64_t)1 << 31};
    enum { BATCH = ARRAY_SIZE(length), KEYS = 8 };
    static const float q[BATCH];
    float k[BATCH * KEYS], y[BATCH];
    graph *g = parsed("%q = input f32[12,1,1]\n%k = input f32[12,8,1]\n%l = input i64[12]\n"
                      "%y = attention %q, %k, %k, %l\noutput %y = %y\n");
    for (int i = 0; i < BATCH * KEYS; i++) k[i] = (float)(i % KEYS + 1);
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){q, k, length}, way, y, BATCH);
        for (int i = 0; i < BATCH; i++)
            ck_assert_float_eq_tol(y[i], mean_to(MAX(0, MIN(length[i], KEYS))), 1e-5f);
    }
    graph_free(g);
}
END_TEST

START_TEST(ranges_beyond_int32_are_cut)
{
    static const int64_t range[][2] = {
        {0, 3},       {INT64_MIN, INT64_MAX}, {-FAR + 2, FAR}, {FAR + 1, FAR + 4},
        {0, 4 - FAR}, {INT64_MAX, INT64_MAX}, {4, FAR + 5},    {0, INT64_MIN}};
    static const float want[] = {2, 4.5f, 4.5f, 0, 0, 0, 6.5f, 0}, q[8];
    float k[8], y[8];
    graph *g = parsed("%q = input f32[8,1]\n%k = input f32[8,1]\n%r = input i64[8,2]\n"
                      "%y = attention %q, %k, %k, _, %r\noutput %y = %y\n");
    for (int i = 0; i < 8; i++) k[i] = (float)(i + 1);
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){q, k, range}, way, y, 8);
        for (int i = 0; i < 8; i++) ck_assert_float_eq_tol(y[i], want[i], 1e-5f);
    }
    graph_free(g);
}
END_TEST

/* Of a packed call with pages: sequence 0 has rows 0 and 1, 1 the others. No page is 2^32 or beyond. */
START_TEST(starts_and_tables_beyond_int32)
{
    static const int64_t start[] = {INT64_MIN, 2, INT64_MAX}, table[] = {1, FAR, 0, FAR + 2};
    static const float q[4];
    float k[6], y[4];
    graph *g = parsed("%q = input f32[4,1]\n%k = input f32[6,1]\n%t = input i64[2,2]\n%s = input i64[3]\n"
                      "%l = constant {to=i64, value=4}\n%z = constant {to=i64, value=0}\n"
                      "%o = slice %s {axis=0, stop=2, step=1}\n%f = mul %o, %z\n%h = add %f, %l\n"
                      "%n = cast %h {to=i64}\n"
                      "%y = attention %q, %k, %k, %n, _, _, _, %t, _, _, %s {page=2}\noutput %y = %y\n");
    for (int i = 0; i < 6; i++) k[i] = (float)(i + 1);
    for (int way = 0; way < WAYS; way++) {
        compute(g, (const void *[]){q, k, table, start}, way, y, 4);
        for (int i = 0; i < 4; i++) /* pages 1 and none; pages 0 and none */
            ck_assert_float_eq_tol(y[i], i < 2 ? (3 + 4) / 4.0f : (1 + 2) / 4.0f, 1e-6f);
    }
    graph_free(g);
}
END_TEST

/* What a run leaves in a state of int64, by slots of int64. */
static void append(int way, int64_t *state, const int64_t *rows, const int64_t *slots)
{
    graph *g =
        parsed("%s = state i64[4,2]\n%x = input i64[5,2]\n%i = input i64[5]\n%n = append %s, %x, %i\n");
    void *args[] = {roomy(8 * sizeof *state, state), roomy(10 * sizeof *rows, rows),
                    roomy(5 * sizeof *slots, slots)};
    if (way) run_plan_of(g, args, way);
    else evaluate(g, args);
    memcpy(state, args[0], 8 * sizeof *state);
    for (int i = 0; i < 3; i++) free(args[i]);
    graph_free(g);
}

START_TEST(slots_beyond_int32_keep_nothing)
{
    static const int64_t rows[] = {10, -10, 20, 1 << 20, 30, 31, 40, 41, 50, 51};
    static const int64_t slots[] = {3, 0, FAR + 1, INT64_MIN, 2 - FAR};
    static const int64_t want[] = {20, 1 << 20, 3, 4, 5, 6, 10, -10};
    for (int way = 0; way < WAYS; way++) {
        int64_t state[] = {1, 2, 3, 4, 5, 6, 7, 8};
        append(way, state, rows, slots);
        ck_assert_mem_eq(state, want, sizeof want);
    }
}
END_TEST

/* A key that int32 has not selects nothing; one cast to int32 is the nearest. */
START_TEST(keys_and_casts)
{
    static const int64_t key[] = {2, FAR + 2, INT64_MIN, INT64_MAX};
    static const float want[4][3] = {
        {3, 2, 2}, {0, 0x1p31f, 0x1p32f}, {0, -0x1p31f, -0x1p63f}, {0, 0x1p31f, 0x1p63f}};
    static const float x[] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    static const char *const texts[] = {
        "%y = select %x, %i\n", "%c = cast %i {to=i32}\n%y = cast %c {to=f32}\n", "%y = cast %i {to=f32}\n"};
    for (int t = 0; t < 3; t++) {
        char text[256];
        snprintf(text, sizeof text, "%%x = input f32[4,3]\n%%i = input i64[4]\n%soutput %%y = %%y\n",
                 texts[t]);
        graph *g = parsed(text);
        for (int way = 0; way < WAYS; way++) {
            float y[4];
            compute(g, (const void *[]){x, key}, way, y, 4);
            for (int i = 0; i < 4; i++) ck_assert_float_eq(y[i], want[i][t]);
        }
        graph_free(g);
    }
}
END_TEST

START_TEST(numbers_are_folded_as_they_are_stored)
{
    static const char text[] =
        "%x = input f32[1]\n%c = constant {to=f32, value=VALUE}\n%i = cast %c {to=TYPE}\n"
        "%f = cast %i {to=f32}\n%y = add %x, %f\noutput %y = %y\n";
    static const struct {
        const char *value, *type;
        float want;
    } table[] = {{"1e20", "i64", 0x1p63f}, {"-1e20", "i64", -0x1p63f}, {"-7.9", "i64", -7},
                 {"nan", "i64", 0},        {"1e20", "i32", 0x1p31f},   {"nan", "i32", 0}};
    static const float x[1];
    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        char own[256];
        const char *value = strstr(text, "VALUE"), *type = strstr(text, "TYPE");
        snprintf(own, sizeof own, "%.*s%s%.*s%s%s", (int)(value - text), text, table[i].value,
                 (int)(type - value - 5), value + 5, table[i].type, type + 4);
        graph *g = parsed(own);
        for (int way = 0; way < WAYS; way++) {
            float y;
            compute(g, (const void *[]){x}, way, &y, 1);
            ck_assert_float_eq(y, table[i].want);
        }
        graph_free(g);
    }
}
END_TEST

/* ---- The interface ---- */

START_TEST(arguments_have_8_bytes_an_element)
{
    coda_graph *g = coda_graph_new();
    coda_value i = coda_input_strided(g, "i", CODA_I64, 2, (int64_t[]){3, 5}, (int64_t[]){10, 2});
    coda_value w = coda_weight(g, "w", CODA_I64, 1, (int64_t[]){5}),
               s = coda_state(g, "s", CODA_I64, 0, NULL);
    coda_dtype t;
    coda_output(g, "y", coda_cast(g, coda_add(g, coda_add(g, i, w), s), CODA_I64));
    static const size_t bytes[] = {29 * 8, 5 * 8, 8, 15 * 8};
    for (int k = 0; k < 4; k++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        ck_assert(!coda_graph_arg(g, k, &a));
        ck_assert(a.dtype == CODA_I64);
        ck_assert_uint_eq(a.bytes, bytes[k]);
    }
    ck_assert(coda_value_shape(g, coda_add(g, i, w), NULL, &t) == 2 && t == CODA_F32);
    coda_graph_free(g);
}
END_TEST

START_TEST(draws_by_int64_are_those_by_int32)
{
    enum { ROWS = 6, COLUMNS = 50 };
    static const int64_t wide[] = {7, 3, 0, 1, 2, 3, 4, 5, 9, 9, 9, 9, 9, 9};
    static const int32_t narrow[] = {7, 3, 0, 1, 2, 3, 4, 5, 9, 9, 9, 9, 9, 9};
    float x[ROWS * COLUMNS], y[2][ROWS];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)(i * 37 % 101) / 30;
    for (int k = 0; k < 2; k++) {
        coda_dtype t = k ? CODA_I64 : CODA_I32;
        coda_graph *g = coda_graph_new();
        coda_sample_options opt = CODA_SAMPLE_OPTIONS_INIT;
        coda_value logits = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, COLUMNS});
        coda_value all = coda_input(g, "all", t, 1, (int64_t[]){2 + 2 * ROWS});
        coda_value seeds = coda_reshape(g, coda_slice(g, all, 0, 0, 2, 1), 2, (int64_t[]){1, 2});
        opt.top_k = coda_slice(g, all, 0, 2 + ROWS, 2 + 2 * ROWS, 1);
        coda_value drawn = coda_sample(g, logits, seeds, coda_slice(g, all, 0, 2, 2 + ROWS, 1), &opt, NULL);
        coda_output(g, "y", coda_cast(g, coda_cast(g, drawn, t), CODA_F32));
        compute(g, (const void *[]){x, k ? (const void *)wide : narrow}, 2, y[k], ROWS);
        coda_graph_free(g);
    }
    ck_assert_mem_eq(y[0], y[1], sizeof y[0]);
}
END_TEST

static const struct {
    const char *text, *error;
} refused[] = {
    {"%s = scalar i64\n", "line 1: scalar s: its dtype is i64; must be f32 or i32"},
    {"%x = input i64[4,4]\n%y = matmul %x, %x\n",
     "line 2: matmul: x is i64[4,4]; it must be f32, bf16 or f16"},
    {"%x = input i64[4,4]\n%y = rms_norm %x\n", "i64[4,4]"},
    {"%y = constant {to=i64, value=16777216}\n", "line 1: constant: 16777216 is no i64 below 2^24"},
    {"%y = constant {to=i64, value=0.5}\n", "line 1: constant: 0.5 is no i64 below 2^24"},
    {"%s = state i64[4]\n%i = input i32[4]\n%y = assign %s, %i\n",
     "line 3: assign: the state is i64[4] but the value is i32[4]; they must be equal"},
    {"%s = state i32[4,2]\n%x = input i64[3,2]\n%i = input i64[3]\n%y = append %s, %x, %i\n",
     "line 4: append: the state is i32[4,2] but rows are i64[3,2]; coda_cast them"},
    {"%x = input f32[4,4]\n%i = input i64[3]\n%y = cross_entropy %x, %i\n",
     "targets are i64[3]; must be i32 or i64, one for each row"},
    {"%x = input i65[4]\n", "line 1: `i65` is no dtype"},
};

START_TEST(says_what_is_wrong)
{
    coda_graph *g = NULL;
    ck_assert_int_eq(coda_graph_parse(&g, refused[_i].text), CODA_E_INVALID);
    ck_assert_msg(strstr(mistake_plain(coda_error()), refused[_i].error) != NULL, "%s", coda_error());
}
END_TEST

TESTS(indices, SOME(runs_on_the_host, index_case_count), EACH(no_launch_is_added, index_case_count),
      EACH(prints_what_it_parses, index_case_count), ONE(are_stored_to_the_nearest),
      ONE(ids_beyond_int32_name_no_row), ONE(rows_are_counted_of_a_square),
      ONE(a_product_of_one_column_is_a_key), ONE(targets_beyond_int32_are_no_class),
      ONE(positions_may_be_strided), ONE(lengths_beyond_int32_are_none_or_all),
      ONE(ranges_beyond_int32_are_cut), ONE(starts_and_tables_beyond_int32),
      ONE(slots_beyond_int32_keep_nothing), ONE(keys_and_casts), ONE(numbers_are_folded_as_they_are_stored),
      ONE(arguments_have_8_bytes_an_element), ONE(draws_by_int64_are_those_by_int32),
      EACH(says_what_is_wrong, ARRAY_SIZE(refused)), CASE("nvrtc"), TAG("nvrtc"),
      EACH(compiles, index_case_count));
