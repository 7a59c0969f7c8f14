/* util_range.c -- rows of every magnitude and special value, and what operations must make of them. */
#include "util_range.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "util_random.h"

enum { N = RANGE_COLUMNS, M = RANGE_OUTPUTS };
enum leaf { LEAF_X, LEAF_EYE, LEAF_GAIN, LEAF_BIAS, LEAF_W, LEAF_WIDE_W, LEAF_TARGET, LEAVES };
static const float EPS = 1e-5f;

/* ---- Rows ---- */

static const double magnitude[] = {0,    1e-45, 1e-40, 1e-38, 1e-30, 1e-20, 1e-12, 1e-6, 1e-4, 1e-2, 1,
                                   10,   1e2,   1e3,   1e4,   6e4,   1e5,   1e6,   1e8,  1e9,  1e12, 1e15,
                                   1e17, 1e19,  1e20,  1e25,  1e30,  1e34,  1e37,  1e38, 3e38};
enum { CONSTANT, NEGATIVE, NORMAL, OFFSET, OUTLIER, SIGNS, PATTERNS };
static const char *const pattern_name[] = {"constant", "negative", "normal", "offset", "outlier", "signs"};
static const char *const special_name[] = {"one NaN",  "one inf", "one -inf",     "all inf",
                                           "all -inf", "all NaN", "inf and -inf", "half -inf"};
enum { SPECIALS = sizeof special_name / sizeof *special_name };

static double element(int pattern, double m, int column, struct random *r)
{
    double z = random_normal(r);
    switch (pattern) {
    case CONSTANT: return m;
    case NEGATIVE: return -m;
    case OFFSET: return m * (1 + z / 64);
    case OUTLIER: return column == 3 ? m : z;
    case SIGNS: return column % 2 ? m : -m;
    default: return m * fmax(-1, fmin(1, z / 3));
    }
}

static double special(int kind, int column, struct random *r)
{
    double z = random_normal(r);
    switch (kind) {
    case 0: return column == 7 ? NAN : z;
    case 1: return column == 7 ? INFINITY : z;
    case 2: return column == 7 ? -INFINITY : z;
    case 3: return INFINITY;
    case 4: return -INFINITY;
    case 5: return NAN;
    case 6: return column % 2 ? INFINITY : -INFINITY;
    default: return column % 2 ? z : -INFINITY;
    }
}

/* What memory holds of it. */
static double rounded(coda_dtype t, double x)
{
    float room;
    dtype_store(t, &room, 0, (float)x);
    return dtype_load(t, &room, 0);
}

/* Column 5 of x is 0: a gain and a weight there, whose product no fp16 holds, must not matter. */
static void fill_constants(struct range_data *d, double gain, double weight, struct random *r)
{
    for (int c = 0; c < N; c++) {
        d->gain[c] = rounded(d->t, gain * (0.5 + fabs(random_normal(r))));
        d->bias[c] = rounded(d->t, random_normal(r));
    }
    for (int i = 0; i < M * N; i++) d->w[i] = rounded(d->t, weight * random_normal(r));
    d->gain[5] = 300;
    for (int m = 0; m < M; m++) d->w[m * N + 5] = rounded(d->t, m % 2 ? 300 : -300);
}

void range_fill(struct range_data *d, coda_dtype t, double gain, double weight, uint64_t seed)
{
    struct random r = {seed};
    d->t = t;
    d->rows = 0;
    for (int m = 0; m < ARRAY_SIZE(magnitude); m++)
        for (int p = 0; p < PATTERNS; p++, d->rows++) {
            snprintf(d->what[d->rows], sizeof *d->what, "%s %g", pattern_name[p], magnitude[m]);
            for (int c = 0; c < N; c++)
                d->x[d->rows * N + c] = c == 5 ? 0 : rounded(t, element(p, magnitude[m], c, &r));
        }
    for (int k = 0; k < SPECIALS; k++, d->rows++) {
        snprintf(d->what[d->rows], sizeof *d->what, "%s", special_name[k]);
        for (int c = 0; c < N; c++) d->x[d->rows * N + c] = rounded(t, special(k, c, &r));
    }
    for (int i = 0; i < d->rows; i++) d->target[i] = (int32_t)random_below(&r, N);
    d->target[d->rows / 2] = -100;
    fill_constants(d, gain, weight, &r);
}

/* ---- One row in fp64 ---- */

struct stats {
    double most, least, sum, magnitudes, squares, mean, deviations;
    bool finite;
};

static struct stats stats(const double *x)
{
    struct stats s = {.most = -INFINITY, .least = INFINITY, .finite = true};
    for (int c = 0; c < N; c++) {
        s.finite = s.finite && isfinite(x[c]);
        s.most = isnan(x[c]) || isnan(s.most) ? NAN : fmax(s.most, x[c]);
        s.least = fmin(s.least, x[c]);
        s.sum += x[c];
        s.magnitudes += fabs(x[c]);
        s.squares += x[c] * x[c];
    }
    s.mean = s.sum / N;
    for (int c = 0; c < N; c++) s.deviations += (x[c] - s.mean) * (x[c] - s.mean);
    return s;
}

static void say(double *want, double *allow, int n, double value, double off)
{
    for (int c = 0; c < n; c++) want[c] = value, allow[c] = off;
}

/* Nothing is promised next to the end of fp32. */
static bool at_the_end(double x) { return x > 0.98 * FLT_MAX && x < 1.02 * FLT_MAX; }

static double exp_sum(const double *x, double most)
{
    double sum = 0;
    for (int c = 0; c < N; c++) sum += exp(x[c] - most);
    return sum;
}

/* x is one row of all. */
#define JUDGE(name)                                                                                          \
    static void name(__attribute__((unused)) const struct range_data *d, const double *x,                    \
                     __attribute__((unused)) int row, double *want, double *allow)

/* NaN for inf, NaN and -inf alone comes of the formula. */
JUDGE(judge_softmax)
{
    struct stats s = stats(x);
    double sum = exp_sum(x, s.most);
    for (int c = 0; c < N; c++) want[c] = exp(x[c] - s.most) / sum, allow[c] = 2e-5 * want[c];
}

JUDGE(judge_log_sum_exp)
{
    struct stats s = stats(x);
    double log_sum = log(exp_sum(x, s.most));
    *want = isinf(s.most) ? s.most : s.most + log_sum;
    *allow = 1e-6 * (1 + fabs(s.most));
}

JUDGE(judge_row_max) { say(want, allow, 1, stats(x).most, 0); }

JUDGE(judge_row_sum)
{
    struct stats s = stats(x);
    bool far = s.finite && s.magnitudes > 0.98 * FLT_MAX;
    say(want, allow, 1, s.sum, far ? INFINITY : 4e-6 * s.magnitudes);
}

JUDGE(judge_row_mean)
{
    struct stats s = stats(x);
    bool far = s.finite && at_the_end(s.magnitudes / N);
    say(want, allow, 1, s.sum / N, far ? INFINITY : 4e-6 * s.magnitudes / N + 0x1p-140);
}

JUDGE(judge_cross_entropy)
{
    struct stats s = stats(x);
    int target = d->target[row];
    say(want, allow, 1, 0, 0);
    if (target == -100) return;
    *want = s.most - x[target] + log(exp_sum(x, s.most));
    *allow = 1e-6 * (1 + fabs(s.most - x[target]));
}

/* The factor of a norm from a sum of squares; NaN where that is past fp32. */
static double factor(double squares) { return squares > FLT_MAX ? NAN : 1 / sqrt(squares / N + (double)EPS); }

/* x - shift, times the factor. False: nothing is promised. A mean in fp32 is off by some 2^-24 of the mean of
 * |x|, however near to 0 it is itself. */
static bool normal_row(const double *x, bool centred, double *out, double *off)
{
    struct stats s = stats(x);
    double squares = centred ? s.deviations : s.squares, r = s.finite ? factor(squares) : NAN;
    double shift = centred ? s.mean : 0, size = centred ? s.magnitudes / N : 0;
    for (int c = 0; c < N; c++) {
        out[c] = (x[c] - shift) * r;
        off[c] = 4e-6 * fabs(out[c]) + 6e-7 * size * r + 0x1p-126 * r;
    }
    return !at_the_end(squares) && !(centred && s.finite && s.most - s.least > 0.98 * FLT_MAX);
}

static void judge_norm(const struct range_data *d, const double *x, bool layer, double *want, double *allow)
{
    bool promised = normal_row(x, layer, want, allow);
    for (int c = 0; c < N; c++) {
        want[c] *= d->gain[c];
        allow[c] = promised ? allow[c] * fabs(d->gain[c]) : INFINITY;
        if (layer) want[c] += d->bias[c], allow[c] += 4e-7 * fabs(d->bias[c]);
    }
}

JUDGE(judge_rms_norm) { judge_norm(d, x, false, want, allow); }
JUDGE(judge_layer_norm) { judge_norm(d, x, true, want, allow); }

/* ---- Gates, rotations, rows of a table ---- */

/* gate / (1 + exp(-z)) up: exp's relative error grows with z, and what is below fp32 counts as 0. */
static void gated(double gate, double z, double up, double *want, double *allow)
{
    *want = gate / (1 + exp(-z)) * up;
    *allow = (1e-5 + 1e-6 * fmin(fabs(z), 100)) * fabs(*want) + 0x1p-125 * fabs(gate * up);
}

JUDGE(judge_swiglu)
{
    for (int c = 0; c < M; c++) gated(x[c], x[c], x[c + M], &want[c], &allow[c]);
}

JUDGE(judge_geglu)
{
    for (int c = 0; c < M; c++) {
        double gate = x[2 * c], root = 0.79788456080286535588; /* sqrt(2 / pi) */
        gated(gate, 2 * root * (gate + 0.044715 * gate * gate * gate), x[2 * c + 1], &want[c], &allow[c]);
    }
}

/* The pair of columns i and j turns by row * 10000^(-2 pair / 64). */
static void turn(const double *x, int row, int pair, int i, int j, double *want, double *allow)
{
    double t = row * pow(10000, -2.0 * pair / N);
    want[i] = x[i] * cos(t) - x[j] * sin(t);
    want[j] = x[i] * sin(t) + x[j] * cos(t);
    allow[i] = allow[j] = 2e-6 * (fabs(x[i]) + fabs(x[j]));
}

JUDGE(judge_rope_half)
{
    for (int i = 0; i < N / 2; i++) turn(x, row, i, i, i + N / 2, want, allow);
}

JUDGE(judge_rope_interleaved)
{
    for (int i = 0; i < N / 2; i++) turn(x, row, i, 2 * i, 2 * i + 1, want, allow);
}

JUDGE(judge_embedding)
{
    say(want, allow, N, 0, 0);
    if (d->target[row] >= 0) memcpy(want, x + (d->target[row] - row) * N, N * sizeof *x);
}

/* ---- Products ---- */

static double unit(coda_dtype t) { return t == CODA_BF16 ? 0x1p-8 : t == CODA_F16 ? 0x1p-11 : 0x1p-24; }
static double smallest(coda_dtype t)
{
    return t == CODA_BF16 ? 0x1p-133 : t == CODA_F16 ? 0x1p-24 : 0x1p-149;
}

/* y = n w with n and its error, where x itself (`raw`, times r) may have gone through the product instead.
 * Each of n, the gained weight and y may be rounded to t. */
static void product(const struct range_data *d, const double *n, const double *off, const double *raw,
                    double r, bool promised, double *want, double *allow)
{
    double u = 4 * unit(d->t), tiny = smallest(d->t);
    for (int m = 0; m < M; m++) {
        double sum = 0, error = tiny, all = 0, size = 0;
        for (int c = 0; c < N; c++) {
            double w = d->w[m * N + c];
            sum += n[c] * w;
            error +=
                ((u + 2e-6) * fabs(n[c]) + off[c] + tiny) * fabs(w) + 0x1p-120 * r * (1 + fabs(d->gain[c]));
            all += fabs(raw[c] * d->gain[c] * w) + fabs(raw[c] * w);
            size += w * w * fmax(1, d->gain[c] * d->gain[c]);
        }
        for (int c = 0; c < N; c++) error += tiny * fabs(raw[c] * r) * sqrt(size);
        bool far = isfinite(all) && (all > 0.98 * FLT_MAX || !promised);
        want[m] = sum;
        allow[m] = far ? INFINITY : error + 2e-6 * all * r;
    }
}

static void judge_product(const struct range_data *d, const double *x, bool layer, bool gain, bool bias,
                          double *want, double *allow)
{
    double n[N], off[N];
    struct stats s = stats(x);
    bool promised = normal_row(x, layer, n, off);
    for (int c = 0; c < N; c++) {
        if (gain) n[c] *= d->gain[c], off[c] *= fabs(d->gain[c]);
        off[c] += 4 * unit(d->t) * (fabs(n[c]) + bias * fabs(d->bias[c])); /* which may go their own ways */
        if (bias) n[c] += d->bias[c];
    }
    product(d, n, off, x, s.finite ? factor(layer ? s.deviations : s.squares) : NAN, promised, want, allow);
}

JUDGE(judge_rms) { judge_product(d, x, false, true, false, want, allow); }
JUDGE(judge_bare_rms) { judge_product(d, x, false, false, false, want, allow); }
JUDGE(judge_layer) { judge_product(d, x, true, true, true, want, allow); }

/* A factor of the caller's. */
static void judge_scaled(const struct range_data *d, const double *x, double r, double *want, double *allow)
{
    double n[N], off[N] = {0};
    for (int c = 0; c < N; c++) n[c] = x[c] * r;
    product(d, n, off, x, r, true, want, allow);
}

static const float SCALE = 0.0009765625f;
JUDGE(judge_scale) { judge_scaled(d, x, (double)SCALE, want, allow); }
JUDGE(judge_div)
{
    double most = stats(x).most;
    judge_scaled(d, x, 1 / most, want, allow);
    for (int m = 0; m < M && !(fabs(most) > 1e-37); m++) allow[m] = INFINITY;
}

/* Two norms with other eps share x - mean: the second is half of a layer norm. */
JUDGE(judge_twice)
{
    double second[M], off[M];
    judge_product(d, x, true, true, true, want, allow);
    judge_product(d, x, true, false, false, second, off);
    for (int m = 0; m < M; m++) want[m] += second[m], allow[m] += off[m] + unit(d->t) * fabs(second[m]);
}

/* ---- Graphs ---- */

#define BUILD(name)                                                                                          \
    static coda_value name(coda_graph *g, coda_value x, __attribute__((unused)) const struct range_data *d,  \
                           __attribute__((unused)) const coda_value *leaf)

BUILD(build_softmax) { return coda_softmax(g, x); }
BUILD(build_log_sum_exp) { return coda_log_sum_exp(g, x); }
BUILD(build_row_max) { return coda_row_max(g, x); }
BUILD(build_row_sum) { return coda_row_sum(g, x); }
BUILD(build_row_mean) { return coda_row_mean(g, x); }
BUILD(build_rms_norm) { return coda_rms_norm(g, x, leaf[LEAF_GAIN], EPS); }
BUILD(build_layer_norm) { return coda_layer_norm(g, x, leaf[LEAF_GAIN], leaf[LEAF_BIAS], EPS); }

BUILD(build_cross_entropy)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.reduction = CODA_REDUCE_NONE;
    return coda_reshape(g, coda_cross_entropy(g, x, leaf[LEAF_TARGET], &o), 2, (int64_t[]){d->rows, 1});
}

BUILD(build_swiglu) { return coda_swiglu(g, x, CODA_STACKED); }
BUILD(build_geglu) { return coda_geglu(g, x, CODA_INTERLEAVED); }
BUILD(build_embedding) { return coda_embedding(g, x, leaf[LEAF_TARGET]); }

static coda_value build_rope(coda_graph *g, coda_value x, coda_rope_style style)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.style = style;
    return coda_rope(g, x, CODA_NONE, &o);
}
BUILD(build_rope_half) { return build_rope(g, x, CODA_ROPE_HALF); }
BUILD(build_rope_interleaved) { return build_rope(g, x, CODA_ROPE_INTERLEAVED); }

BUILD(build_rms) { return coda_matmul(g, build_rms_norm(g, x, d, leaf), leaf[LEAF_W]); }
BUILD(build_bare_rms) { return coda_matmul(g, coda_rms_norm(g, x, CODA_NONE, EPS), leaf[LEAF_W]); }
BUILD(build_layer) { return coda_matmul(g, build_layer_norm(g, x, d, leaf), leaf[LEAF_W]); }
BUILD(build_rms_kn)
{
    coda_value w = coda_transpose(g, leaf[LEAF_W], (int[]){1, 0});
    return coda_matmul_kn(g, build_rms_norm(g, x, d, leaf), w);
}
BUILD(build_rms_cast)
{
    coda_value gain = coda_cast(g, leaf[LEAF_GAIN], CODA_F32);
    return coda_matmul(g, coda_cast(g, coda_rms_norm(g, x, gain, EPS), d->t), leaf[LEAF_W]);
}
BUILD(build_bare_cast)
{
    return coda_matmul(g, coda_cast(g, coda_rms_norm(g, x, CODA_NONE, EPS), d->t), leaf[LEAF_W]);
}
BUILD(build_layer_cast)
{
    coda_value gain = coda_cast(g, leaf[LEAF_GAIN], CODA_F32), bias = coda_cast(g, leaf[LEAF_BIAS], CODA_F32);
    coda_value n = coda_layer_norm(g, x, gain, bias, EPS);
    return coda_matmul(g, coda_cast(g, n, d->t), leaf[LEAF_W]);
}
BUILD(build_scale) { return coda_matmul(g, coda_scale(g, x, SCALE), leaf[LEAF_W]); }
BUILD(build_div) { return coda_matmul(g, coda_div(g, x, coda_row_max(g, x)), leaf[LEAF_W]); }
BUILD(build_twice)
{
    coda_value second = coda_layer_norm(g, x, CODA_NONE, CODA_NONE, EPS * (1 + 1e-5f));
    return coda_add(g, build_layer(g, x, d, leaf), coda_matmul(g, second, leaf[LEAF_W]));
}

const struct range_case range_cases[] = {
    {"softmax", N, false, false, build_softmax, judge_softmax},
    {"log_sum_exp", 1, true, false, build_log_sum_exp, judge_log_sum_exp},
    {"row_max", 1, true, false, build_row_max, judge_row_max},
    {"row_sum", 1, true, false, build_row_sum, judge_row_sum},
    {"row_mean", 1, true, false, build_row_mean, judge_row_mean},
    {"cross_entropy", 1, true, false, build_cross_entropy, judge_cross_entropy},
    {"rms_norm", N, false, false, build_rms_norm, judge_rms_norm},
    {"layer_norm", N, false, false, build_layer_norm, judge_layer_norm},
    {"swiglu, stacked", M, false, false, build_swiglu, judge_swiglu},
    {"geglu, interleaved", M, false, false, build_geglu, judge_geglu},
    {"rope, halves", N, false, false, build_rope_half, judge_rope_half},
    {"rope, interleaved", N, false, false, build_rope_interleaved, judge_rope_interleaved},
    {"embedding", N, false, false, build_embedding, judge_embedding},
    {"rms_norm, product", M, false, false, build_rms, judge_rms},
    {"rms_norm, product kn", M, false, false, build_rms_kn, judge_rms},
    {"rms_norm without gain, product", M, false, false, build_bare_rms, judge_bare_rms},
    {"layer_norm, product", M, false, false, build_layer, judge_layer},
    {"two layer_norms, products", M, false, false, build_twice, judge_twice},
    {"scale, product", M, false, false, build_scale, judge_scale},
    {"div, product", M, false, false, build_div, judge_div},
    {"rms_norm, cast, product", M, false, true, build_rms_cast, judge_rms},
    {"rms_norm without gain, cast, product", M, false, true, build_bare_cast, judge_bare_rms},
    {"layer_norm, cast, product", M, false, true, build_layer_cast, judge_layer},
};
const int range_case_count = ARRAY_SIZE(range_cases);

static void *store_all(coda_dtype t, const double *x, int64_t n)
{
    char *p = malloc((size_t)(n * dtype_bytes(t, 1)) + 1);
    for (int64_t i = 0; p && i < n; i++) dtype_store(t, p, i, (float)x[i]);
    return p;
}

static coda_value source_of(coda_graph *g, const coda_value *leaf, enum range_source source)
{
    if (source == RANGE_LEAF) return leaf[LEAF_X];
    return coda_matmul(g, leaf[LEAF_X], leaf[LEAF_EYE]);
}

void range_build(struct range_graph *r, const struct range_data *d, enum range_source source,
                 const struct range_case *const *cases, int count)
{
    static double eye[N * N];
    coda_dtype t = source == RANGE_F32 ? CODA_F32 : d->t;
    coda_graph *g = coda_graph_new();
    int64_t x[] = {d->rows, N}, square[] = {N, N}, n[] = {N}, w[] = {M, N}, rows[] = {d->rows};
    for (int i = 0; i < N; i++) eye[i * N + i] = 1;
    coda_value leaf[LEAVES] = {coda_input(g, "x", t, 2, x),
                               coda_weight(g, "eye", t, 2, square),
                               coda_weight(g, "gain", d->t, 1, n),
                               coda_weight(g, "bias", d->t, 1, n),
                               coda_weight(g, "w", d->t, 2, w),
                               CODA_NONE,
                               coda_input(g, "target", CODA_I32, 1, rows)};
    *r = (struct range_graph){.g = g, .cases = cases, .count = count};
    void *arg[] = {store_all(t, d->x, d->rows * N), store_all(t, eye, N * N),
                   store_all(d->t, d->gain, N),     store_all(d->t, d->bias, N),
                   store_all(d->t, d->w, M * N),    calloc(RANGE_MOST_ROWS, sizeof *d->target)};
    memcpy(arg[5], d->target, sizeof *d->target * (size_t)d->rows);
    for (; r->args < (int)ARRAY_SIZE(arg); r->args++) r->arg[r->args] = arg[r->args];
    coda_value from = source_of(g, leaf, source);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        coda_output(g, name, cases[i]->build(g, from, d, leaf));
        r->arg[r->args++] = malloc((size_t)d->rows * N * sizeof(double));
    }
}

void range_free(struct range_graph *r)
{
    for (int i = 0; i < r->args; i++) free(r->arg[i]);
    coda_graph_free(r->g);
}

/* ---- Verdict ---- */

/* Past the end of t it may be infinite, or t's largest. */
static bool near(coda_dtype t, double got, double want, double allow)
{
    double end = t == CODA_F16 ? 65504 : FLT_MAX, u = unit(t);
    if (isnan(want) || isnan(got)) return (isnan(want) && isnan(got)) || allow == INFINITY;
    if (got == want || allow == INFINITY) return true;
    if (fabs(want) + allow > end * (1 - 2 * u) && (fabs(got) > end * (1 - 4 * u)) && got * want > 0)
        return true;
    return fabs(got - want) <= allow + 1.01 * u * fabs(want) + smallest(t) + 0x1p-126;
}

static bool row_right(const struct range_case *c, coda_dtype t, const double *got, const double *want,
                      const double *allow, int *at)
{
    for (*at = 0; *at < c->columns; ++*at)
        if (!near(t, got[*at], want[*at], allow[*at])) return false;
    return true;
}

static bool is_finite(const double *x)
{
    bool finite = true;
    for (int c = 0; c < N; c++) finite = finite && isfinite(x[c]);
    return finite;
}

/* What a row of x is after the product with the identity, in which 0 times inf is NaN. */
static void through_product(double *x)
{
    bool finite = is_finite(x);
    for (int c = 0; c < N && !finite; c++) x[c] = NAN;
}

static bool judge(const struct range_graph *r, const struct range_data *d, enum range_source source,
                  bool fp64, char *why, size_t size)
{
    static double all[RANGE_MOST_ROWS * N];
    int first = r->args - r->count, at;
    memcpy(all, d->x, sizeof all);
    for (int row = 0; row < d->rows && source != RANGE_LEAF; row++) through_product(all + row * N);
    for (int i = 0; i < r->count; i++) {
        const struct range_case *c = r->cases[i];
        coda_dtype t = c->f32 || (source == RANGE_F32 && !c->with_cast) ? CODA_F32 : d->t;
        for (int row = 0; row < d->rows; row++) {
            double want[N], allow[N], got[N], *x = all + row * N;
            c->judge(d, x, row, want, allow);
            for (int k = 0; k < c->columns; k++) {
                int64_t e = (int64_t)row * c->columns + k;
                got[k] = fp64 ? ((const double *)r->arg[first + i])[e] : dtype_load(t, r->arg[first + i], e);
                if (fp64 && isnan(want[k]) && is_finite(x)) allow[k] = INFINITY;
            }
            if (row_right(c, t, got, want, allow, &at)) continue;
            snprintf(why, size, "%s of row %d, %s: column %d is %g, but must be %g +- %.1g", c->name, row,
                     d->what[row], at, got[at], want[at], allow[at]);
            return false;
        }
    }
    return true;
}

bool range_right(const struct range_graph *r, const struct range_data *d, enum range_source source, char *why,
                 size_t size)
{
    return judge(r, d, source, false, why, size);
}

bool range_evaluated(const struct range_graph *r, const struct range_data *d, enum range_source source,
                     char *why, size_t size)
{
    return judge(r, d, source, true, why, size);
}

/* ---- Attention ---- */

enum { HEADS = 2, HEAD = 64, QUERIES = 40, KEYS = 300 };
/* Squares of what 16 bits hold; times log2 e, none is exact. */
static const double score_size[RANGE_SCORES] = {0,      0x9p4,  0x9p10,  0x9p14, -0x9p14,
                                                0x9p16, 0x9p18, -0x9p18, 0x9p60, 0x9p120};

coda_graph *range_attention(coda_dtype t)
{
    coda_graph *g = coda_graph_new();
    int64_t q[] = {QUERIES, HEADS * HEAD}, k[] = {KEYS, HEADS * HEAD};
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = HEADS, o.scale = 1;
    coda_value vq = coda_input(g, "q", t, 2, q), vk = coda_input(g, "k", t, 2, k),
               vv = coda_input(g, "v", t, 2, k);
    coda_output(g, "y", coda_attention(g, vq, vk, vv, CODA_NONE, &o));
    return g;
}

/* In steps that fp32 has beside S; both are exact in 16 bits. */
static double difference(double s, int key)
{
    double step = s == 0 ? 0.25 : fmax(ldexp(1, ilogb(s) - 23), 0.25);
    return fabs(s) > 0x1p24 ? 0 : floor((key * 37 % 101) / 25.0 / step) * step;
}
static double value(int key, int column) { return (key * 29 + column * 31) % 64 / 16.0 - 2; }

static double factor_of(double s) { return s < 0 ? -sqrt(-s) : sqrt(s); }

void range_attention_args(coda_dtype t, int score, void *arg[4])
{
    static const int rows[4] = {QUERIES, KEYS, KEYS, QUERIES};
    double s = score_size[score];
    for (int a = 0; a < 4; a++) {
        double *x = calloc((size_t)(rows[a] * HEADS * HEAD), sizeof *x);
        for (int i = 0; x && i < rows[a] * HEADS * HEAD; i++) {
            int row = i / (HEADS * HEAD), column = i % HEAD;
            if (a == 0) x[i] = column == 0 ? fabs(factor_of(s)) : column == 1;
            if (a == 1) x[i] = column == 0 ? factor_of(s) : column == 1 ? difference(s, row) : 0;
            if (a == 2) x[i] = value(row, column);
            if (a == 3) x[i] = NAN;
        }
        arg[a] = store_all(t, x, rows[a] * HEADS * HEAD);
        free(x);
    }
}

bool range_attention_right(coda_dtype t, int score, void *const arg[4], char *why, size_t size)
{
    double s = score_size[score];
    for (int i = 0; i < QUERIES * HEADS * HEAD; i++) {
        double sum = 0, want = 0, got = dtype_load(t, arg[3], i);
        for (int j = 0; j < KEYS; j++) sum += exp(difference(s, j) - 4);
        for (int j = 0; j < KEYS; j++) want += exp(difference(s, j) - 4) / sum * value(j, i % HEAD);
        if (fabs(got - want) <= 4 * unit(t) + 1e-5) continue;
        snprintf(why, size, "scores of %g: element %d is %g, but must be %g", s, i, got, want);
        return false;
    }
    return true;
}
