/*
 * test_maps.c -- calls that formulas are written in: numbers, comparisons, choices, gated units. What they
 * make of numbers, by NumPy's word or its fp64; what they make of graphs, and what they refuse.
 */
#include "base.h" /* before check.h, which has a macro called fail */

#include "util_mistake.h"
#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef coda_value unary(coda_graph *, coda_value);
typedef coda_value binary(coda_graph *, coda_value, coda_value);

enum { MOST_ARGS = 32 };
static const unsigned ways[] = {0, CODA_NO_FUSION};

static void *poisoned(size_t bytes, int byte)
{
    size_t size = (bytes / 256 + 1) * 256;
    return memset(aligned_alloc(256, size), byte, size);
}

/* Plans on the CPU device, fused or not, and runs. Outputs begin as poison. Returns the launches. */
static int run(coda_graph *g, void **args, unsigned flags)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_plan *p;
    o.device = CODA_DEVICE_CPU;
    o.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < coda_graph_args(g); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_graph_arg(g, i, &a);
        if (a.kind == CODA_ARG_OUTPUT) memset(args[i], 0xff, a.bytes);
    }
    void *prepared = poisoned(coda_plan_prepared(p), 0xff),
         *workspace = poisoned(coda_plan_workspace(p), 0xff);
    ck_assert_msg(!coda_prepare(p, args, prepared, workspace, NULL), "%s", coda_error());
    ck_assert_msg(!coda_run(p, args, prepared, workspace, NULL), "%s", coda_error());
    coda_plan_stats_get(p, &stats);
    coda_prepare_forget(NULL, 0);
    free(prepared), free(workspace);
    coda_plan_free(p);
    return stats.launches;
}

static void expect(const char *what, double got, double want, double error)
{
    bool good = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= error * fabs(want);
    ck_assert_msg(good, "%s is %.9g; must be %.9g", what, got, want);
}

/* ---- Of one number ---- */

enum { NUMBERS = 13 };
static const float numbers[NUMBERS] = {NAN,  -INFINITY, -2.5f, -0.5f, -0.0f, 0,       1e-40f,
                                       0.5f, 1,         1.5f,  2.5f,  80,    INFINITY};

static coda_value clip(coda_graph *g, coda_value x) { return coda_clip(g, x, -1, 2); }
static coda_value crossed(coda_graph *g, coda_value x) { return coda_clip(g, x, 1, -1); }
static coda_value unbounded(coda_graph *g, coda_value x) { return coda_clip(g, x, NAN, 1); }

static const struct {
    const char *name;
    unary *call;
    double want[NUMBERS];
} unaries[] = {
    {"exp",
     coda_exp,
     {NAN, 0, 0.0820849986238988, 0.60653065971263342, 1, 1, 1, 1.6487212707001282, 2.7182818284590451,
      4.4816890703380645, 12.182493960703473, 5.5406223843935098e+34, INFINITY}},
    {"log",
     coda_log,
     {NAN, NAN, NAN, NAN, -INFINITY, -INFINITY, -92.103409109664881, -0.69314718055994529, 0,
      0.40546510810816438, 0.91629073187415511, 4.3820266346738812, INFINITY}},
    {"sqrt",
     coda_sqrt,
     {NAN, NAN, NAN, NAN, -0.0, 0, 9.9999730505210661e-21, 0.70710678118654757, 1, 1.2247448713915889,
      1.5811388300841898, 8.9442719099991592, INFINITY}},
    {"rsqrt",
     coda_rsqrt,
     {NAN, NAN, NAN, NAN, -INFINITY, INFINITY, 1.0000026949551561e+20, 1.4142135623730949, 1,
      0.81649658092772615, 0.63245553203367588, 0.11180339887498948, 0}},
    {"reciprocal",
     coda_reciprocal,
     {NAN, -0.0, -0.4, -2, -INFINITY, INFINITY, INFINITY, 2, 1, 2.0 / 3, 0.4, 0.0125, 0}},
    {"neg", coda_neg, {NAN, INFINITY, 2.5, 0.5, 0, -0.0, -1e-40, -0.5, -1, -1.5, -2.5, -80, -INFINITY}},
    {"abs", coda_abs, {NAN, INFINITY, 2.5, 0.5, 0, 0, 1e-40, 0.5, 1, 1.5, 2.5, 80, INFINITY}},
    {"sign", coda_sign, {NAN, -1, -1, -1, 0, 0, 1, 1, 1, 1, 1, 1, 1}},
    {"floor", coda_floor, {NAN, -INFINITY, -3, -1, -0.0, 0, 0, 0, 1, 1, 2, 80, INFINITY}},
    {"ceil", coda_ceil, {NAN, -INFINITY, -2, -0.0, -0.0, 0, 1, 1, 1, 2, 3, 80, INFINITY}},
    {"round", coda_round, {NAN, -INFINITY, -2, -0.0, -0.0, 0, 0, 0, 1, 2, 2, 80, INFINITY}},
    {"logical_not", coda_logical_not, {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0}},
    {"clip", clip, {NAN, -1, -1, -0.5, -0.0, 0, 1e-40, 0.5, 1, 1.5, 2, 2, 2}},
    {"clip, crossed", crossed, {NAN, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}},
    {"clip, unbounded", unbounded, {NAN, -INFINITY, -2.5, -0.5, -0.0, 0, 1e-40, 0.5, 1, 1, 1, 1, 1}},
};

/* fp64 knows fp32's limits no more than NumPy does. */
static bool is_beyond_f32(double reference, double want) { return isinf(want) && fabs(reference) > 3.4e38; }

START_TEST(numbers_are_those_of_numpy)
{
    float y[NUMBERS];
    double reference[NUMBERS];
    coda_graph *g = coda_graph_new();
    coda_output(g, "y", unaries[_i].call(g, coda_input(g, "x", CODA_F32, 1, (int64_t[]){NUMBERS})));
    ck_assert_int_eq(coda_evaluate(g, (void *[]){(void *)numbers, reference}), CODA_OK);
    for (int i = 0; i < NUMBERS; i++)
        if (!is_beyond_f32(reference[i], unaries[_i].want[i]))
            expect(unaries[_i].name, reference[i], unaries[_i].want[i], 1e-5); /* 1e-40f has few digits */
    for (int w = 0; w < ARRAY_SIZE(ways); w++) {
        ck_assert_int_eq(run(g, (void *[]){(void *)numbers, y}, ways[w]), 1);
        for (int i = 0; i < NUMBERS; i++) expect(unaries[_i].name, (double)y[i], unaries[_i].want[i], 1e-5);
    }
    coda_graph_free(g);
}
END_TEST

/* ---- Of two ---- */

enum { PAIRS = 11 };
static const float left[PAIRS] = {1, 2, 2, -0.0f, NAN, 1, NAN, INFINITY, -INFINITY, 0, 1};
static const float right[PAIRS] = {2, 1, 2, 0, 1, NAN, NAN, INFINITY, INFINITY, -3, 0};

static const struct {
    const char *name;
    binary *call;
    double want[PAIRS];
} binaries[] = {
    {"equal", coda_equal, {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0}},
    {"not_equal", coda_not_equal, {1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1}},
    {"less", coda_less, {1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0}},
    {"less_equal", coda_less_equal, {1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0}},
    {"greater", coda_greater, {0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1}},
    {"greater_equal", coda_greater_equal, {0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 1}},
    {"logical_and", coda_logical_and, {1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0}},
    {"logical_or", coda_logical_or, {1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1}},
    {"minimum", coda_minimum, {1, 1, 2, 0, NAN, NAN, NAN, INFINITY, -INFINITY, -3, 0}},
    {"maximum", coda_maximum, {2, 2, 2, 0, NAN, NAN, NAN, INFINITY, INFINITY, 0, 1}},
};

START_TEST(pairs_are_those_of_numpy)
{
    float y[PAIRS];
    double reference[PAIRS];
    coda_graph *g = coda_graph_new();
    coda_value a = coda_input(g, "a", CODA_F32, 1, (int64_t[]){PAIRS});
    coda_value b = coda_input(g, "b", CODA_F32, 1, (int64_t[]){PAIRS});
    coda_output(g, "y", binaries[_i].call(g, a, b));
    ck_assert_int_eq(coda_evaluate(g, (void *[]){(void *)left, (void *)right, reference}), CODA_OK);
    for (int w = 0; w < ARRAY_SIZE(ways); w++) {
        ck_assert_int_eq(run(g, (void *[]){(void *)left, (void *)right, y}, ways[w]), 1);
        for (int i = 0; i < PAIRS; i++) {
            expect(binaries[_i].name, (double)y[i], binaries[_i].want[i], 0);
            expect(binaries[_i].name, reference[i], binaries[_i].want[i], 0);
        }
    }
    coda_graph_free(g);
}
END_TEST

/* ---- where ---- */

enum { TOKENS = 4, WIDTH = 6, PAD = 7 };

/* x [TOKENS, WIDTH] in bf16, whose padded tokens hold what must not be seen; ids say which these are. */
START_TEST(masks_of_ids_hide_what_they_should)
{
    static const int32_t ids[TOKENS] = {3, PAD, 0, PAD};
    uint16_t x[TOKENS * WIDTH], y[TOKENS * WIDTH], z[TOKENS * WIDTH];
    float mask[TOKENS], kept[TOKENS];
    coda_graph *g = coda_graph_new();
    coda_value i = coda_input(g, "ids", CODA_I32, 2, (int64_t[]){TOKENS, 1});
    coda_value v = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){TOKENS, WIDTH});
    coda_value is_pad = coda_equal(g, i, coda_constant(g, CODA_I32, PAD));
    coda_output(g, "mask", is_pad);
    coda_output(g, "y", coda_where(g, is_pad, coda_constant(g, CODA_BF16, -1), v));
    coda_output(g, "z", coda_where(g, coda_logical_not(g, is_pad), v, coda_constant(g, CODA_F32, 0.5)));
    coda_output(g, "kept", coda_minimum(g, i, coda_constant(g, CODA_I32, 2)));
    for (int k = 0; k < TOKENS * WIDTH; k++)
        x[k] = ids[k / WIDTH] == PAD ? (k % 2 ? 0x7fc0 : 0x7f80) : (uint16_t)(0x3f80 + k); /* NaN, inf */
    for (int w = 0; w < ARRAY_SIZE(ways); w++) {
        run(g, (void *[]){(void *)ids, x, mask, y, z, kept}, ways[w]);
        for (int k = 0; k < TOKENS * WIDTH; k++) {
            bool pad = ids[k / WIDTH] == PAD;
            ck_assert_int_eq(y[k], pad ? 0xbf80 : x[k]);
            ck_assert_int_eq(z[k], pad ? 0x3f00 : x[k]);
            expect("mask", (double)mask[k / WIDTH], pad, 0);
            expect("minimum of ids", (double)kept[k / WIDTH], MIN(ids[k / WIDTH], 2), 0);
        }
    }
    coda_graph_free(g);
}
END_TEST

/* A causal mask by positions, as in a score that is written by hand: -inf where a key is ahead. */
START_TEST(a_choice_broadcasts_three)
{
    enum { B = 2, T = 3 };
    float x[B * T * T], y[B * T * T];
    coda_graph *g = coda_graph_new();
    coda_value s = coda_input(g, "s", CODA_F32, 3, (int64_t[]){B, T, T}), j = coda_iota(g, T);
    coda_value i = coda_reshape(g, coda_iota(g, T), 2, (int64_t[]){T, 1});
    coda_value seen = coda_less_equal(g, j, i);
    coda_output(g, "y", coda_where(g, seen, s, coda_constant(g, CODA_F32, -INFINITY)));
    for (int k = 0; k < B * T * T; k++) x[k] = (float)k;
    for (int w = 0; w < ARRAY_SIZE(ways); w++) {
        run(g, (void *[]){x, y}, ways[w]);
        for (int k = 0; k < B * T * T; k++)
            expect("a score", (double)y[k], k % T <= k / T % T ? k : -INFINITY, 0);
    }
    coda_graph_free(g);
}
END_TEST

/* ---- Gated units, in a product's epilogue ---- */

enum { ROWS = 5, INNER = 8, UNITS = 6 };

/* torch.nn.functional.gelu(gate) * up, whose default is by erf. */
static double geglu_erf(double gate, double up) { return 0.5 * gate * (1 + erf(gate / sqrt(2))) * up; }

/* gpt_oss/torch/model.py: x_glu.clamp(max=limit), x_linear.clamp(-limit, limit),
 * x_glu * sigmoid(alpha * x_glu) * (x_linear + 1). */
static double clamped(double gate, double up)
{
    gate = fmin(gate, 7), up = fmax(-7, fmin(up, 7));
    return gate / (1 + exp(-1.702 * gate)) * (up + 1);
}

static coda_value clamped_call(coda_graph *g, coda_value x, coda_layout layout)
{
    return coda_swiglu_clamped(g, x, layout, 1.702f, 7);
}

static const struct {
    const char *name;
    coda_value (*call)(coda_graph *, coda_value, coda_layout);
    double (*formula)(double, double);
} gates[] = {{"geglu_erf", coda_geglu_erf, geglu_erf}, {"swiglu_clamped", clamped_call, clamped}};

static double product(const float *x, const float *w)
{
    double sum = 0;
    for (int k = 0; k < INNER; k++) sum += (double)x[k] * (double)w[k];
    return sum;
}

START_TEST(gates_are_computed_in_the_product)
{
    static const coda_layout layouts[] = {CODA_INTERLEAVED, CODA_STACKED};
    float x[ROWS * INNER], w[2 * UNITS * INNER], y[ROWS * UNITS];
    coda_layout layout = layouts[_i % 2];
    coda_graph *g = coda_graph_new();
    coda_value in = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, INNER});
    coda_value weight = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){2 * UNITS, INNER});
    coda_output(g, "y", gates[_i / 2].call(g, coda_matmul(g, in, weight), layout));
    for (int k = 0; k < ROWS * INNER; k++) x[k] = (float)(4 * sin(3 * k + 1));
    for (int k = 0; k < 2 * UNITS * INNER; k++) w[k] = (float)sin(5 * k + 2);
    for (int way = 0; way < ARRAY_SIZE(ways); way++) {
        int launches = run(g, (void *[]){x, w, y}, ways[way]);
        ck_assert(ways[way] ? launches > 1 : launches == 1);
        for (int k = 0; k < ROWS * UNITS; k++) {
            bool stacked = layout == CODA_STACKED;
            int row = k / UNITS, unit = k % UNITS;
            int gate = stacked ? unit : 2 * unit, up = stacked ? unit + UNITS : gate + 1;
            double a = product(x + row * INNER, w + gate * INNER),
                   b = product(x + row * INNER, w + up * INNER);
            double want = gates[_i / 2].formula(a, b);
            ck_assert_msg(fabs((double)y[k] - want) < 1e-5 * (1 + fabs(want)), "%s: %g; must be %g",
                          gates[_i / 2].name, (double)y[k], want);
        }
    }
    coda_graph_free(g);
}
END_TEST

/* Of each row by its id: the product's epilogue has the ids, and no kernel makes the mask. */
START_TEST(masks_of_ids_are_computed_in_the_product)
{
    static const int32_t ids[ROWS] = {PAD, 1, 2, PAD, 0};
    float x[ROWS * INNER], w[UNITS * INNER], y[ROWS * UNITS];
    coda_graph *g = coda_graph_new();
    coda_value in = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, INNER});
    coda_value weight = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){UNITS, INNER});
    coda_value i = coda_input(g, "ids", CODA_I32, 2, (int64_t[]){ROWS, 1});
    coda_value is_pad = coda_equal(g, i, coda_constant(g, CODA_I32, PAD));
    coda_value least = coda_constant(g, CODA_F32, -INFINITY);
    coda_output(g, "y", coda_where(g, is_pad, least, coda_matmul(g, in, weight)));
    for (int k = 0; k < ROWS * INNER; k++) x[k] = (float)sin(3 * k + 1);
    for (int k = 0; k < UNITS * INNER; k++) w[k] = (float)sin(5 * k + 2);
    for (int way = 0; way < ARRAY_SIZE(ways); way++) {
        int launches = run(g, (void *[]){x, w, (void *)ids, y}, ways[way]);
        ck_assert_int_eq(launches, ways[way] ? 3 : 1);
        for (int k = 0; k < ROWS * UNITS; k++) {
            double sum = product(x + k / UNITS * INNER, w + k % UNITS * INNER);
            expect("a product", (double)y[k], ids[k / UNITS] == PAD ? -INFINITY : sum, 1e-4);
        }
    }
    coda_graph_free(g);
}
END_TEST

/* ---- Graphs and mistakes ---- */

static coda_graph *g;
static coda_value x, ids, mask, odd;

static void setup(void)
{
    g = coda_graph_new();
    x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){4, 8});
    ids = coda_input(g, "ids", CODA_I32, 2, (int64_t[]){4, 1});
    mask = coda_input(g, "mask", CODA_F32, 1, (int64_t[]){8});
    odd = coda_input(g, "odd", CODA_F32, 2, (int64_t[]){3, 7});
}

static void teardown(void) { coda_graph_free(g), g = NULL; }

START_TEST(graphs_say_what_was_called)
{
    char text[4096];
    coda_graph *again;
    coda_value e = coda_exp(g, x), small = coda_minimum(g, e, coda_abs(g, coda_neg(g, x)));
    coda_value seen = coda_logical_and(g, coda_not_equal(g, ids, coda_constant(g, CODA_I32, 0)), mask);
    coda_output(g, "a", coda_where(g, seen, small, coda_reciprocal(g, coda_clip(g, x, 0.5f, INFINITY))));
    coda_output(g, "b", coda_where(g, coda_less(g, x, mask), ids, mask));
    coda_output(g, "c", coda_swiglu_clamped(g, x, CODA_STACKED, 1.75f, 7));
    ck_assert_int_lt(coda_graph_print(g, text, sizeof text), (int64_t)sizeof text);
    ck_assert_str_eq(text,
                     "%x = input bf16[4,8]\n"
                     "%ids = input i32[4,1]\n"
                     "%mask = input f32[8]\n"
                     "%odd = input f32[3,7]\n"
                     "%4 = exp %x  ; bf16[4,8]\n"
                     "%5 = scale %x {alpha=-0x1p+0}  ; bf16[4,8]\n"
                     "%6 = abs %5  ; bf16[4,8]\n"
                     "%7 = minimum %4, %6  ; bf16[4,8]\n"
                     "%8 = constant {to=i32, value=0x0p+0}  ; i32[]\n"
                     "%9 = not_equal %ids, %8  ; f32[4,1]\n"
                     "%10 = logical_and %9, %mask  ; f32[4,8]\n"
                     "%11 = clip %x {low=0x1p-1, high=inf}  ; bf16[4,8]\n"
                     "%12 = rcp %11  ; bf16[4,8]\n"
                     "%13 = where %10, %7, %12  ; bf16[4,8]\n"
                     "%14 = less %x, %mask  ; bf16[4,8]\n"
                     "%15 = where %14, %ids, %mask  ; f32[4,8]\n"
                     "%16 = slice %x {axis=1, stop=4, step=1}  ; bf16[4,4]\n"
                     "%17 = slice %x {axis=1, start=4, stop=8, step=1} @%16  ; bf16[4,4]\n"
                     "%18 = swiglu_clamped %16, %17 {alpha=0x1.cp+0, limit=0x1.cp+2} @%16  ; bf16[4,4]\n"
                     "output %a = %13\noutput %b = %15\noutput %c = %18\n");
    ck_assert_msg(coda_graph_parse(&again, text) == CODA_OK, "%s", coda_error());
    char parsed[sizeof text];
    coda_graph_print(again, parsed, sizeof parsed);
    ck_assert_str_eq(text, parsed);
    coda_graph_free(again);
}
END_TEST

static void where_shapes(void) { coda_where(g, mask, x, odd); }
static void where_condition(void) { coda_where(g, odd, x, x); }
static void where_none(void) { coda_where(g, mask, x, CODA_NONE); }
static void where_foreign(void) { coda_where(g, (coda_value){9}, x, x); }
static void equal_shapes(void) { coda_equal(g, ids, odd); }
static void minimum_none(void) { coda_minimum(g, CODA_NONE, x); }
static void exp_none(void) { coda_exp(g, CODA_NONE); }
static void log_of_fp8(void) { coda_log(g, coda_state(g, "k", CODA_F8E4M3, 2, (int64_t[]){4, 8})); }
static void geglu_odd(void) { coda_geglu_erf(g, odd, CODA_STACKED); }
static void clamped_odd(void) { coda_swiglu_clamped(g, odd, CODA_STACKED, 1, 7); }
static void clamped_layout(void) { coda_swiglu_clamped(g, x, (coda_layout)3, 1, 7); }
static void clamped_limit(void) { coda_swiglu_clamped(g, x, CODA_STACKED, 1, -7); }
static void clamped_nan(void) { coda_swiglu_clamped(g, x, CODA_STACKED, 1, NAN); }
static void apply_arity(void) { coda_apply(g, "where", (coda_value[]){mask, x}, 2, NULL); }
static void apply_params(void) { coda_apply(g, "swiglu_clamped", (coda_value[]){x, x}, 2, NULL); }

static const struct {
    void (*call)(void);
    const char *message;
} wrong[] = {
    {where_shapes, "where: operand 0 is [8] but operand 2 is [3,7]; they do not broadcast: 8 and 7 differ"},
    {where_condition,
     "where: operand 0 is [3,7] but operand 1 is [4,8]; they do not broadcast: 7 and 8 differ"},
    {where_none, "where: operand 2 is CODA_NONE"},
    {where_foreign, "where: value 9 is of another graph; this one has 4"},
    {equal_shapes, "equal: operand 0 is [4,1] but operand 1 is [3,7]; they do not broadcast: 4 and 3 differ"},
    {minimum_none, "minimum: operand 0 is CODA_NONE"},
    {exp_none, "exp: operand 0 is CODA_NONE"},
    {log_of_fp8, "log: operand 0 is f8e4m3[4,8]; only a product's w, attention's k and v, coda_cast, views, "
                 "coda_all_gather and coda_assign read 8 bits"},
    {geglu_odd, "geglu_erf: x is [3,7]; its columns must be even"},
    {clamped_odd, "swiglu_clamped: x is [3,7]; its columns must be even"},
    {clamped_layout, "swiglu_clamped: layout is 3; must be 0 or 1"},
    {clamped_limit, "swiglu_clamped: limit is -7; must be >= 0"},
    {clamped_nan, "swiglu_clamped: limit is nan; must be >= 0"},
    {apply_arity, "where: takes 3 operands, got 2"},
    {apply_params, "swiglu_clamped: takes 2 params, got NULL"},
};

START_TEST(mistakes_are_said)
{
    wrong[_i].call();
    ck_assert_str_eq(mistake_plain(coda_error()), wrong[_i].message);
    coda_graph_status(g);
    ck_assert_ptr_null(strstr(coda_error(), "calls after it")); /* nor those that the same call makes */
    ck_assert_int_eq((int)coda_where(g, mask, x, x).id, 0);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_str_eq(mistake_plain(coda_error()), wrong[_i].message);
}
END_TEST

#define EXPECT_NULL(call, what)                                                                              \
    do {                                                                                                     \
        ck_assert_int_eq((int)(call).id, 0);                                                                 \
        ck_assert_str_eq(coda_error(), what ": the graph is NULL");                                          \
    } while (0)

START_TEST(null_graph)
{
    for (int i = 0; i < ARRAY_SIZE(unaries); i++) {
        ck_assert_int_eq((int)unaries[i].call(NULL, x).id, 0);
        ck_assert_ptr_nonnull(strstr(coda_error(), ": the graph is NULL"));
    }
    for (int i = 0; i < ARRAY_SIZE(binaries); i++) {
        ck_assert_int_eq((int)binaries[i].call(NULL, x, x).id, 0);
        ck_assert_ptr_nonnull(strstr(coda_error(), ": the graph is NULL"));
    }
    EXPECT_NULL(coda_where(NULL, x, x, x), "where");
    EXPECT_NULL(coda_geglu_erf(NULL, x, CODA_STACKED), "geglu_erf");
    EXPECT_NULL(coda_swiglu_clamped(NULL, x, CODA_STACKED, 1, -1), "swiglu_clamped");
}
END_TEST

TESTS(maps, EACH(numbers_are_those_of_numpy, ARRAY_SIZE(unaries)),
      EACH(pairs_are_those_of_numpy, ARRAY_SIZE(binaries)), ONE(masks_of_ids_hide_what_they_should),
      ONE(a_choice_broadcasts_three), EACH(gates_are_computed_in_the_product, 2 * ARRAY_SIZE(gates)),
      ONE(masks_of_ids_are_computed_in_the_product), CASE("graphs"), AROUND(setup, teardown),
      ONE(graphs_say_what_was_called), EACH(mistakes_are_said, ARRAY_SIZE(wrong)), ONE(null_graph));
