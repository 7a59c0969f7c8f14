/*
 * epilogue.c -- what gradients, models with QK-norm, diffusion and heads ask of an epilogue, each one kernel,
 * beside the same product with the plainest epilogue (`base`) and cuBLASLt's product without any.
 *
 *     gain_gradient    t = dz' x;  stores dw = t gain, and the column sums of w t
 *     bias_gradient    dz = (dy w') [z > 0];  stores dz, and its column sums
 *     swiglu_backward  dy = dx w;  from gate and up of the forward product, two fetched tiles: their
 *                      gradients times a factor of each row, stacked or interleaved; the activation;
 *                      a row sum
 *     qk_norm          RMSNorm of each head of q and k, then rope; base: rope alone
 *     gated_residual   x + g (h w') of four samples, each with its g; base: one sample as long as four
 *     f32, sum         the product in fp32, and added to what the result holds; base: in bf16
 *     arg_max          the column of each row's largest logit, none of which is stored
 *
 * K is 16384 for the gradients of weights, as M is for the others.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { HEAD = 128, TOKENS = 16384, VOCABULARY = 32768, SAMPLES = 4 };
enum epilogue {
    GAIN_GRADIENT,
    BIAS_GRADIENT,
    SWIGLU_BACKWARD,
    SWIGLU_BACKWARD_INTERLEAVED,
    QK_NORM,
    QK_NORM_INTERLEAVED,
    GATED_RESIDUAL,
    F32_RESULT,
    SUM,
    ARG_MAX,
    EPILOGUES
};
static const char *const epilogue_name[EPILOGUES] = {"gain_gradient",
                                                     "bias_gradient",
                                                     "swiglu_backward",
                                                     "swiglu_backward_interleaved",
                                                     "qk_norm",
                                                     "qk_norm_interleaved",
                                                     "gated_residual",
                                                     "f32",
                                                     "sum",
                                                     "arg_max"};
static const struct way way[SIDES] = {{"coda", 0, CODA_FOLD_NONE},
                                      {"cublaslt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE},
                                      {"base", 0, CODA_FOLD_NONE}};
enum { FUSED, CUBLASLT, BASE };

/* ---- Graphs ---- */

static coda_value matrix(coda_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return coda_input(g, name, CODA_BF16, 2, (int64_t[]){rows, columns});
}

static coda_value weight(coda_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return coda_weight(g, name, CODA_BF16, 2, (int64_t[]){rows, columns});
}

static coda_value vector(coda_graph *g, const char *name, int64_t n)
{
    return coda_weight(g, name, CODA_BF16, 1, &n);
}

/* x [K, M] and w [K, N] lie as the forward pass has left them. */
static void gain_gradient(coda_graph *g, const struct figure *f, int side)
{
    coda_value x = coda_transpose(g, matrix(g, "x", f->k, f->m), (int[]){1, 0});
    coda_value t = coda_matmul_kn(g, x, matrix(g, "w", f->k, f->n));
    if (side != FUSED) {
        coda_output(g, "y", t);
        return;
    }
    coda_output(g, "dw", coda_mul(g, t, vector(g, "gain", f->n)));
    coda_output(g, "sums", coda_reduce_columns(g, "sum", coda_mul(g, t, weight(g, "weight", f->m, f->n))));
}

static coda_value plain(coda_graph *g, const struct figure *f)
{
    return coda_matmul(g, matrix(g, "x", f->m, f->k), weight(g, "w", f->n, f->k));
}

static void bias_gradient(coda_graph *g, const struct figure *f, int side)
{
    coda_value y = plain(g, f);
    if (side == FUSED) {
        y = coda_mul(g, y, vector(g, "gain", f->n));
        coda_output(g, "sums", coda_reduce_columns(g, "sum", y));
    }
    coda_output(g, "y", y);
}

static void halves(coda_graph *g, const struct figure *f, coda_value z, bool interleaved, coda_value *half)
{
    for (int i = 0; i < 2; i++)
        half[i] = interleaved ? coda_slice(g, z, 1, i, 2 * f->n, 2)
                              : coda_slice(g, z, 1, i * f->n, (i + 1) * f->n, 1);
}

static void swiglu_backward(coda_graph *g, const struct figure *f, int side)
{
    bool interleaved = f->variant == SWIGLU_BACKWARD_INTERLEAVED;
    coda_value dy = coda_matmul_kn(g, matrix(g, "x", f->m, f->k), weight(g, "w", f->k, f->n)), half[2], d[2];
    if (side != FUSED) {
        coda_output(g, "y", dy);
        return;
    }
    halves(g, f, matrix(g, "z", f->m, 2 * f->n), interleaved, half);
    coda_value gate = half[0], up = half[1],
               scale = coda_input(g, "scale", CODA_F32, 2, (int64_t[]){f->m, 1});
    coda_value s = coda_sigmoid(g, gate), a = coda_mul(g, gate, s), one = coda_constant(g, CODA_BF16, 1);
    coda_value slope = coda_add(g, s, coda_mul(g, a, coda_sub(g, one, s)));
    d[0] = coda_mul(g, coda_mul(g, dy, up), slope);
    d[1] = coda_mul(g, dy, a);
    coda_value dots = coda_add(g, coda_mul(g, gate, d[0]), coda_mul(g, up, d[1]));
    for (int i = 0; i < 2; i++) d[i] = coda_mul(g, d[i], scale);
    coda_output(g, "act", coda_mul(g, a, up));
    coda_output(g, "dots", coda_row_sum(g, dots));
    coda_output(g, "dz", interleaved ? coda_interleave(g, 1, d, 2) : coda_concat(g, 1, d, 2));
}

static int64_t heads(const struct figure *f, int part) /* of q, k, v */
{
    int64_t all = f->n / HEAD;
    return part ? all / 6 : all - all / 6 * 2;
}

static coda_value normed_heads(coda_graph *g, const struct figure *f, coda_value y, int part)
{
    coda_value gain = vector(g, part ? "gain_k" : "gain_q", HEAD);
    y = coda_reshape(g, y, 3, (int64_t[]){f->m, heads(f, part), HEAD});
    y = coda_rms_norm(g, y, gain, 1e-6f);
    return coda_reshape(g, y, 2, (int64_t[]){f->m, heads(f, part) * HEAD});
}

static void qk_norm(coda_graph *g, const struct figure *f, int side)
{
    static const char *const name[] = {"q", "k", "v"};
    coda_value y = plain(g, f);
    int64_t first = 0;
    coda_rope_options opt = CODA_ROPE_OPTIONS_INIT;
    opt.head_dim = HEAD;
    opt.style = f->variant == QK_NORM ? CODA_ROPE_HALF : CODA_ROPE_INTERLEAVED;
    opt.heads = side == BASE ? heads(f, 0) + heads(f, 1) : 0;
    if (side == BASE) y = coda_rope(g, y, CODA_NONE, &opt);
    if (side != FUSED) coda_output(g, "y", y);
    for (int i = 0; i < 3 && side == FUSED; i++) {
        int64_t columns = heads(f, i) * HEAD;
        coda_value part = coda_slice(g, y, 1, first, first + columns, 1);
        if (i < 2) part = coda_rope(g, normed_heads(g, f, part, i), CODA_NONE, &opt);
        coda_output(g, name[i], part);
        first += columns;
    }
}

static void gated_residual(coda_graph *g, const struct figure *f, int side)
{
    int64_t samples = side == FUSED ? SAMPLES : 1, rows = f->m / samples;
    coda_value x = coda_input(g, "x", CODA_BF16, 3, (int64_t[]){samples, rows, f->k});
    coda_value y = coda_matmul(g, x, weight(g, "w", f->n, f->k));
    if (side != CUBLASLT) {
        coda_value r = coda_input(g, "r", CODA_BF16, 3, (int64_t[]){samples, rows, f->n});
        coda_value gate = coda_input(g, "gate", CODA_BF16, 3, (int64_t[]){samples, 1, f->n});
        y = coda_add(g, coda_mul(g, y, gate), r);
    }
    coda_output(g, "y", y);
}

static void wide_result(coda_graph *g, const struct figure *f, int side)
{
    coda_value y = plain(g, f);
    if (side != FUSED) coda_output(g, "y", y);
    else if (f->variant == F32_RESULT) coda_output(g, "y", coda_cast(g, y, CODA_F32));
    else coda_output_add(g, "y", coda_cast(g, y, CODA_F32));
}

static void arg_max(coda_graph *g, const struct figure *f, int side)
{
    coda_value y = plain(g, f);
    coda_output(g, "y", side == FUSED ? coda_reduce(g, "arg_max", y, CODA_NONE) : y);
}

static coda_graph *build(const struct figure *f, int side)
{
    static void (*const by_epilogue[EPILOGUES])(coda_graph *, const struct figure *, int) = {
        gain_gradient, bias_gradient,  swiglu_backward, swiglu_backward, qk_norm,
        qk_norm,       gated_residual, wide_result,     wide_result,     arg_max};
    if (side > BASE) return NULL;
    coda_graph *g = coda_graph_new();
    by_epilogue[f->variant](g, f, side);
    return g;
}

/* ---- The same in fp64: a row, or a column, of the product ---- */

struct sums {
    const struct figure *f;
    const struct tensor *x, *w;
    bool of_column;
    int64_t at;
    double *out;
};

/* Element (i, j) of the product. */
static double element(const struct figure *f, const struct tensor *x, const struct tensor *w, int64_t i,
                      int64_t j)
{
    bool gradient = f->variant == GAIN_GRADIENT,
         kn = gradient || f->variant == SWIGLU_BACKWARD || f->variant == SWIGLU_BACKWARD_INTERLEAVED;
    int64_t x_row = gradient ? 1 : f->k, x_k = gradient ? f->m : 1, w_row = kn ? 1 : f->k,
            w_k = kn ? f->n : 1;
    double sum = 0;
    for (int64_t k = 0; k < f->k; k++)
        sum += tensor_at(x, i * x_row + k * x_k) * tensor_at(w, j * w_row + k * w_k);
    return sum;
}

static void add_up(void *ctx, int64_t i)
{
    const struct sums *s = ctx;
    s->out[i] = s->of_column ? element(s->f, s->x, s->w, i, s->at) : element(s->f, s->x, s->w, s->at, i);
}

static void products(struct figure *f, bool of_column, int64_t at, double *out)
{
    struct sums s = {f, figure_tensor(f, "x"), figure_tensor(f, "w"), of_column, at, out};
    in_parallel(of_column ? f->m : f->n, add_up, &s);
}

/* One element of an output: fp32 sums of so many terms, each perhaps of a rounded value. */
static void judge_one(struct figure *f, const char *output, int64_t row, int64_t column, double want,
                      double bound)
{
    int64_t columns = figure_columns(f, FUSED, output);
    double *got = malloc(sizeof *got * (size_t)columns);
    must(!got, "malloc");
    figure_row(f, FUSED, output, row, got);
    double excess = fabs(got[column] - want) / bound;
    f->excess = excess <= f->excess ? f->excess : excess;
    free(got);
}

static void check_column(struct figure *f, int64_t column, double *p)
{
    double sum = 0, size = 0;
    const char *factor = f->variant == GAIN_GRADIENT ? "weight" : "gain";
    products(f, true, column, p);
    for (int64_t i = 0; i < f->m; i++) {
        int64_t at = f->variant == GAIN_GRADIENT ? i * f->n + column : column;
        double term = p[i] * tensor_at(figure_tensor(f, factor), at);
        sum += term;
        size += term * term;
    }
    judge_one(f, "sums", 0, column, sum, 0x1p-8 * sqrt(size) + 0x1p-14 * fabs(sum));
}

static void check_gain(struct figure *f, int64_t row, double *p)
{
    for (int64_t j = 0; j < f->n; j++) p[j] *= tensor_at(figure_tensor(f, "gain"), j);
    figure_judge(f, f->variant == GAIN_GRADIENT ? "dw" : "y", row, p);
}

static void check_swiglu(struct figure *f, int64_t row, double *p)
{
    bool interleaved = f->variant == SWIGLU_BACKWARD_INTERLEAVED;
    const struct tensor *z = figure_tensor(f, "z"), *scale = figure_tensor(f, "scale");
    double *dz = malloc(sizeof *dz * (size_t)(2 * f->n)), dots = 0, size = 0;
    must(!dz, "malloc");
    for (int64_t j = 0; j < f->n; j++) {
        int64_t at[2] = {interleaved ? 2 * j : j, interleaved ? 2 * j + 1 : j + f->n};
        double gate = tensor_at(z, row * 2 * f->n + at[0]), up = tensor_at(z, row * 2 * f->n + at[1]);
        double s = 1 / (1 + exp(-gate)), a = gate * s;
        double d[2] = {p[j] * up * (s + a * (1 - s)), p[j] * a}, dot = gate * d[0] + up * d[1];
        dots += dot;
        size += dot * dot;
        for (int i = 0; i < 2; i++) dz[at[i]] = d[i] * tensor_at(scale, row);
        p[j] = a * up;
    }
    figure_judge(f, "act", row, p);
    figure_judge(f, "dz", row, dz);
    judge_one(f, "dots", row, 0, dots, 0x1p-8 * sqrt(size) + 0x1p-14 * fabs(dots));
    free(dz);
}

static void turn(double *a, double *b, double t)
{
    double u = *a, v = *b;
    *a = u * cos(t) - v * sin(t);
    *b = u * sin(t) + v * cos(t);
}

static void norm_and_turn(const struct figure *f, const struct tensor *gain, int64_t row, double *head)
{
    bool half = f->variant == QK_NORM;
    double squares = 0;
    for (int i = 0; i < HEAD; i++) squares += head[i] * head[i];
    for (int i = 0; i < HEAD; i++) head[i] *= tensor_at(gain, i) / sqrt(squares / HEAD + 1e-6);
    for (int i = 0; i < HEAD / 2; i++)
        turn(head + (half ? i : 2 * i), head + (half ? i + HEAD / 2 : 2 * i + 1),
             (double)row * pow(10000, -2.0 * i / HEAD));
}

static void check_heads(struct figure *f, int64_t row, double *p)
{
    const struct tensor *gain[] = {figure_tensor(f, "gain_q"), figure_tensor(f, "gain_k")};
    for (int part = 0; part < 3; part++) {
        for (int64_t h = 0; h < heads(f, part) && part < 2; h++)
            norm_and_turn(f, gain[part], row, p + h * HEAD);
        figure_judge(f, part == 0 ? "q" : part == 1 ? "k" : "v", row, p);
        p += heads(f, part) * HEAD;
    }
}

static void check_gated(struct figure *f, int64_t row, double *p)
{
    int64_t sample = row / (f->m / SAMPLES);
    for (int64_t j = 0; j < f->n; j++)
        p[j] = p[j] * tensor_at(figure_tensor(f, "gate"), sample * f->n + j) +
               tensor_at(figure_tensor(f, "r"), row * f->n + j);
    figure_judge(f, "y", row, p);
}

/* The first column of those whose logits are within rounding of the largest. */
static void check_arg_max(struct figure *f, int64_t row, double *p)
{
    double got, most = -INFINITY;
    for (int64_t j = 0; j < f->n; j++) most = fmax(most, p[j]);
    figure_row(f, FUSED, "y", row, &got);
    bool column = got >= 0 && got < (double)f->n && got == floor(got);
    double short_by = column ? most - p[(int64_t)got] : INFINITY;
    f->excess = fmax(f->excess, short_by / (0x1p-7 * fabs(most)));
}

/* Unrounded, perhaps added to what was there. The units that multiply cut a sum at each of its steps of 16,
 * by 2^-23 of it at most. */
static void check_sum(struct figure *f, int64_t row, double *p)
{
    double *got = malloc(sizeof *got * (size_t)f->n), off = 0, all = 0;
    must(!got, "malloc");
    figure_row(f, FUSED, "y", row, got);
    for (int64_t j = 0; j < f->n; j++) {
        double want = p[j] + (f->variant == SUM ? tensor_at(figure_tensor(f, "y"), row * f->n + j) : 0);
        double e = fabs(got[j] - want), excess = e / (0x1p-27 * (double)f->k * (1 + fabs(want)));
        off += e * e;
        all += want * want;
        f->excess = excess <= f->excess ? f->excess : excess;
    }
    f->error = fmax(f->error, sqrt(off / all));
    free(got);
}

static void check_row(struct figure *f, int64_t row, double *p)
{
    products(f, false, row, p);
    switch ((enum epilogue)f->variant) {
    case GAIN_GRADIENT:
    case BIAS_GRADIENT: check_gain(f, row, p); break;
    case SWIGLU_BACKWARD:
    case SWIGLU_BACKWARD_INTERLEAVED: check_swiglu(f, row, p); break;
    case QK_NORM:
    case QK_NORM_INTERLEAVED: check_heads(f, row, p); break;
    case GATED_RESIDUAL: check_gated(f, row, p); break;
    case ARG_MAX: check_arg_max(f, row, p); break;
    case SUM:
    case F32_RESULT: check_sum(f, row, p); break;
    default: figure_judge(f, "y", row, p);
    }
}

static void check(struct figure *f)
{
    int64_t most = f->m > f->n ? f->m : f->n;
    double *p = malloc(sizeof *p * (size_t)most);
    bool columns = f->variant == GAIN_GRADIENT || f->variant == BIAS_GRADIENT;
    must(!p, "malloc");
    for (int i = 0; i < ROWS; i++) {
        check_row(f, i * (f->m - 1) / (ROWS - 1), p);
        if (columns) check_column(f, i * (f->n - 1) / (ROWS - 1), p);
    }
    free(p);
}

/* ---- The shapes ---- */

static struct figure figure_of(enum epilogue e, int64_t d, int64_t hidden)
{
    struct figure f = {.m = TOKENS, .n = d, .k = d, .variant = e, .way = way, .build = build, .check = check};
    if (e == GAIN_GRADIENT) f.m = d, f.k = TOKENS;
    if (e == BIAS_GRADIENT) f.k = TOKENS;
    if (e == SWIGLU_BACKWARD || e == SWIGLU_BACKWARD_INTERLEAVED) f.n = hidden;
    if (e == QK_NORM || e == QK_NORM_INTERLEAVED) f.n = 3 * d / 2;
    if (e == ARG_MAX) f.n = VOCABULARY;
    f.first_kernel = e == SWIGLU_BACKWARD || e == SWIGLU_BACKWARD_INTERLEAVED;
    snprintf(f.name, sizeof f.name, "epilogue/%s/%d", epilogue_name[e], (int)d);
    return f;
}

static struct figure few_rows(enum epilogue e, int64_t m, int64_t d)
{
    struct figure f = figure_of(e, d, 0);
    f.m = m;
    snprintf(f.name, sizeof f.name, "epilogue_few/%s/%d", epilogue_name[e], (int)m);
    return f;
}

int main(int argc, char **argv)
{
    static const int64_t d[] = {2048, 4096, 8192}, hidden[] = {5632, 11008, 22016};
    static struct figure figure[3 * EPILOGUES + 3];
    int n = 0;
    for (int i = 0; i < 3; i++)
        for (int e = 0; e < EPILOGUES; e++) figure[n++] = figure_of((enum epilogue)e, d[i], hidden[i]);
    figure[n++] = few_rows(ARG_MAX, 1, d[1]);
    figure[n++] = few_rows(ARG_MAX, 64, d[1]);
    figure[n++] = few_rows(GATED_RESIDUAL, 4096, d[1]);
    return bench_main(argc, argv, "epilogue", figure, n);
}
