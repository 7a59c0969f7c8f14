/*
 * test_w8a8.c -- activations in fp8, and products of fp8 by fp8. What coda_quantize_rows writes is compared
 * byte by byte with the nearest value of the dtype, found by search; products with sums in fp64 of what the
 * bytes mean, which their fields say.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util_mistake.h"
#include "util_print.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

/* ---- What the bytes mean ---- */

static double meaning(coda_dtype t, int byte)
{
    int mantissa = t == CODA_F8E4M3 ? 3 : 2, bias = t == CODA_F8E4M3 ? 7 : 15, size = byte & 0x7f;
    int exponent = size >> mantissa, parts = 1 << mantissa;
    double fraction = (double)(size % parts) / parts;
    double x = exponent ? (1 + fraction) * pow(2, exponent - bias) : fraction * pow(2, 1 - bias);
    if (t == CODA_F8E4M3 ? size == 0x7f : size > 0x7c) x = NAN;
    if (t == CODA_F8E5M2 && size == 0x7c) x = INFINITY;
    return byte & 0x80 ? -x : x;
}

static int nearest(coda_dtype t, double x)
{
    int best = 0, most = t == CODA_F8E4M3 ? 0x7e : 0x7b;
    for (int b = 1; b <= most; b++) {
        double d = fabs(meaning(t, b) - fabs(x)), least = fabs(meaning(t, best) - fabs(x));
        if (d < least || (d == least && b % 2 == 0)) best = b;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

/* ---- Runs ---- */

static void run(coda_graph *g, unsigned flags, void *const *args)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    o.device = CODA_DEVICE_CPU;
    o.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s", coda_error());
    size_t bytes = (coda_plan_workspace(p) + 255) / 256 * 256 + 256;
    void *workspace = aligned_alloc(256, bytes);
    memset(workspace, 0xa5, bytes);
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    free(workspace);
    coda_plan_free(p);
}

enum { ROWS = 7, COLUMNS = 256 };

static float special(int row, int k, float x)
{
    if (row == 0) return 0;
    if (row == 1) return k == 77 ? NAN : x;
    if (row == 2) return k == 5 ? -INFINITY : x;
    if (row == 3) return x * 0x1p-100f;
    if (row == 4) return x * 0x1p100f;
    return x;
}

struct quantised {
    _Alignas(16) float x[ROWS][COLUMNS];
    _Alignas(16) unsigned char q[ROWS][COLUMNS];
    float scale[ROWS][2];
};

static void check_group(const struct quantised *s, coda_dtype t, int row, int group, int first, int end)
{
    float largest = t == CODA_F8E4M3 ? 448 : 57344, most = 0;
    bool lost = false;
    for (int k = first; k < end; k++) {
        lost = lost || isnan(s->x[row][k]);
        most = fmaxf(most, fabsf(s->x[row][k]));
    }
    float scale = lost ? NAN : most / largest, got = s->scale[row][group], over = fmaxf(scale, 0x1p-120f);
    ck_assert_msg(lost ? isnan(got) : got == scale, "row %d: scale %a, not %a", row, (double)got,
                  (double)scale);
    for (int k = first; k < end; k++) {
        float v = lost ? NAN : s->x[row][k] / over;
        int want = isnan(v) ? -1 : nearest(t, (double)v), byte = s->q[row][k];
        if (want < 0) ck_assert_msg(isnan(meaning(t, byte)), "row %d, %d is 0x%02x, no NaN", row, k, byte);
        else
            ck_assert_msg(byte == want, "row %d: %a over %a is 0x%02x, not 0x%02x", row, (double)s->x[row][k],
                          (double)over, byte, want);
    }
}

static void check_rows(coda_dtype from, coda_dtype t, int columns, unsigned flags)
{
    struct random r = {random_seed()};
    struct quantised s;
    _Alignas(16) uint16_t half[ROWS][COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        s.x[0][i] = special(i / COLUMNS, i % COLUMNS, (float)random_normal(&r));
        if (from == CODA_F32) continue;
        dtype_store(from, half, i, (double)s.x[0][i]);
        s.x[0][i] = (float)dtype_load(from, half, i);
    }
    coda_graph *g = coda_graph_new();
    coda_value scale, x = coda_input(g, "x", from, 2, (int64_t[]){ROWS, COLUMNS});
    coda_value q = coda_quantize_rows(g, x, t, columns, &scale);
    coda_output(g, "q", q), coda_output(g, "scale", scale);
    memset(s.q, 0x55, sizeof s.q), memset(s.scale, 0x55, sizeof s.scale);
    _Alignas(16) float dense[ROWS * 2];
    run(g, flags, (void *[]){from == CODA_F32 ? (void *)s.x : half, s.q, dense});
    int groups = columns ? COLUMNS / columns : 1, width = COLUMNS / groups;
    for (int i = 0; i < ROWS * groups; i++) s.scale[i / groups][i % groups] = dense[i];
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < groups; k++) check_group(&s, t, row, k, k * width, (k + 1) * width);
    coda_graph_free(g);
}

START_TEST(rows_and_their_scales)
{
    static const coda_dtype from[] = {CODA_F32, CODA_BF16, CODA_F16};
    for (int i = 0; i < 3; i++)
        for (int columns = 0; columns <= COLUMNS; columns += 128)
            check_rows(from[i], _i ? CODA_F8E5M2 : CODA_F8E4M3, columns, 0);
    check_rows(CODA_BF16, _i ? CODA_F8E5M2 : CODA_F8E4M3, 0, CODA_NO_FUSION);
}
END_TEST

/* What is rounded to 8 bits is so for readers in the same kernel, too. */
START_TEST(readers_see_what_is_stored)
{
    _Alignas(16) float x[5] = {0.3f, -3.3f, 500, 1e-9f, 17};
    _Alignas(16) float y[5] = {0};
    _Alignas(16) unsigned char q[5];
    float want[5];
    for (int fuse = 0; fuse < 2; fuse++) {
        coda_graph *g = coda_graph_new();
        coda_value v = coda_cast(g, coda_input(g, "x", CODA_F32, 2, (int64_t[]){1, 5}), CODA_F8E4M3);
        coda_output(g, "q", v);
        coda_output(g, "y", coda_scale(g, coda_cast(g, v, CODA_F32), 2));
        run(g, fuse ? 0 : CODA_NO_FUSION, (void *[]){x, q, y});
        for (int i = 0; i < 5; i++) {
            want[i] = (float)(2 * meaning(CODA_F8E4M3, nearest(CODA_F8E4M3, (double)x[i])));
            ck_assert_msg(y[i] == want[i] && q[i] == nearest(CODA_F8E4M3, (double)x[i]), "%g: %g, not %g",
                          (double)x[i], (double)y[i], (double)want[i]);
        }
        coda_graph_free(g);
    }
}
END_TEST

/* ---- Products ---- */

struct size {
    int batch, m, n, k;
};

static void check_product(struct size s, coda_dtype a, coda_dtype b, bool nans)
{
    struct random r = {random_seed()};
    int64_t x_dim[] = {s.batch, s.m, s.k}, w_dim[] = {s.n, s.k};
    size_t xs = (size_t)(s.batch * s.m * s.k), ws = (size_t)(s.n * s.k), ys = (size_t)(s.batch * s.m * s.n);
    unsigned char *x = malloc(xs + 1), *w = malloc(ws + 1);
    float *y = malloc(sizeof *y * (ys + 1));
    for (size_t i = 0; i < xs; i++)
        while (!isfinite(meaning(a, x[i] = (unsigned char)random_below(&r, 256)))) continue;
    for (size_t i = 0; i < ws; i++)
        while (!isfinite(meaning(b, w[i] = (unsigned char)random_below(&r, 256)))) continue;
    if (nans) x[0] = 0x7f;
    coda_graph *g = coda_graph_new();
    coda_value in = coda_input(g, "x", a, 3, x_dim);
    coda_value v = coda_matmul(g, in, coda_weight(g, "w", b, 2, w_dim));
    coda_dtype t = 0;
    coda_value_shape(g, v, NULL, &t);
    ck_assert_int_eq(t, CODA_F32);
    coda_output(g, "y", v);
    run(g, 0, (void *[]){x, w, y});
    for (size_t i = 0; i < ys; i++) {
        const unsigned char *row = x + i / (size_t)s.n * (size_t)s.k,
                            *column = w + i % (size_t)s.n * (size_t)s.k;
        double sum = 0, size = 0;
        for (int k = 0; k < s.k; k++) {
            double p = meaning(a, row[k]) * meaning(b, column[k]);
            sum += p, size += fabs(p);
        }
        if (isnan(sum)) ck_assert_msg(isnan(y[i]) && i < (size_t)s.n, "element %zu is no NaN", i);
        else
            ck_assert_msg(fabs((double)y[i] - sum) <= 0x1p-20 * size, "element %zu is %g, not %g", i,
                          (double)y[i], sum);
    }
    coda_graph_free(g);
    free(x), free(w), free(y);
}

START_TEST(products_against_fp64)
{
    static const struct size sizes[] = {{1, 1, 1, 1}, {1, 7, 5, 33}, {3, 2, 19, 130}, {1, 17, 16, 384}};
    static const coda_dtype t[] = {CODA_F8E4M3, CODA_F8E5M2};
    for (int i = 0; i < ARRAY_SIZE(sizes); i++)
        for (int pair = 0; pair < 4; pair++) check_product(sizes[i], t[pair / 2], t[pair % 2], i == 1);
}
END_TEST

/* ---- A norm's factor in the scale of its rows ---- */

enum { NORM_ROWS = 9, NORM_COLUMNS = 48, NORM_OUT = 16 };

static const char normed[] = "%x = input f32[9,48]\n%g = input f32[48]\n%w = input f8e4m3[16,48]\n"
                             "%n = rms_norm %x, %g {eps=1e-5}\n%a = abs %n\n%m = max %a\n"
                             "%c = constant {to=f32, value=448}\n%s = div %m, %c\n"
                             "%t = constant {to=f32, value=0x1p-120}\n%u = maximum %s, %t\n%v = div %n, %u\n"
                             "%q = cast %v {to=f8e4m3}\n%p = matmul %q, %w\n%y = mul %p, %s\n"
                             "output %q = %q\noutput %s = %s\noutput %y = %y\n";

struct outcome {
    _Alignas(16) unsigned char q[NORM_ROWS * NORM_COLUMNS];
    _Alignas(16) double s[NORM_ROWS], y[NORM_ROWS * NORM_OUT];
};

/* Evaluates a graph of these leaves in fp64, to what its outputs' bits are in fp64, too. */
static void evaluate(const coda_graph *of, float *x, float *gain, unsigned char *w, struct outcome *out)
{
    double q[NORM_ROWS * NORM_COLUMNS];
    ck_assert_msg(coda_evaluate(of, (void *[]){x, gain, w, q, out->s, out->y}) == CODA_OK, "%s",
                  coda_error());
    for (int i = 0; i < NORM_ROWS * NORM_COLUMNS; i++) out->q[i] = (unsigned char)nearest(CODA_F8E4M3, q[i]);
}

static graph *rewritten(const coda_graph *of)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    coda_graph *made = NULL;
    o.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, of, &o) == CODA_OK, "%s", coda_error());
    char *steps = printed_plan(p, CODA_TEXT_DERIVATION), *text = printed_plan(p, CODA_TEXT_REWRITTEN);
    ck_assert_msg(strstr(steps, "quantize_norm") != NULL, "%s", steps);
    ck_assert_msg(coda_graph_parse(&made, text) == CODA_OK, "%s", coda_error());
    free(steps), free(text);
    coda_plan_free(p);
    return made;
}

/* The same bytes and, to 1e-12, the same scales and products, in fp64; a row of zeros among them. */
START_TEST(a_norm_joins_the_scale)
{
    struct random r = {random_seed()};
    _Alignas(16) float x[NORM_ROWS * NORM_COLUMNS], gain[NORM_COLUMNS];
    _Alignas(16) unsigned char w[NORM_OUT * NORM_COLUMNS];
    struct outcome want, got;
    coda_graph *of = NULL;
    for (int i = 0; i < NORM_ROWS * NORM_COLUMNS; i++)
        x[i] = i < NORM_COLUMNS ? 0 : (float)ldexp(random_normal(&r), i / NORM_COLUMNS * 3 - 12);
    for (int i = 0; i < NORM_COLUMNS; i++) gain[i] = (float)(1 + random_normal(&r) / 4);
    for (int i = 0; i < NORM_OUT * NORM_COLUMNS; i++)
        w[i] = (unsigned char)nearest(CODA_F8E4M3, random_normal(&r));
    ck_assert_msg(coda_graph_parse(&of, normed) == CODA_OK, "%s", coda_error());
    coda_graph *other = rewritten(of);
    evaluate(of, x, gain, w, &want), evaluate(other, x, gain, w, &got);
    ck_assert_mem_eq(got.q, want.q, sizeof want.q);
    for (int i = 0; i < NORM_ROWS; i++) ck_assert(fabs(got.s[i] - want.s[i]) <= 1e-12 * want.s[i]);
    for (int i = 0; i < NORM_ROWS * NORM_OUT; i++)
        ck_assert(fabs(got.y[i] - want.y[i]) <= 1e-12 * (1 + fabs(want.y[i])));
    coda_graph_free(of), coda_graph_free(other);
}
END_TEST

/* ---- Mistakes ---- */

static graph *g;
static coda_value scale;
static coda_value input(coda_dtype t, int rank)
{
    return coda_input(g, "x", t, rank, (int64_t[]){4, 48, 2, 2, 2, 96});
}
static void no_scale(void) { coda_quantize_rows(g, input(CODA_F32, 2), CODA_F8E4M3, 0, NULL); }
static void to_bf16(void) { coda_quantize_rows(g, input(CODA_F32, 2), CODA_BF16, 0, &scale); }
static void of_i8(void) { coda_quantize_rows(g, input(CODA_I8, 2), CODA_F8E4M3, 0, &scale); }
static void nothing(void) { coda_quantize_rows(g, CODA_NONE, CODA_F8E4M3, 0, &scale); }
static void by_32(void) { coda_quantize_rows(g, input(CODA_BF16, 2), CODA_F8E4M3, 32, &scale); }
static void by_minus(void) { coda_quantize_rows(g, input(CODA_BF16, 2), CODA_F8E4M3, -1, &scale); }
static void seven(void) { coda_quantize_rows(g, input(CODA_BF16, CODA_MAX_RANK), CODA_F8E4M3, 48, &scale); }
static void by_bf16(void)
{
    coda_matmul(g, input(CODA_F8E4M3, 2), coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){8, 48}));
}
static void i8_by_i8(void)
{
    coda_matmul(g, input(CODA_I8, 2), coda_weight(g, "w", CODA_I8, 2, (int64_t[]){8, 48}));
}

static const struct {
    void (*make)(void);
    const char *error;
} mistakes[] = {
    {no_scale, "quantize_rows: scale is NULL"},
    {to_bf16, "quantize_rows: t is bf16; must be f8e4m3 or f8e5m2"},
    {of_i8, "quantize_rows: x is i8[4,48]; it must be f32, bf16 or f16"},
    {nothing, "quantize_rows: x is no value"},
    {by_32, "quantize_rows: x is [4,48]; a scale of 32 columns needs a multiple of them"},
    {by_minus, "quantize_rows: x is [4,48]; a scale of -1 columns needs a multiple of them"},
    {seven, "groups of columns are one dimension more, 7"},
    {by_bf16, "matmul: operand 0 is f8e4m3[4,48]; only a product's w"},
    {i8_by_i8, "matmul: operand 0 is i8[4,48]; only a product's w"},
};

START_TEST(refused_in_a_line)
{
    g = coda_graph_new();
    mistakes[_i].make();
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_msg(strstr(mistake_plain(coda_error()), mistakes[_i].error), "%s", coda_error());
    coda_graph_free(g);
}
END_TEST

TESTS(w8a8, EACH(rows_and_their_scales, 2), ONE(readers_see_what_is_stored), ONE(products_against_fp64),
      ONE(a_norm_joins_the_scale), EACH(refused_in_a_line, ARRAY_SIZE(mistakes)));
