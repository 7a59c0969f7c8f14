/*
 * fused.c -- products with their epilogues, in one kernel, against cuBLASLt's product without any.
 *
 *     residual  h = x w' + r;  stores h, the row sums of h^2, and h gamma
 *     swiglu    silu(s gate) (s up), s one factor for each row; gate and up interleaved or stacked
 *     rope      s x w' rotated, pairs interleaved or in halves; q and k heads, not v
 *     loss      log_sum_exp(s x w') - (s x w')[target]; logits stored or not
 *     gelu      gelu(x w' + bias) + r
 *
 * M is 16384 for the hidden sizes 2048, 4096 and 8192; and 1 to 2048 for 4096 alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { HEAD = 128, VOCABULARY = 32768, TOKENS = 16384 };
enum epilogue { RESIDUAL, DOWN, SWIGLU, SWIGLU_STACKED, ROPE, ROPE_HALF, LOSS, LOGITS, GELU, EPILOGUES };

static const char *const epilogue_name[EPILOGUES] = {"residual",       "residual_down", "swiglu",
                                                     "swiglu_stacked", "rope",          "rope_half",
                                                     "loss",           "loss_logits",   "gelu"};

static coda_value matrix(coda_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return coda_input(g, name, CODA_BF16, 2, (int64_t[]){rows, columns});
}

static coda_value vector(coda_graph *g, const char *name, int64_t n)
{
    return coda_weight(g, name, CODA_BF16, 1, (int64_t[]){n});
}

static coda_value scaled(coda_graph *g, const struct figure *f, coda_value y)
{
    return coda_mul(g, y, coda_input(g, "scale", CODA_F32, 2, (int64_t[]){f->m, 1}));
}

static void residual(coda_graph *g, const struct figure *f, coda_value y)
{
    coda_value h = coda_add(g, y, matrix(g, "r", f->m, f->n));
    coda_output(g, "h", h);
    coda_output(g, "squares", coda_row_sum(g, coda_mul(g, h, h)));
    coda_output(g, "gained", coda_mul(g, h, vector(g, "gamma", f->n)));
}

static void rotated(coda_graph *g, const struct figure *f, coda_value y)
{
    coda_rope_options opt = CODA_ROPE_OPTIONS_INIT;
    opt.head_dim = HEAD;
    opt.heads = f->n / HEAD / 3 * 2;
    opt.style = f->variant == ROPE ? CODA_ROPE_INTERLEAVED : CODA_ROPE_HALF;
    coda_output(g, "y", coda_rope(g, scaled(g, f, y), CODA_NONE, &opt));
}

static void loss(coda_graph *g, const struct figure *f, coda_value y)
{
    coda_cross_entropy_options opt = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    opt.reduction = CODA_REDUCE_NONE;
    coda_value logits = scaled(g, f, y), target = coda_input(g, "target", CODA_I32, 1, &f->m);
    coda_output(g, "loss", coda_cross_entropy(g, logits, target, &opt));
    if (f->variant == LOGITS) coda_output(g, "logits", logits);
}

static void gelu(coda_graph *g, const struct figure *f, coda_value y)
{
    coda_value act = coda_gelu_tanh(g, coda_bias(g, y, vector(g, "bias", f->n)));
    coda_output(g, "y", coda_add(g, act, matrix(g, "r", f->m, f->n)));
}

static coda_graph *build(const struct figure *f, int side)
{
    if (side > 1) return NULL;
    coda_graph *g = coda_graph_new();
    coda_value x = matrix(g, "x", f->m, f->k);
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){f->n, f->k});
    coda_value y = coda_matmul(g, x, w);
    enum epilogue e = (enum epilogue)f->variant;
    if (side) coda_output(g, "y", y);
    else if (e == RESIDUAL || e == DOWN) residual(g, f, y);
    else if (e == SWIGLU) coda_output(g, "y", coda_swiglu(g, scaled(g, f, y), CODA_INTERLEAVED));
    else if (e == SWIGLU_STACKED) coda_output(g, "y", coda_swiglu(g, scaled(g, f, y), CODA_STACKED));
    else if (e == ROPE || e == ROPE_HALF) rotated(g, f, y);
    else if (e == LOSS || e == LOGITS) loss(g, f, y);
    else gelu(g, f, y);
    return g;
}

/* ---- The same in fp64, from a row of the product ---- */

static double factor(struct figure *f, int64_t row) { return tensor_at(figure_tensor(f, "scale"), row); }

static void expect_residual(struct figure *f, int64_t row, const double *p, double *y)
{
    const struct tensor *r = figure_tensor(f, "r"), *gamma = figure_tensor(f, "gamma");
    double squares = 0;
    for (int64_t j = 0; j < f->n; j++) {
        y[j] = p[j] + tensor_at(r, row * f->n + j);
        squares += y[j] * y[j];
    }
    figure_judge(f, "h", row, y);
    figure_judge(f, "squares", row, &squares);
    for (int64_t j = 0; j < f->n; j++) y[j] *= tensor_at(gamma, j);
    figure_judge(f, "gained", row, y);
}

static void expect_swiglu(struct figure *f, int64_t row, const double *p, double *y)
{
    bool stacked = f->variant == SWIGLU_STACKED;
    double s = factor(f, row);
    for (int64_t j = 0; j < f->n / 2; j++) {
        double gate = s * p[stacked ? j : 2 * j], up = s * p[stacked ? j + f->n / 2 : 2 * j + 1];
        y[j] = gate / (1 + exp(-gate)) * up;
    }
    figure_judge(f, "y", row, y);
}

static void expect_rope(struct figure *f, int64_t row, const double *p, double *y)
{
    bool half = f->variant == ROPE_HALF;
    double s = factor(f, row);
    for (int64_t j = 0; j < f->n; j++) y[j] = s * p[j];
    for (int64_t head = 0; head < f->n / HEAD / 3 * 2; head++)
        for (int i = 0; i < HEAD / 2; i++) {
            double *a = y + head * HEAD + (half ? i : 2 * i), *b = a + (half ? HEAD / 2 : 1);
            double t = (double)row * pow(10000, -2.0 * i / HEAD), u = *a, v = *b;
            *a = u * cos(t) - v * sin(t);
            *b = u * sin(t) + v * cos(t);
        }
    figure_judge(f, "y", row, y);
}

static void expect_loss(struct figure *f, int64_t row, const double *p, double *y)
{
    int64_t target = (int64_t)tensor_at(figure_tensor(f, "target"), row);
    double s = factor(f, row), most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < f->n; j++) most = fmax(most, y[j] = s * p[j]);
    for (int64_t j = 0; j < f->n; j++) sum += exp(y[j] - most);
    double value = most + log(sum) - y[target];
    figure_judge(f, "loss", row, &value);
    if (f->variant == LOGITS) figure_judge(f, "logits", row, y);
}

static void expect_gelu(struct figure *f, int64_t row, const double *p, double *y)
{
    const struct tensor *r = figure_tensor(f, "r"), *bias = figure_tensor(f, "bias");
    for (int64_t j = 0; j < f->n; j++) {
        double x = p[j] + tensor_at(bias, j);
        double act = x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        y[j] = act + tensor_at(r, row * f->n + j);
    }
    figure_judge(f, "y", row, y);
}

static void expect(struct figure *f, int64_t row, const double *p)
{
    static void (*const by_epilogue[EPILOGUES])(struct figure *, int64_t, const double *, double *) = {
        expect_residual, expect_residual, expect_swiglu, expect_swiglu, expect_rope,
        expect_rope,     expect_loss,     expect_loss,   expect_gelu};
    double *y = malloc(sizeof *y * (size_t)f->n);
    must(!y, "malloc");
    by_epilogue[f->variant](f, row, p, y);
    free(y);
}

/* ---- The shapes ---- */

static struct figure figure_of(enum epilogue e, int64_t m, int64_t d, int64_t hidden)
{
    struct figure f = {.m = m, .n = d, .k = d, .variant = e, .build = build, .expect = expect};
    if (e == DOWN) f.k = hidden;
    if (e == SWIGLU || e == SWIGLU_STACKED) f.n = 2 * hidden;
    if (e == ROPE || e == ROPE_HALF) f.n = 3 * d;
    if (e == LOSS || e == LOGITS) f.n = VOCABULARY;
    f.first_kernel = e == RESIDUAL || e == DOWN || e == LOSS || e == LOGITS;
    if (m == TOKENS) snprintf(f.name, sizeof f.name, "fused/%s/%d", epilogue_name[e], (int)d);
    else snprintf(f.name, sizeof f.name, "small/%s/%d", epilogue_name[e], (int)m);
    return f;
}

int main(int argc, char **argv)
{
    static const int64_t d[] = {2048, 4096, 8192}, hidden[] = {5632, 11008, 22016};
    static const int64_t m[] = {1, 8, 16, 64, 128, 256, 512, 1024, 2048};
    static struct figure figure[(3 + 9) * EPILOGUES];
    int n = 0;
    for (int i = 0; i < 3; i++)
        for (int e = 0; e < EPILOGUES; e++) figure[n++] = figure_of(e, TOKENS, d[i], hidden[i]);
    for (int i = 0; i < 9; i++)
        for (int e = 0; e < EPILOGUES; e++) figure[n++] = figure_of(e, m[i], d[1], hidden[1]);
    return bench_main(argc, argv, "fused", figure, n);
}
