/*
 * eval_rows.c -- the operations that work row by row, in fp64: maps, reductions, norms, losses, rope.
 *
 * They follow the textbook, not the rewriter, so that comparing the two means something. Attributes are
 * floats by coda.h; what follows from a shape, as the 1/N of a norm, is exact. A row whose sum of squares is
 * infinite is NaN after a norm, as coda.h has it.
 */
#include "eval.h"

#include <math.h>
#include <string.h>

/* ---- Threads ---- */

struct span {
    eval_some_rows *fn;
    void *ctx;
    int64_t rows, chunk;
};

static void run_span(void *ctx, int64_t i)
{
    const struct span *s = ctx;
    s->fn(s->ctx, i * s->chunk, MIN((i + 1) * s->chunk, s->rows));
}

void eval_spread(int64_t rows, int64_t work, eval_some_rows *fn, void *ctx)
{
    struct span s = {fn, ctx, rows, MAX((1 << 16) / MAX(work, 1), 1)};
    if (rows <= 2 * s.chunk) fn(ctx, 0, rows);
    else parallel_for(CEIL_DIV(rows, s.chunk), run_span, &s);
}

/* ---- Where a row begins ---- */

int64_t eval_row_offset(const struct type *t, const int64_t *stride, int64_t row)
{
    int64_t at = 0;
    for (int d = t->rank - 2; d >= 0; d--) {
        at += row % t->dim[d] * stride[d];
        row /= t->dim[d];
    }
    return at;
}

/* Strides that repeat a dense tensor of type `from` over the shape of `to`. */
static void broadcast_strides(const struct type *from, const struct type *to, int64_t *stride)
{
    int64_t dense[CODA_MAX_RANK];
    dense_strides(from, dense);
    for (int d = 0; d < to->rank; d++) {
        int e = d - (to->rank - from->rank);
        stride[d] = e < 0 || from->dim[e] == 1 ? 0 : dense[e];
    }
}

/* Strides of a reduction's key, which has one value for each row: [...] or [..., 1]. */
static void key_strides(const struct type *key, const struct type *rows, int64_t *stride)
{
    struct type column = *key;
    if (key->rank < rows->rank) column.dim[column.rank++] = 1;
    broadcast_strides(&column, rows, stride);
}

static int64_t column_stride(const struct type *t, const int64_t *stride)
{
    return t->rank ? stride[t->rank - 1] : 0;
}

/* ---- Maps and reductions: by the primitive's reference ---- */

struct rowwise {
    const struct node *n;
    const struct type *const *type;
    const double *const *in;
    double *out;
    int64_t columns;
    double param[PRIM_MAX_PARAMS];
    int64_t stride[PRIM_MAX_INPUTS][CODA_MAX_RANK];
};

enum { CALL = 8 }; /* the cost of an element, in multiply-adds */

/* `columns` are those of the first operand, as wide as the result or reduced to it. */
static struct rowwise rowwise(const struct eval_call *c)
{
    return (struct rowwise){
        .n = c->n, .type = c->type, .in = c->in, .out = c->out, .columns = type_columns(c->type[0])};
}

/* Over the rows of the first operand. */
static coda_status by_rows(const struct eval_call *c, int64_t work, eval_some_rows *fn)
{
    struct rowwise s = rowwise(c);
    eval_spread(type_rows(c->type[0]), s.columns * work, fn, &s);
    return CODA_OK;
}

static void map_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    int inputs = s->n->nin;
    const double *at[PRIM_MAX_INPUTS];
    int64_t step[PRIM_MAX_INPUTS];
    double v[PRIM_MAX_INPUTS];
    for (int64_t row = from; row < to; row++) {
        for (int i = 0; i < inputs; i++) {
            at[i] = s->in[i] + eval_row_offset(&s->n->type, s->stride[i], row);
            step[i] = column_stride(&s->n->type, s->stride[i]);
        }
        for (int64_t c = 0; c < s->columns; c++) {
            for (int i = 0; i < inputs; i++) v[i] = at[i][c * step[i]];
            s->out[row * s->columns + c] = s->n->prim->reference(v, s->param);
        }
    }
}

static void reduce_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const struct prim_reduce *r = s->n->prim->reduce;
    double state[PRIM_MAX_STATE];
    for (int64_t row = from; row < to; row++) {
        double key = s->n->nin > 1 ? s->in[REDUCE_KEY][eval_row_offset(&s->n->type, s->stride[1], row)] : 0;
        r->init(state);
        for (int64_t c = 0; c < s->columns; c++)
            r->push(state, s->in[REDUCE_X][row * s->columns + c], c, key);
        s->out[row] = r->finish(state);
    }
}

/* A rewritten norm takes the mean of N squares by a float, 1 / N rounded: what it means is 1 / N. */
static double exact_part(const struct eval_call *c, float part)
{
    const struct node *x = c->n->in[0] >= 0 ? &c->g->node[c->n->in[0]] : NULL;
    bool squares = x && x->op == OP_REDUCE && !x->attr.reduce.columns &&
                   (!strcmp(x->prim->name, "sum_sq") || !strcmp(x->prim->name, "m2"));
    int64_t n = squares ? type_columns(&c->g->node[x->in[0]].type) : 0;
    return n > 0 && part == 1.0f / (float)n ? 1 / (double)n : (double)part;
}

coda_status eval_map(const struct eval_call *c)
{
    struct rowwise s = rowwise(c);
    const struct node *n = c->n;
    if (!n->prim->reference)
        return fail(CODA_E_UNSUPPORTED, "evaluate: map %s has no reference", n->prim->name);
    s.columns = type_columns(&n->type);
    for (int i = 0; i < n->nin; i++) broadcast_strides(c->type[i], &n->type, s.stride[i]);
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) s.param[i] = n->attr.map.param[i];
    if (n->prim->params) s.param[0] = exact_part(c, n->attr.map.param[0]);
    eval_spread(type_rows(&n->type), s.columns * CALL, map_rows, &s);
    return CODA_OK;
}

/* Column `j` of the result: that of a matrix, by its number among all columns of all matrices. */
static void reduce_columns(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const struct prim_reduce *r = s->n->prim->reduce;
    int64_t rows = s->type[REDUCE_X]->dim[s->type[REDUCE_X]->rank - 2];
    double state[PRIM_MAX_STATE];
    for (int64_t j = from; j < to; j++) {
        const double *x = s->in[REDUCE_X] + j / s->columns * rows * s->columns + j % s->columns;
        r->init(state);
        for (int64_t row = 0; row < rows; row++) r->push(state, x[row * s->columns], row, 0);
        s->out[j] = r->finish(state);
    }
}

coda_status eval_reduce(const struct eval_call *c)
{
    struct rowwise s = rowwise(c);
    if (c->n->attr.reduce.columns) {
        const struct type *x = c->type[REDUCE_X];
        eval_spread(type_elements(&c->n->type), x->dim[x->rank - 2] * CALL, reduce_columns, &s);
        return CODA_OK;
    }
    if (c->n->nin > 1) key_strides(c->type[REDUCE_KEY], &c->n->type, s.stride[1]);
    eval_spread(type_rows(&c->n->type), s.columns * CALL, reduce_rows, &s);
    return CODA_OK;
}

/* ---- Norms ---- */

/* 1 / sqrt(mean + eps) from a sum of squares. */
static double norm_factor(const struct rowwise *s, double squares, float eps)
{
    return isinf(squares) ? NAN : 1 / sqrt(squares / (double)s->columns + (double)eps);
}

static void rms_norm_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const double *gain = s->in[RMS_NORM_GAIN];
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[RMS_NORM_X] + row * s->columns;
        double *y = s->out + row * s->columns, sum = 0;
        for (int64_t c = 0; c < s->columns; c++) sum += x[c] * x[c];
        double r = norm_factor(s, sum, s->n->attr.rms_norm.eps);
        for (int64_t c = 0; c < s->columns; c++) y[c] = x[c] * r * (gain ? gain[c] : 1);
    }
}

coda_status eval_rms_norm(const struct eval_call *c) { return by_rows(c, 4, rms_norm_rows); }

static void layer_norm_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const double *gain = s->in[LAYER_NORM_GAIN], *bias = s->in[LAYER_NORM_BIAS];
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[LAYER_NORM_X] + row * s->columns;
        double *y = s->out + row * s->columns, sum = 0, square = 0;
        for (int64_t c = 0; c < s->columns; c++) sum += x[c];
        double mean = sum / (double)s->columns;
        for (int64_t c = 0; c < s->columns; c++) square += (x[c] - mean) * (x[c] - mean);
        double r = norm_factor(s, square, s->n->attr.layer_norm.eps);
        for (int64_t c = 0; c < s->columns; c++)
            y[c] = (x[c] - mean) * r * (gain ? gain[c] : 1) + (bias ? bias[c] : 0);
    }
}

coda_status eval_layer_norm(const struct eval_call *c) { return by_rows(c, 8, layer_norm_rows); }

double eval_row_max(const double *x, int64_t n)
{
    double most = -INFINITY;
    for (int64_t c = 0; c < n; c++) most = x[c] > most || isnan(x[c]) ? x[c] : most;
    return most;
}

static void softmax_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[SOFTMAX_X] + row * s->columns;
        double *y = s->out + row * s->columns, most = eval_row_max(x, s->columns), sum = 0;
        for (int64_t c = 0; c < s->columns; c++) sum += y[c] = exp(x[c] - most);
        for (int64_t c = 0; c < s->columns; c++) y[c] /= sum;
    }
}

coda_status eval_softmax(const struct eval_call *c) { return by_rows(c, EVAL_TRANSCENDENTAL, softmax_rows); }

static void log_softmax_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[LOG_SOFTMAX_X] + row * s->columns;
        double *y = s->out + row * s->columns, most = eval_row_max(x, s->columns), sum = 0;
        for (int64_t c = 0; c < s->columns; c++) sum += exp(x[c] - most);
        for (int64_t c = 0; c < s->columns; c++) y[c] = x[c] - most - log(sum);
    }
}

coda_status eval_log_softmax(const struct eval_call *c)
{
    return by_rows(c, EVAL_TRANSCENDENTAL, log_softmax_rows);
}

/* ---- Loss ---- */

static double row_loss(const struct rowwise *s, int64_t row)
{
    int64_t n = s->columns;
    const double *x = s->in[CROSS_ENTROPY_LOGITS] + row * n;
    double target = s->in[CROSS_ENTROPY_TARGETS][row];
    if (target == (double)s->n->attr.cross_entropy.ignore) return 0;
    if (!(target >= 0 && target < (double)n)) return NAN;
    double most = eval_row_max(x, n), sum = 0;
    for (int64_t c = 0; c < n; c++) sum += exp(x[c] - most);
    return (most - x[(int64_t)target]) + log(sum);
}

static void loss_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    for (int64_t row = from; row < to; row++) s->out[row] = row_loss(s, row);
}

/* One thread, because the sum over the rows has one order. */
static void reduced_loss(const struct rowwise *s, int64_t rows)
{
    double sum = 0, count = 0;
    for (int64_t row = 0; row < rows; row++) {
        sum += row_loss(s, row);
        count += s->in[CROSS_ENTROPY_TARGETS][row] != (double)s->n->attr.cross_entropy.ignore;
    }
    s->out[0] = s->n->attr.cross_entropy.reduction == LOSS_MEAN ? sum / count : sum;
}

coda_status eval_cross_entropy(const struct eval_call *c)
{
    struct rowwise s = rowwise(c);
    if (c->n->attr.cross_entropy.reduction == LOSS_ROWS) return by_rows(c, EVAL_TRANSCENDENTAL, loss_rows);
    reduced_loss(&s, type_rows(c->type[CROSS_ENTROPY_LOGITS]));
    return CODA_OK;
}

/* ---- Rope ---- */

/* The column of the positions by which pair i turns: 0 without sections. */
static int64_t axis_of(const struct attr_rope *a, int64_t i, int64_t axes)
{
    int64_t axis = 0, end = a->section[0];
    if (a->interleave_sections) return i < axes * a->section[i % axes] ? i % axes : 0;
    while (axis + 1 < axes && i >= end) end += a->section[++axis];
    return axis;
}

static void rope_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const struct attr_rope *a = &s->n->attr.rope;
    int64_t head_dim = a->head_dim, rotary = a->rotary, half = a->half;
    const double *frequency = s->in[ROPE_FREQUENCIES];
    double scale = a->scale != 0 ? (double)a->scale : 1, sign = a->inverse ? -1 : 1;
    int64_t axes = a->section[0] ? type_columns(s->type[ROPE_POSITIONS]) : 1; /* numbers of a position */
    int64_t period = s->in[ROPE_POSITIONS] ? type_elements(s->type[ROPE_POSITIONS]) / axes
                                           : s->type[ROPE_X]->dim[s->type[ROPE_X]->rank - 2];
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[ROPE_X] + row * s->columns;
        double *y = s->out + row * s->columns, counted = (double)(row % period);
        const double *position =
            s->in[ROPE_POSITIONS] ? s->in[ROPE_POSITIONS] + row % period * axes : &counted;
        memcpy(y, x, sizeof *y * (size_t)s->columns);
        for (int64_t i = 0; i < rotary / 2; i++) {
            double each = frequency ? frequency[i] : pow(a->base, -2.0 * (double)i / (double)rotary);
            double t = position[axis_of(a, i, axes)] * each, cosine = scale * cos(t),
                   sine = sign * scale * sin(t);
            int64_t p = half ? i : 2 * i, q = half ? i + rotary / 2 : 2 * i + 1;
            for (int64_t h = 0; h < a->heads * head_dim; h += head_dim) {
                y[h + p] = x[h + p] * cosine - x[h + q] * sine;
                y[h + q] = x[h + p] * sine + x[h + q] * cosine;
            }
        }
    }
}

coda_status eval_rope(const struct eval_call *c) { return by_rows(c, EVAL_TRANSCENDENTAL, rope_rows); }
