/*
 * backward_check.c -- see backward.h. Gradients of rows are compared with fp64, from the leaves on; gradients
 * of weights, which are sums over all rows, with the unfused plan's.
 */
#include "backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Judges ---- */

static void note(struct figure *f, const char *output, double error, double limit)
{
    if (!(error <= limit))
        fprintf(stderr, "%s: %s is off by %.2e, more than %.2e\n", f->name, output, error, limit);
    f->error = error <= f->error ? f->error : error; /* NaN stays */
    f->excess = error / limit <= f->excess ? f->excess : error / limit;
}

/* At most 1.2 times the error of the unfused computation, or half a unit of bf16; never above 2 %. Frees
 * want. */
static void judge(struct figure *f, const char *output, int rows, const int64_t *row, double *want)
{
    bool peer = f->sides > UNFUSED && !strcmp(f->side[UNFUSED].name, "unfused");
    double unfused = peer ? distance(f, UNFUSED, output, rows, row, want) : 1;
    double limit = fmin(2e-2, fmax(0x1p-8, 1.2 * unfused));
    note(f, output, distance(f, FUSED, output, rows, row, want), limit);
    free(want);
}

/* Two computations that round at different places. */
static void agree(struct figure *f, const char *output, const char *unfused)
{
    int64_t n = figure_columns(f, FUSED, output), row[ROWS], all = figure_tensor(f, output)->count / n;
    int rows = all < ROWS ? (int)all : ROWS;
    double *want = room(rows * n);
    for (int i = 0; i < rows; i++) {
        row[i] = rows < 2 ? 0 : i * (all - 1) / (rows - 1);
        figure_row(f, UNFUSED, unfused, row[i], want + i * n);
    }
    note(f, output, distance(f, FUSED, output, rows, row, want), 0x1p-6);
    free(want);
}

static void rows_to_check(const struct figure *f, int64_t *row)
{
    for (int i = 0; i < ROWS; i++) row[i] = i * (f->m - 1) / (ROWS - 1);
}

/* ---- Derivatives, of rows ---- */

/* The derivative of y = x / rms(x) gain by x, from that by y. Frees g. */
static double *norm_backward(struct figure *f, const char *gain, int64_t n, const double *x, double *g)
{
    const struct tensor *t = figure_tensor(f, gain);
    double *dx = room(ROWS * n);
    for (int i = 0; i < ROWS; i++) {
        const double *xi = x + i * n;
        double *gi = g + i * n, squares = 0, dot = 0;
        for (int64_t j = 0; j < n; j++) {
            gi[j] *= tensor_at(t, j);
            squares += xi[j] * xi[j];
            dot += gi[j] * xi[j];
        }
        double r = 1 / sqrt(squares / (double)n + 1e-5);
        for (int64_t j = 0; j < n; j++) dx[i * n + j] = r * gi[j] - xi[j] * r * r * r * dot / (double)n;
    }
    free(g);
    return dx;
}

/* Of y = silu(gate) up; z is gate and up of one row, `up` numbers apart, each number `step` from the next. */
static void swiglu_row(int64_t n, int64_t up, int64_t step, const double *z, const double *dy, double *dz)
{
    for (int64_t j = 0; j < n; j++) {
        double g = z[j * step], u = z[j * step + up], s = 1 / (1 + exp(-g));
        dz[j * step] = dy[j] * u * s * (1 + g * (1 - s));
        dz[j * step + up] = dy[j] * g * s;
    }
}

/* Frees dy. */
static double *swiglu_backward(int64_t n, const double *z, double *dy)
{
    double *dz = room(ROWS * 2 * n);
    for (int i = 0; i < ROWS; i++) swiglu_row(n, n, 1, z + i * 2 * n, dy + i * n, dz + i * 2 * n);
    free(dy);
    return dz;
}

static double *copied(int64_t n, const double *x) { return memcpy(room(n), x, sizeof *x * (size_t)n); }

/* ---- The layer ---- */

struct rows { /* of its forward */
    int64_t row[ROWS];
    double *x1, *z1, *x2, *qkv;
};

static void forward(struct figure *f, struct rows *r)
{
    int64_t d = f->n;
    double *x0 = rows_of(f, "x0", ROWS, r->row);
    r->x1 = times(f, "w0", ROWS, rows_of(f, "y0", ROWS, r->row));
    add(r->x1, x0, ROWS * d);
    r->z1 = times(f, "w1", ROWS, normed(f, "gain0", ROWS, d, r->x1));
    double *y1 = copied(ROWS * 2 * f->k, r->z1);
    gate(ROWS, f->k, y1);
    r->x2 = times(f, "w2", ROWS, y1);
    add(r->x2, r->x1, ROWS * d);
    r->qkv = times(f, "w3", ROWS, normed(f, "gain1", ROWS, d, r->x2));
    rotate(d, ROWS, r->row, 1, r->qkv);
    free(x0);
}

static void check_layer_rows(struct figure *f, struct rows *r)
{
    int64_t d = f->n;
    double *dz3 = rows_of(f, "dqkv", ROWS, r->row), *g2 = rows_of(f, "dx2", ROWS, r->row);
    rotate(d, ROWS, r->row, -1, dz3);
    double *dx = norm_backward(f, "gain1", d, r->x2, times_kn(f, "w3", ROWS, dz3));
    add(g2, dx, ROWS * d);
    free(dx);
    double *dz1 = swiglu_backward(f->k, r->z1, times_kn(f, "w2", ROWS, copied(ROWS * d, g2)));
    dx = norm_backward(f, "gain0", d, r->x1, times_kn(f, "w1", ROWS, dz1));
    add(dx, g2, ROWS * d);
    free(g2);
    judge(f, "dy0", ROWS, r->row, times_kn(f, "w0", ROWS, copied(ROWS * d, dx)));
    judge(f, "dx0", ROWS, r->row, dx);
}

static void check_layer_weights(struct figure *f)
{
    static const char *const name[] = {"dw0", "dw1", "dw2", "dw3", "dgain0", "dgain1"};
    for (int i = 0; i < 6; i++) {
        char unfused[16];
        bool sums = figure_has(f, "u_dw0");
        snprintf(unfused, sizeof unfused, "%s%s", sums ? "u_" : "", name[i]);
        agree(f, name[i], unfused);
    }
}

static void check_layer_of(struct figure *f, bool both)
{
    struct rows r;
    rows_to_check(f, r.row);
    forward(f, &r);
    check_layer_rows(f, &r);
    check_layer_weights(f);
    if (both) judge(f, "qkv", ROWS, r.row, copied(ROWS * 3 * f->n, r.qkv));
    if (both) judge(f, "x2", ROWS, r.row, copied(ROWS * f->n, r.x2));
    double *const all[] = {r.x1, r.z1, r.x2, r.qkv};
    for (int i = 0; i < 4; i++) free(all[i]);
}

void check_layer(struct figure *f) { check_layer_of(f, false); }
void check_layer_both(struct figure *f) { check_layer_of(f, true); }

/* ---- Its parts ---- */

void check_swiglu(struct figure *f)
{
    int64_t row[ROWS];
    rows_to_check(f, row);
    double *z = rows_of(f, "z", ROWS, row), *dy = times_kn(f, "w", ROWS, rows_of(f, "dy", ROWS, row));
    judge(f, "dz", ROWS, row, swiglu_backward(f->k, z, dy));
    agree(f, "dw", "dw");
    free(z);
}

void check_rms(struct figure *f)
{
    int64_t row[ROWS];
    rows_to_check(f, row);
    double *x = rows_of(f, "x", ROWS, row), *g = times_kn(f, "w", ROWS, rows_of(f, "dy", ROWS, row));
    judge(f, "dx", ROWS, row, norm_backward(f, "gain", f->n, x, g));
    agree(f, "dw", "dw");
    agree(f, "dgain", "dgain");
    free(x);
}

void check_paper_rms(struct figure *f)
{
    int64_t row[ROWS], n = f->n;
    rows_to_check(f, row);
    double *x = rows_of(f, "x", ROWS, row), *g = rows_of(f, "g", ROWS, row);
    double *acc = times_kn(f, "w", ROWS, rows_of(f, "dz", ROWS, row));
    const struct tensor *gain = figure_tensor(f, "gain");
    for (int i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < n; j++) {
            double r = tensor_at(figure_tensor(f, "r"), row[i]),
                   zdz = tensor_at(figure_tensor(f, "zdz"), row[i]);
            g[i * n + j] += (acc[i * n + j] * tensor_at(gain, j) - x[i * n + j] * r * zdz) * r;
        }
    judge(f, "dx", ROWS, row, g);
    agree(f, "dgain", "dgain");
    free(x);
    free(acc);
}

void check_paper_swiglu(struct figure *f)
{
    int64_t row[ROWS], n = f->n;
    rows_to_check(f, row);
    double *z = rows_of(f, "z", ROWS, row), *dy = times_kn(f, "w", ROWS, rows_of(f, "dy", ROWS, row));
    double *dz = room(ROWS * 2 * n), dots[ROWS];
    for (int i = 0; i < ROWS; i++) {
        const double *zi = z + i * 2 * n, *di = dz + i * 2 * n;
        swiglu_row(n, 1, 2, zi, dy + i * n, dz + i * 2 * n);
        dots[i] = 0;
        for (int64_t j = 0; j < 2 * n; j++) dots[i] += zi[j] * di[j];
        for (int64_t j = 0; j < n; j++) dy[i * n + j] = zi[2 * j] / (1 + exp(-zi[2 * j])) * zi[2 * j + 1];
    }
    note(f, "dots", distance(f, FUSED, "dots", ROWS, row, dots), 0x1p-6);
    judge(f, "dz", ROWS, row, dz);
    judge(f, "y", ROWS, row, dy);
    free(z);
}

/* Rows of dz' x, each a column of dz times all of x. */
void check_weight(struct figure *f)
{
    const struct tensor *dz = figure_tensor(f, "dz");
    int64_t row[ROWS];
    double *columns = room(ROWS * f->m);
    for (int i = 0; i < ROWS; i++) {
        row[i] = i * (dz->columns - 1) / (ROWS - 1);
        for (int64_t t = 0; t < f->m; t++) columns[i * f->m + t] = tensor_at(dz, t * dz->columns + row[i]);
    }
    judge(f, "dw", ROWS, row, times_kn(f, "x", ROWS, columns));
}

/* ---- Loss, optimisers ---- */

/* (softmax(x w') - 1 at the target) w / m. */
void check_loss(struct figure *f)
{
    int64_t row[ROWS], v = f->k;
    rows_to_check(f, row);
    double *y = times(f, "w", ROWS, rows_of(f, "x", ROWS, row));
    for (int i = 0; i < ROWS; i++) {
        double *yi = y + i * v, most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < v; j++) most = fmax(most, yi[j]);
        for (int64_t j = 0; j < v; j++) sum += yi[j] = exp(yi[j] - most);
        for (int64_t j = 0; j < v; j++) yi[j] /= sum * (double)f->m;
        yi[(int64_t)tensor_at(figure_tensor(f, "target"), row[i])] -= 1 / (double)f->m;
    }
    judge(f, "dx", ROWS, row, times_kn(f, "w", ROWS, y));
    if (strcmp(f->side[UNFUSED].name, "unfused")) return;
    agree(f, "dw", "dw");
    agree(f, "loss", "loss");
}

/* Kingma & Ba, algorithm 1, with Loshchilov & Hutter's decay; betas 0.9 and 0.95. */
void check_adamw(struct figure *f)
{
    static const char *const name[] = {"lr", "c1", "c2", "wd", "grad", "master", "m", "v"};
    const struct tensor *t[8];
    for (int i = 0; i < 8; i++) t[i] = figure_tensor(f, name[i]);
    int64_t n = t[5]->columns, row[ROWS];
    double *want[3], lr = tensor_at(t[0], 0);
    rows_to_check(f, row);
    for (int i = 0; i < 3; i++) want[i] = room(ROWS * n);
    for (int64_t i = 0; i < ROWS * n; i++) {
        int64_t at = row[i / n] * n + i % n;
        double g = tensor_at(t[4], at), p = tensor_at(t[5], at);
        double m = 0.9 * tensor_at(t[6], at) + 0.1 * g, v = 0.95 * tensor_at(t[7], at) + 0.05 * g * g;
        double step = m * tensor_at(t[1], 0) / (sqrt(v * tensor_at(t[2], 0)) + 1e-8);
        want[0][i] = p - lr * (step + tensor_at(t[3], 0) * p);
        want[1][i] = m, want[2][i] = v;
    }
    note(f, "w", distance(f, FUSED, "w", ROWS, row, want[0]), 0x1p-8);
    for (int i = 0; i < 3; i++) {
        note(f, name[5 + i], distance(f, FUSED, name[5 + i], ROWS, row, want[i]), 1e-6);
        free(want[i]);
    }
}

void check_norm(struct figure *f)
{
    const struct tensor *t = figure_tensor(f, "grad");
    double sum = 0, whole = (double)(t->count / t->period);
    int64_t first = 0;
    for (int64_t i = 0; i < t->period; i++) sum += whole * t->values[i] * t->values[i];
    for (int64_t i = 0; i < t->count % t->period; i++) sum += (double)t->values[i] * t->values[i];
    sum = sqrt(sum);
    note(f, "norm", distance(f, FUSED, "norm", 1, &first, &sum), 1e-6);
}

/* ---- What is gathered ---- */

void check_embedding(struct figure *f)
{
    const struct tensor *ids = figure_tensor(f, "ids"), *dy = figure_tensor(f, "dy");
    int64_t row[ROWS], n = f->n;
    double *want = calloc((size_t)(ROWS * n), sizeof *want);
    must(!want, "calloc");
    rows_to_check(f, row);
    for (int i = 0; i < ROWS; i++) {
        row[i] = (int64_t)tensor_at(ids, row[i]);
        for (int64_t t = 0; t < f->m; t++)
            for (int64_t j = 0; j < n && (int64_t)tensor_at(ids, t) == row[i]; j++)
                want[i * n + j] += tensor_at(dy, t * n + j);
    }
    note(f, "dtable", distance(f, FUSED, "dtable", ROWS, row, want), 1e-5);
    free(want);
}

struct query { /* one head of one query: its probabilities and their gradients */
    double *p, *ds;
    int64_t keys;
};

/* The dot product of columns of a head, from a_at on and from b_at on. */
static double dot(struct figure *f, const char *x, int64_t row, int64_t a_at, const char *y, int64_t other,
                  int64_t b_at)
{
    const struct tensor *a = figure_tensor(f, x), *b = figure_tensor(f, y);
    double sum = 0;
    for (int c = 0; c < head_columns(f); c++)
        sum += tensor_at(a, row * a->columns + a_at + c) * tensor_at(b, other * b->columns + b_at + c);
    return sum;
}

static void attend(struct figure *f, struct query *s, int64_t row, int64_t first, int64_t at, int64_t key_at)
{
    const double scale = 1 / sqrt((double)head_columns(f));
    double sum = 0, mean = 0;
    s->keys = row - first + 1;
    for (int64_t j = 0; j < s->keys; j++)
        sum += s->p[j] = exp(dot(f, "q", row, at, "k", first + j, key_at) * scale);
    for (int64_t j = 0; j < s->keys; j++) {
        s->p[j] /= sum;
        s->ds[j] = dot(f, "do", row, at, "v", first + j, key_at);
        mean += s->p[j] * s->ds[j];
    }
    for (int64_t j = 0; j < s->keys; j++) s->ds[j] = s->p[j] * (s->ds[j] - mean) * scale;
}

/* dq of a query of the second sequence; of its last also dk and dv, as no other attends to the last key. */
static void check_query(struct figure *f, int64_t row, int64_t first, bool last)
{
    static const char *const name[] = {"dq", "dk", "dv"};
    int64_t d = f->n, of = row * d, head = head_columns(f), kd = d / heads_grouped(f);
    struct query s = {room(f->k), room(f->k), 0};
    double *want[3] = {calloc((size_t)d, sizeof(double)), calloc((size_t)kd, sizeof(double)),
                       calloc((size_t)kd, sizeof(double))};
    must(!want[0] || !want[1] || !want[2], "calloc");
    for (int64_t at = 0; at < d; at += head) {
        int64_t key_at = at / head / heads_grouped(f) * head;
        attend(f, &s, row, first, at, key_at);
        for (int64_t c = 0; c < head; c++) {
            for (int64_t j = 0; j < s.keys; j++)
                want[0][at + c] += s.ds[j] * tensor_at(figure_tensor(f, "k"), (first + j) * kd + key_at + c);
            want[1][key_at + c] += s.ds[s.keys - 1] * tensor_at(figure_tensor(f, "q"), of + at + c);
            want[2][key_at + c] += s.p[s.keys - 1] * tensor_at(figure_tensor(f, "do"), of + at + c);
        }
    }
    for (int i = 0; i < (last ? 3 : 1); i++)
        note(f, name[i], distance(f, FUSED, name[i], 1, &row, want[i]), 2e-2);
    for (int i = 0; i < 3; i++) free(want[i]);
    free(s.p);
    free(s.ds);
}

void check_attention(struct figure *f)
{
    int64_t first = f->m - f->k;
    check_query(f, first + 3, first, false);
    check_query(f, f->m - 1, first, true);
}
