/*
 * test_eval.c -- the fp64 evaluator against numbers worked out by hand, and against plain loops where
 * it works in blocks.
 */
#include "graph.h" /* before check.h, which has a macro called fail */
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Small cases ---- */

static graph *parse(const char *text)
{
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    return g;
}

/* Evaluates the text's one output on these leaves: it must be `want`, to 1e-14 of its largest value. */
static void expect(const char *text, void *const *leaves, int64_t n, const double *want)
{
    graph *g = parse(text);
    void *args[16];
    int count = 0;
    double most = 0, *got = malloc(sizeof *got * (size_t)(n + 1));
    for (int i = 0; i < g->nodes; i++)
        if (op_is_leaf(g->node[i].op)) args[count] = leaves[count], count++;
    args[count] = got;
    ck_assert_int_eq(type_elements(&g->node[g->output[0].value].type), n);
    memset(got, 0xff, sizeof *got * (size_t)(n + 1));
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s", coda_error());
    for (int64_t i = 0; i < n; i++) most = fmax(most, isfinite(want[i]) ? fabs(want[i]) : 0);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])) ||
                          fabs(got[i] - want[i]) <= 1e-14 * most,
                      "[%d] is %.17g instead of %.17g in\n%s", (int)i, got[i], want[i], text);
    ck_assert(isnan(got[n])); /* nothing is written past the end */
    free(got);
    graph_free(g);
}

#define LEAVES(...) ((void *[]){__VA_ARGS__})
#define WANT(...)                                                                                            \
    ARRAY_SIZE(((double[]){__VA_ARGS__})), (double[]) { __VA_ARGS__ }

static float six[] = {1, 2, 3, 4, 5, 6};
static float pair[] = {10, -1};
static float tens[] = {10, 20, 30, 40, 50, 60};
static float triple[] = {1, 0, -2};

START_TEST(matmul)
{
    float w[] = {1, 0, 2, -1, 1, 1};
    expect("%x = input f32[2,3]\n%w = weight f32[2,3]\n%y = matmul %x, %w\noutput %y = %y", LEAVES(six, w),
           WANT(7, 4, 16, 7));
    expect("%x = input f32[2,3]\n%w = weight f32[3,2]\n%y = matmul %x, %w {kn=1}\noutput %y = %y",
           LEAVES(six, w), WANT(1 + 4 + 3, -2 + 3, 4 + 10 + 6, -5 + 6));
    expect("%x = input f32[2,1,3]\n%w = weight f32[2,1,3]\n%y = matmul %x, %w\noutput %y = %y",
           LEAVES(six, w), WANT(7, 7));
    expect("%x = input f32[2,0]\n%w = weight f32[1,0]\n%y = matmul %x, %w\noutput %y = %y",
           LEAVES(NULL, NULL), WANT(0, 0));
}
END_TEST

START_TEST(leaves)
{
    uint16_t bf16[] = {0x3f80, 0xc000, 0xffff, 0x4040}, f16[] = {0x3c00, 0x3555, 0x8000, 0xc500};
    int32_t i32[] = {7, -3, 1 << 23, 0};
    expect("%x = input bf16[3] stride=[1]\n%y = cast %x {to=f32}\noutput %y = %y", LEAVES(bf16),
           WANT(1, -2, NAN));
    expect("%x = input bf16[1,2] stride=[9,3]\noutput %y = %x", LEAVES(bf16), WANT(1, 3));
    expect("%x = input f16[4]\noutput %y = %x", LEAVES(f16), WANT(1, 0x1.554p-2, -0.0, -5));
    expect("%x = input i32[4]\n%y = cast %x {to=f32}\noutput %y = %y", LEAVES(i32), WANT(7, -3, 8388608, 0));
    expect("%x = input f32[3,2] stride=[1,3]\noutput %y = %x", LEAVES(six), WANT(1, 4, 2, 5, 3, 6));
    expect("%x = input f32[]\n%y = tanh %x\noutput %y = %y", LEAVES(six), WANT(tanh(1)));
}
END_TEST

START_TEST(maps)
{
    const struct {
        const char *text;
        double want[2];
    } unary[] = {{"relu %x", {10, 0}},
                 {"relu2 %x", {100, 0}},
                 {"scale %x {alpha=0.5}", {5, -0.5}},
                 {"silu %x", {10 / (1 + exp(-10)), -1 / (1 + exp(1))}},
                 {"valid %x {ignore=-1}", {1, 0}},
                 {"rsqrt_mean %x {inv_n=0.25, eps=1.5}", {0.5, 1 / sqrt(1.25)}}};
    for (int i = 0; i < ARRAY_SIZE(unary); i++) {
        char text[256];
        snprintf(text, sizeof text, "%%x = input f32[2]\n%%y = %s\noutput %%y = %%y", unary[i].text);
        expect(text, LEAVES(pair), 2, unary[i].want);
    }
    double e[] = {exp(1 - 10), exp(2 - 10), exp(3 - 10), exp(4 + 1), exp(5 + 1), exp(6 + 1)};
    expect("%x = input f32[2,3]\n%l = input f32[2,1]\n%y = exp_sub %x, %l\noutput %y = %y", LEAVES(six, pair),
           6, e);
}
END_TEST

START_TEST(broadcasting)
{
    const char *x = "%x = input f32[2,3]\n", *y = "output %y = %y";
    char text[256];
    snprintf(text, sizeof text, "%s%%v = weight f32[3]\n%%y = mul %%x, %%v\n%s", x, y);
    expect(text, LEAVES(six, triple), WANT(1, 0, -6, 4, 0, -12));
    snprintf(text, sizeof text, "%s%%v = weight f32[2,1]\n%%y = sub %%v, %%x\n%s", x, y);
    expect(text, LEAVES(six, pair), WANT(9, 8, 7, -5, -6, -7));
    snprintf(text, sizeof text, "%s%%v = weight f32[1]\n%%y = div %%x, %%v\n%s", x, y);
    expect(text, LEAVES(six, pair), WANT(0.1, 0.2, 3 / 10., 0.4, 0.5, 0.6));
    expect("%a = input f32[2,1]\n%b = input f32[1,3]\n%y = add %a, %b\noutput %y = %y", LEAVES(pair, triple),
           WANT(11, 10, 8, 0, -1, -3));
    expect("%a = input f32[2,1,1]\n%b = input f32[3,1]\n%y = add %a, %b\noutput %y = %y",
           LEAVES(pair, triple), WANT(11, 10, 8, 0, -1, -3));
}
END_TEST

START_TEST(reductions)
{
    static const struct {
        const char *name;
        double want[2];
    } r[] = {{"sum", {6, 15}}, {"sum_sq", {14, 77}}, {"max", {3, 6}}, {"m2", {2, 2}}};
    for (int i = 0; i < ARRAY_SIZE(r); i++) {
        char text[128];
        snprintf(text, sizeof text, "%%x = input f32[2,3]\n%%y = %s %%x\noutput %%y = %%y", r[i].name);
        expect(text, LEAVES(six), 2, r[i].want);
    }
    double lse = log(exp(-2) + exp(-1) + 1);
    expect("%x = input f32[2,3]\n%y = log_sum_exp %x\noutput %y = %y", LEAVES(six), WANT(3 + lse, 6 + lse));
    int32_t key[] = {1, 3};
    expect("%x = input f32[2,3]\n%k = input i32[2,1]\n%y = select %x, %k\noutput %y = %y", LEAVES(six, key),
           WANT(2, 0));
}
END_TEST

/* A key has x's leading dimensions, with or without a 1 behind them; in the latter form any may repeat. */
START_TEST(keys_of_rows)
{
    static const struct {
        const char *x, *key;
        int64_t rows, of_row[6]; /* the key's element of each row */
    } k[] = {{"3", "", 1, {0}},
             {"3", "1", 1, {0}},
             {"2,3", "2", 2, {0, 1}},
             {"2,3", "2,1", 2, {0, 1}},
             {"2,3", "1,1", 2, {0, 0}},
             {"2,1,3", "2,1", 2, {0, 1}},
             {"1,2,3", "1,2", 2, {0, 1}},
             {"1,2,3", "1,2,1", 2, {0, 1}},
             {"3,2,3", "3,2", 6, {0, 1, 2, 3, 4, 5}},
             {"3,2,3", "3,1,1", 6, {0, 0, 1, 1, 2, 2}},
             {"3,2,3", "1,2,1", 6, {0, 1, 0, 1, 0, 1}},
             {"2,3,1,3", "2,3,1", 6, {0, 1, 2, 3, 4, 5}}};
    float x[18];
    int32_t key[6] = {2, 0, 1, 1, 2, 0};
    for (int i = 0; i < 18; i++) x[i] = (float)(i * i);
    for (int i = 0; i < ARRAY_SIZE(k); i++) {
        char text[160];
        double want[6];
        snprintf(text, sizeof text,
                 "%%x = input f32[%s]\n%%k = input i32[%s]\n%%y = select %%x, %%k\noutput %%y = %%y", k[i].x,
                 k[i].key);
        for (int64_t r = 0; r < k[i].rows; r++) want[r] = (double)x[3 * r + key[k[i].of_row[r]]];
        expect(text, LEAVES(x, key), k[i].rows, want);
    }
}
END_TEST

START_TEST(norms)
{
    float x[] = {1, 3, 2, -2}, g[] = {2, -1}, b[] = {0.5, 0};
    double r = 1 / sqrt(5 + 0.25), s = 1 / sqrt(4 + 0.25), t = 1 / sqrt(1 + 0.25);
    expect("%x = input f32[2,2]\n%g = weight f32[2]\n%y = rms_norm %x, %g {eps=0.25}\noutput %y = %y",
           LEAVES(x, g), WANT(2 * r, -3 * r, 4 * s, 2 * s));
    expect("%x = input f32[2,2]\n%y = rms_norm %x {eps=0.25}\noutput %y = %y", LEAVES(x),
           WANT(r, 3 * r, 2 * s, -2 * s));
    expect("%x = input f32[2,2]\n%g = weight f32[2]\n%b = weight f32[2]\n"
           "%y = layer_norm %x, %g, %b {eps=0.25}\noutput %y = %y",
           LEAVES(x, g, b), WANT(-2 * t + 0.5, -t, 4 * s + 0.5, 2 * s));
    expect("%x = input f32[2,2]\n%b = weight f32[2]\n%y = layer_norm %x, _, %b {eps=0.25}\noutput %y = %y",
           LEAVES(x, b), WANT(-t + 0.5, t, 2 * s + 0.5, -2 * s));
    double p = 1 / (1 + exp(2)), q = 1 / (1 + exp(-4));
    expect("%x = input f32[2,2]\n%y = softmax %x\noutput %y = %y", LEAVES(x), WANT(p, 1 - p, q, 1 - q));
}
END_TEST

START_TEST(rope)
{
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    int32_t at[] = {2, 0};
    double c1 = cos(1), s1 = sin(1), c = cos(0.1), s = sin(0.1), c2 = cos(2), s2 = sin(2);
    /* position 0, then 1; base 100 and two pairs: 1 and 0.1 radians */
    expect("%x = input f32[2,4]\n%y = rope %x {base=100, half=1}\noutput %y = %y", LEAVES(x),
           WANT(1, 2, 3, 4, 5 * c1 - 7 * s1, 6 * c - 8 * s, 5 * s1 + 7 * c1, 6 * s + 8 * c));
    expect("%x = input f32[2,4]\n%y = rope %x {base=100}\noutput %y = %y", LEAVES(x),
           WANT(1, 2, 3, 4, 5 * c1 - 6 * s1, 5 * s1 + 6 * c1, 7 * c - 8 * s, 7 * s + 8 * c));
    /* heads of 2, only the first rotated; given positions */
    expect("%x = input f32[2,4]\n%p = input i32[2]\n%y = rope %x, %p {base=100, head_dim=2, heads=1}\n"
           "output %y = %y",
           LEAVES(x, at), WANT(c2 - 2 * s2, s2 + 2 * c2, 3, 4, 5, 6, 7, 8));
    /* columns from `rotary` on pass through */
    expect("%x = input f32[2,4]\n%p = input i32[2]\n%y = rope %x, %p {base=100, rotary=2}\noutput %y = %y",
           LEAVES(x, at), WANT(c2 - 2 * s2, s2 + 2 * c2, 3, 4, 5, 6, 7, 8));
    /* one position a row, over a batch; [T] positions repeat */
    expect("%x = input f32[2,2,2]\n%p = input i32[2,2]\n%y = rope %x, %p {base=100}\noutput %y = %y",
           LEAVES(x, ((int32_t[]){0, 0, 0, 2})), WANT(1, 2, 3, 4, 5, 6, 7 * c2 - 8 * s2, 7 * s2 + 8 * c2));
    expect("%x = input f32[2,2,2]\n%p = input i32[2]\n%y = rope %x, %p {base=100}\noutput %y = %y",
           LEAVES(x, at), WANT(c2 - 2 * s2, s2 + 2 * c2, 3, 4, 5 * c2 - 6 * s2, 5 * s2 + 6 * c2, 7, 8));
}
END_TEST

/* M-RoPE, as the papers' code has it: cos and sin of all frequencies for each axis, of which sections are cut
 * out and joined (Qwen2-VL), or axes other than time written over every third of time's (Qwen3-VL). */
static void angles_by_section(const int32_t *at, int axes, const int64_t *section, bool interleaved,
                              double *angle)
{
    int pairs = 0;
    for (int a = 0; a < axes; a++) pairs += (int)section[a];
    for (int a = 0, i = 0; a < axes && !interleaved; a++)
        for (int64_t k = 0; k < section[a]; k++, i++) angle[i] = at[a] * pow(100, -i / (double)pairs);
    for (int i = 0; i < pairs && interleaved; i++) angle[i] = at[0] * pow(100, -i / (double)pairs);
    for (int a = 1; a < axes && interleaved; a++)
        for (int i = a; i < section[a] * axes; i += axes) angle[i] = at[a] * pow(100, -i / (double)pairs);
}

START_TEST(rope_by_sections)
{
    static const struct {
        const char *attributes;
        int axes;
        int64_t section[4];
    } c[] = {{"section0=2, section1=3, section2=3", 3, {2, 3, 3}},
             {"section0=3, section1=3, section2=2, interleave_sections=1", 3, {3, 3, 2}},
             {"section0=6, section1=1, section2=1, interleave_sections=1", 3, {6, 1, 1}},
             {"section0=1, section1=7", 2, {1, 7}},
             {"section0=3, section1=1, section2=2, section3=2, interleave_sections=1", 4, {3, 1, 2, 2}},
             {"section0=1, section1=2, section2=3, section3=2", 4, {1, 2, 3, 2}}};
    enum { ROWS = 2, PAIRS = 8, COLUMNS = 2 * PAIRS };
    float x[ROWS * COLUMNS];
    int32_t at[ROWS * 4] = {3, 11, 7, 2, 4, 1, 9, 5};
    double want[ROWS * COLUMNS], angle[PAIRS];
    char text[300];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = 1 + (float)(i * 7 % 5) / 4;
    for (int half = 0; half < 2; half++) {
        for (int r = 0; r < ROWS; r++) {
            const float *in = x + r * COLUMNS;
            angles_by_section(at + r * c[_i].axes, c[_i].axes, c[_i].section,
                              strstr(c[_i].attributes, "inter"), angle);
            for (int i = 0; i < PAIRS; i++) {
                int a = half ? i : 2 * i, b = half ? i + PAIRS : 2 * i + 1;
                want[r * COLUMNS + a] = in[a] * cos(angle[i]) - in[b] * sin(angle[i]);
                want[r * COLUMNS + b] = in[a] * sin(angle[i]) + in[b] * cos(angle[i]);
            }
        }
        snprintf(text, sizeof text,
                 "%%x = input f32[2,16]\n%%p = input i32[2,%d]\n"
                 "%%y = rope %%x, %%p {base=100, half=%d, %s}\noutput %%y = %%y",
                 c[_i].axes, half, c[_i].attributes);
        expect(text, LEAVES(x, at), ROWS * COLUMNS, want);
    }
}
END_TEST

START_TEST(cross_entropy)
{
    float z[] = {0, 1, 2, 0, 3, 3};
    int32_t t[] = {1, -100, 0};
    double a = log(1 + exp(1)) - 1, c = log(2 * exp(3)) - 3;
    const char *from = "%z = input f32[3,2]\n%t = input i32[3]\n%y = cross_entropy %z, %t {ignore=-100";
    static const char *const end[] = {"}\noutput %y = %y", ", reduction=1}\noutput %y = %y",
                                      ", reduction=2}\noutput %y = %y"};
    double want[][3] = {{a, 0, c}, {(a + c) / 2}, {a + c}}, wrong[][3] = {{NAN, 0, c}, {NAN}, {NAN}};
    for (int i = 0; i < 3; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s", from, end[i]);
        t[0] = 1;
        expect(text, LEAVES(z, t), i ? 1 : 3, want[i]);
        t[0] = 2; /* no such class */
        expect(text, LEAVES(z, t), i ? 1 : 3, wrong[i]);
    }
}
END_TEST

START_TEST(embedding)
{
    int32_t id[] = {2, -1, 0, 3};
    expect("%t = weight f32[3,2]\n%i = input i32[4]\n%y = embedding %t, %i\noutput %y = %y", LEAVES(six, id),
           WANT(5, 6, 0, 0, 1, 2, 0, 0));
}
END_TEST

START_TEST(movement)
{
    expect("%x = input f32[2,3]\n%y = slice %x {axis=1,start=0,stop=3,step=2}\noutput %y = %y", LEAVES(six),
           WANT(1, 3, 4, 6));
    expect("%x = input f32[3,2]\n%y = slice %x {axis=0,start=1,stop=3,step=1}\noutput %y = %y", LEAVES(six),
           WANT(3, 4, 5, 6));
    expect("%x = input f32[2,3]\n%y = transpose %x {p0=1}\noutput %y = %y", LEAVES(six),
           WANT(1, 4, 2, 5, 3, 6));
    expect("%x = input f32[1,2,3]\n%y = transpose %x {p0=2,p1=0,p2=1}\noutput %y = %y", LEAVES(six),
           WANT(1, 4, 2, 5, 3, 6));
    expect("%x = input f32[2,3]\n%y = reshape %x {d0=3,d1=2,rank=2}\noutput %y = %y", LEAVES(six),
           WANT(1, 2, 3, 4, 5, 6));
    expect("%x = input f32[2,3]\n%p = input f32[2,1]\n%y = concat %x, %p {axis=1}\noutput %y = %y",
           LEAVES(six, pair), WANT(1, 2, 3, 10, 4, 5, 6, -1));
    expect("%x = input f32[2,3]\n%p = input f32[1,3]\n%y = concat %p, %x {axis=0}\noutput %y = %y",
           LEAVES(six, triple), WANT(1, 0, -2, 1, 2, 3, 4, 5, 6));
    expect("%x = input f32[2,3]\n%z = input f32[2,3]\n%y = concat %x, %z, %x {axis=1,interleave=1}\n"
           "output %y = %y",
           LEAVES(six, tens), WANT(1, 10, 1, 2, 20, 2, 3, 30, 3, 4, 40, 4, 5, 50, 5, 6, 60, 6));
    expect(
        "%x = input f32[2,3]\n%z = input f32[2,3]\n%y = concat %x, %z {axis=0,interleave=1}\noutput %y = %y",
        LEAVES(six, tens), WANT(1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60));
}
END_TEST

START_TEST(several_outputs)
{
    graph *g = parse("%x = input f32[2]\n%a = relu %x\noutput %y = %a\noutput %z = %x\noutput %u = %a");
    double y[2], z[2], u[2];
    ck_assert_int_eq(coda_evaluate(g, LEAVES(pair, y, z, u)), CODA_OK);
    ck_assert(y[0] == 10 && y[1] == 0 && z[0] == 10 && z[1] == -1 && u[0] == 10 && u[1] == 0);
    graph_free(g);
}
END_TEST

/* ---- Against plain loops ---- */

static double *random_doubles(struct random *r, int64_t n, float *as_float)
{
    double *d = malloc(sizeof *d * (size_t)MAX(n, 1));
    for (int64_t i = 0; i < n; i++) d[i] = as_float[i] = (float)random_normal(r);
    return d;
}

static void check_matmul(struct random *r, int64_t batch, int64_t m, int64_t n, int64_t k, bool kn,
                         bool shared)
{
    int64_t weights = (shared ? 1 : batch) * n * k;
    float *xf = malloc(sizeof *xf * (size_t)(batch * m * k + 1));
    float *wf = malloc(sizeof *wf * (size_t)(weights + 1));
    double *x = random_doubles(r, batch * m * k, xf), *w = random_doubles(r, weights, wf);
    double *want = calloc((size_t)(batch * m * n + 1), sizeof *want),
           *got = calloc((size_t)(batch * m * n + 1), 8);
    char text[256], leading[24] = "";
    if (!shared) snprintf(leading, sizeof leading, "%d,", (int)batch);
    snprintf(text, sizeof text,
             "%%x = input f32[%d,%d,%d]\n%%w = weight f32[%s%d,%d]\n"
             "%%y = matmul %%x, %%w {kn=%d}\noutput %%y = %%y",
             (int)batch, (int)m, (int)k, leading, (int)(kn ? k : n), (int)(kn ? n : k), kn);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t l = 0; l < k; l++)
                    want[(b * m + i) * n + j] +=
                        x[(b * m + i) * k + l] * w[(shared ? 0 : b * n * k) + (kn ? l * n + j : j * k + l)];
    graph *g = parse(text);
    ck_assert_int_eq(coda_evaluate(g, LEAVES(xf, wf, got)), CODA_OK);
    for (int64_t i = 0; i < batch * m * n; i++)
        ck_assert_msg(fabs(got[i] - want[i]) < 1e-13 * (double)(k + 1), "%s: [%d] %g, not %g", text, (int)i,
                      got[i], want[i]);
    graph_free(g);
    free(xf), free(wf), free(x), free(w), free(want), free(got);
}

START_TEST(matmul_blocks)
{
    struct random r = {random_seed()};
    check_matmul(&r, 1, 131, 137, 261, false, true);
    check_matmul(&r, 1, 131, 137, 513, true, true);
    check_matmul(&r, 3, 5, 9, 7, false, false);
    check_matmul(&r, 2, 130, 3, 300, true, false);
    for (int i = 0; i < 60; i++)
        check_matmul(&r, random_below(&r, 4), 1 + random_below(&r, 20), 1 + random_below(&r, 40),
                     random_below(&r, 300), random_chance(&r, 50), random_chance(&r, 50));
}
END_TEST

struct attention_case {
    int64_t batch, tq, tk, heads, group, dim, window;
    bool causal;
    const int32_t *lengths;
    int align;
};

/* One query and head, key by key. */
static void attend_one(const struct attention_case *c, int64_t b, int64_t i, int64_t h, const double *q,
                       const double *k, const double *v, double *out)
{
    int64_t n = c->heads * c->dim, m = c->heads / c->group * c->dim,
            keys = c->lengths ? c->lengths[b] : c->tk;
    int64_t position = i + c->tk - c->tq;
    double *weight = calloc((size_t)c->tk + 1, sizeof *weight), sum = 0;
    q += (b * c->tq + i) * n + h * c->dim;
    k += b * c->tk * m + h / c->group * c->dim;
    v += b * c->tk * m + h / c->group * c->dim;
    for (int64_t j = 0; j < keys; j++) {
        if (c->causal && j > position) continue;
        if (c->window && j <= position - c->window) continue;
        double s = 0;
        for (int64_t d = 0; d < c->dim; d++) s += q[d] * k[j * m + d];
        sum += weight[j] = exp(0.25 * s);
    }
    for (int64_t d = 0; d < c->dim; d++) {
        double *o = &out[(b * c->tq + i) * n + h * c->dim + d];
        *o = 0;
        for (int64_t j = 0; j < c->tk && sum > 0; j++) *o += weight[j] / sum * v[j * m + d];
    }
    free(weight);
}

static void check_attention(struct random *r, const struct attention_case *c)
{
    int64_t n = c->batch * c->tq * c->heads * c->dim, m = c->batch * c->tk * c->heads / c->group * c->dim;
    float *f[3] = {malloc(sizeof(float) * (size_t)n), malloc(sizeof(float) * (size_t)m),
                   malloc(sizeof(float) * (size_t)m)};
    double *q = random_doubles(r, n, f[0]), *k = random_doubles(r, m, f[1]), *v = random_doubles(r, m, f[2]);
    double *want = calloc((size_t)n, sizeof *want), *got = calloc((size_t)n, sizeof *got);
    char text[512];
    int kv = (int)(c->heads / c->group);
    snprintf(text, sizeof text,
             "%%q = input f32[%d,%d,%d]\n%%k = input f32[%d,%d,%d]\n%%v = input f32[%d,%d,%d]\n%%l = input "
             "i32[%d]\n"
             "%%y = attention %%q, %%k, %%v%s {scale=0.25,heads=%d,kv_heads=%d,window=%d,causal=%d,"
             "align=%d}\noutput %%y = %%y",
             (int)c->batch, (int)c->tq, (int)(c->heads * c->dim), (int)c->batch, (int)c->tk, kv * (int)c->dim,
             (int)c->batch, (int)c->tk, kv * (int)c->dim, (int)c->batch, c->lengths ? ", %l" : "",
             (int)c->heads, kv, (int)c->window, c->causal, c->align);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < c->tq; i++)
            for (int64_t h = 0; h < c->heads; h++) attend_one(c, b, i, h, q, k, v, want);
    graph *g = parse(text);
    static int32_t none[8];
    void *lengths = (void *)(uintptr_t)(c->lengths ? c->lengths : none);
    ck_assert_int_eq(coda_evaluate(g, LEAVES(f[0], f[1], f[2], lengths, got)), CODA_OK);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabs(got[i] - want[i]) < 1e-13, "%s: [%d] %g, not %g", text, (int)i, got[i], want[i]);
    graph_free(g);
    free(f[0]), free(f[1]), free(f[2]), free(q), free(k), free(v), free(want), free(got);
}

START_TEST(attention)
{
    struct random r = {random_seed() + 1};
    enum { END = CODA_ALIGN_END };
    const struct attention_case c[] = {{1, 3, 3, 1, 1, 2, 0, false, NULL, 0},
                                       {2, 70, 150, 4, 2, 6, 0, false, NULL, 0},
                                       {1, 70, 150, 2, 1, 5, 0, true, NULL, 0},
                                       {1, 150, 70, 2, 2, 5, 0, true, NULL, 0},
                                       {1, 200, 300, 1, 1, 4, 17, true, NULL, 0},
                                       {1, 140, 140, 1, 1, 3, 1, true, NULL, 0},
                                       {1, 66, 260, 1, 1, 3, 20, false, NULL, 0},
                                       {3, 65, 129, 3, 3, 8, 0, true, (int32_t[]){0, 129, 40}, END},
                                       {2, 5, 7, 1, 1, 300, 0, false, (int32_t[]){7, 1}, 0},
                                       {1, 1, 1000, 2, 1, 16, 0, true, NULL, 0},
                                       {2, 40, 20, 1, 1, 2, 3, true, (int32_t[]){3, 20}, END}};
    for (int i = 0; i < ARRAY_SIZE(c); i++) check_attention(&r, &c[i]);
}
END_TEST

/* ---- Refusals ---- */

START_TEST(refuses)
{
    graph *g = parse("%x = input f32[2]\n%a = relu %x\noutput %y = %a");
    double y[2];
    ck_assert_int_eq(coda_evaluate(g, LEAVES(NULL, y)), CODA_E_INVALID);
    ck_assert_ptr_nonnull(strstr(coda_error(), "(x, 8 bytes)"));
    ck_assert_int_eq(coda_evaluate(g, LEAVES(pair, NULL)), CODA_E_INVALID);
    ck_assert_int_eq(coda_evaluate(g, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_evaluate(NULL, LEAVES(pair, y)), CODA_E_INVALID);
    graph_free(g);
}
END_TEST

/* A map without a reference stops the evaluation by its name, but only if an output needs it. */
START_TEST(map_without_reference)
{
    const char *map = "map odd(1; 0) \"DEV static float apply(float x) { return x; }\"\n%x = input f32[2]\n";
    char text[256];
    double y[2];
    snprintf(text, sizeof text, "%s%%a = odd %%x\noutput %%y = %%a", map);
    graph *g = parse(text);
    ck_assert_int_eq(coda_evaluate(g, LEAVES(pair, y)), CODA_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(coda_error(), "odd"));
    graph_free(g);
    snprintf(text, sizeof text, "%s%%a = odd %%x\noutput %%y = %%x", map);
    g = parse(text);
    ck_assert_int_eq(coda_evaluate(g, LEAVES(pair, y)), CODA_OK);
    graph_free(g);
}
END_TEST

TESTS(eval, ONE(matmul), ONE(leaves), ONE(maps), ONE(broadcasting), ONE(reductions), ONE(keys_of_rows),
      ONE(norms), ONE(rope), EACH(rope_by_sections, 6), ONE(cross_entropy), ONE(embedding), ONE(movement),
      ONE(several_outputs), ONE(matmul_blocks), ONE(attention), ONE(refuses), ONE(map_without_reference));
