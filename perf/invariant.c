/*
 * invariant.c -- what CODA_BATCH_INVARIANT costs: the products of a LLaMA block with it, beside the same
 * without.
 *
 *     qkv       rope(s x w'), one factor for each row
 *     out       h = x w' + r;  stores h and the row sums of h^2
 *     gate_up   swiglu(s x w'), stacked
 *     down      as out
 *     block     h = a o' + x, z = swiglu(rms_norm(h) g'), y = z d' + h, rope(rms_norm(y) w'): the four behind
 *               each other, with the statistics that pass between them
 *
 * LLaMA-7B's shapes, 1 to 4096 tokens. Attention's price is another one: see coda.h.
 */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

enum { HEAD = 128, D = 4096, F = 11008 };
enum product { QKV, OUT, GATE_UP, DOWN, BLOCK, PRODUCTS };
static const char *const product_name[PRODUCTS] = {"qkv", "out", "gate_up", "down", "block"};
static const struct way way[SIDES] = {{"coda", CODA_BATCH_INVARIANT, CODA_FOLD_NONE},
                                      {"plain", 0, CODA_FOLD_NONE}};

/* ---- Graphs ---- */

static coda_value matrix(coda_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return coda_input(g, name, CODA_BF16, 2, (int64_t[]){rows, columns});
}

static coda_value times(coda_graph *g, coda_value x, const char *name, int64_t n, int64_t k)
{
    return coda_matmul(g, x, coda_weight(g, name, CODA_BF16, 2, (int64_t[]){n, k}));
}

static coda_value rotated(coda_graph *g, coda_value qkv)
{
    coda_rope_options opt = CODA_ROPE_OPTIONS_INIT;
    opt.head_dim = HEAD, opt.heads = 2 * D / HEAD;
    return coda_rope(g, qkv, CODA_NONE, &opt);
}

static void block(coda_graph *g, const struct figure *f)
{
    coda_value x = matrix(g, "x", f->m, D);
    coda_value h = coda_add(g, times(g, matrix(g, "a", f->m, D), "w_o", D, D), x);
    coda_value z =
        coda_swiglu(g, times(g, coda_rms_norm(g, h, CODA_NONE, 1e-5f), "w_gate_up", 2 * F, D), CODA_STACKED);
    coda_value y = coda_add(g, times(g, z, "w_down", D, F), h);
    coda_output(g, "y", y);
    coda_output(g, "qkv", rotated(g, times(g, coda_rms_norm(g, y, CODA_NONE, 1e-5f), "w_qkv", 3 * D, D)));
}

static void one_product(coda_graph *g, const struct figure *f)
{
    coda_value y = times(g, matrix(g, "x", f->m, f->k), "w", f->n, f->k);
    if (f->variant == OUT || f->variant == DOWN) {
        coda_value h = coda_add(g, y, matrix(g, "r", f->m, f->n));
        coda_output(g, "y", h);
        coda_output(g, "squares", coda_row_sum(g, coda_mul(g, h, h)));
        return;
    }
    y = coda_mul(g, y, coda_input(g, "scale", CODA_F32, 2, (int64_t[]){f->m, 1}));
    coda_output(g, "y", f->variant == QKV ? rotated(g, y) : coda_swiglu(g, y, CODA_STACKED));
}

static coda_graph *build(const struct figure *f, int side)
{
    if (side > 1) return NULL;
    coda_graph *g = coda_graph_new();
    (f->variant == BLOCK ? block : one_product)(g, f);
    return g;
}

/* ---- The same in fp64, of one row ---- */

static double *room(int64_t n)
{
    double *p = malloc(sizeof *p * (size_t)n);
    must(!p, "malloc");
    return p;
}

/* Frees x. */
static double *row_times(struct figure *f, const char *name, double *x)
{
    const struct tensor *w = figure_tensor(f, name);
    double *y = room(w->count / w->columns);
    product(w, 1, x, y);
    free(x);
    return y;
}

static double *row_of(struct figure *f, const char *name, int64_t row)
{
    const struct tensor *t = figure_tensor(f, name);
    double *x = room(t->columns);
    tensor_row(t, row, x);
    return x;
}

static void add(double *x, const double *y)
{
    for (int64_t i = 0; i < D; i++) x[i] += y[i];
}

static double squares(const double *x)
{
    double sum = 0;
    for (int64_t i = 0; i < D; i++) sum += x[i] * x[i];
    return sum;
}

static double *normed(const double *x)
{
    double *y = room(D), scale = 1 / sqrt(squares(x) / D + 1e-5);
    for (int64_t i = 0; i < D; i++) y[i] = x[i] * scale;
    return y;
}

static void gate(double *x)
{
    for (int64_t i = 0; i < F; i++) x[i] = x[i] / (1 + exp(-x[i])) * x[i + F];
}

static void rotate(int64_t row, double *qkv)
{
    for (int64_t head = 0; head < 2 * D / HEAD; head++)
        for (int i = 0; i < HEAD / 2; i++) {
            double *a = qkv + head * HEAD + i, *b = a + HEAD / 2, u = *a, v = *b;
            double t = (double)row * pow(10000, -2.0 * i / HEAD);
            *a = u * cos(t) - v * sin(t);
            *b = u * sin(t) + v * cos(t);
        }
}

/* Both sides: 1 % at most, or a unit of bf16 where nothing was rounded on the way. */
static void judge(struct figure *f, const char *output, int64_t row, const double *want)
{
    for (int side = 0; side < f->sides; side++) {
        int64_t n = figure_columns(f, side, output);
        double *got = room(n), off = 0, all = 0, limit = f->variant == BLOCK ? 1e-2 : 0x1p-8;
        figure_row(f, side, output, row, got);
        for (int64_t i = 0; i < n; i++)
            off += (got[i] - want[i]) * (got[i] - want[i]), all += want[i] * want[i];
        double error = sqrt(off / all);
        f->error = error <= f->error ? f->error : error; /* NaN stays */
        f->excess = error / limit <= f->excess ? f->excess : error / limit;
        free(got);
    }
}

static void check_block(struct figure *f, int64_t row)
{
    double *h = row_times(f, "w_o", row_of(f, "a", row)), *x = row_of(f, "x", row);
    add(h, x);
    double *z = row_times(f, "w_gate_up", normed(h));
    gate(z);
    double *y = row_times(f, "w_down", z);
    add(y, h);
    judge(f, "y", row, y);
    double *qkv = row_times(f, "w_qkv", normed(y));
    rotate(row, qkv);
    judge(f, "qkv", row, qkv);
    free(x);
    free(h);
    free(y);
    free(qkv);
}

static void check_product(struct figure *f, int64_t row)
{
    double *y = row_times(f, "w", row_of(f, "x", row));
    if (f->variant == OUT || f->variant == DOWN) {
        double *r = row_of(f, "r", row);
        add(y, r);
        free(r);
        double sum = squares(y);
        judge(f, "squares", row, &sum);
    } else {
        double scale = tensor_at(figure_tensor(f, "scale"), row);
        for (int64_t i = 0; i < f->n; i++) y[i] *= scale;
        if (f->variant == QKV) rotate(row, y);
        else gate(y);
    }
    judge(f, "y", row, y);
    free(y);
}

static void check(struct figure *f)
{
    for (int i = 0; i < (f->m < ROWS ? 1 : ROWS); i++)
        (f->variant == BLOCK ? check_block : check_product)(f, i * (f->m - 1) / (ROWS - 1));
}

/* ---- The shapes ---- */

static struct figure figure_of(enum product p, int64_t m)
{
    struct figure f = {.m = m, .n = D, .k = D, .variant = p, .way = way, .build = build, .check = check};
    if (p == QKV) f.n = 3 * D;
    if (p == GATE_UP) f.n = 2 * F;
    if (p == DOWN) f.k = F;
    f.first_kernel = p == OUT || p == DOWN;
    snprintf(f.name, sizeof f.name, "invariant/%s/%d", product_name[p], (int)m);
    return f;
}

int main(int argc, char **argv)
{
    static const int64_t m[] = {1, 4, 16, 64, 256, 1024, 2048, 4096};
    static struct figure figure[8 * PRODUCTS];
    int n = 0;
    for (int p = 0; p < PRODUCTS; p++)
        for (int i = 0; i < 8; i++) figure[n++] = figure_of((enum product)p, m[i]);
    return bench_main(argc, argv, "invariant", figure, n);
}
