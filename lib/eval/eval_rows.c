/*
 * eval_rows.c -- the operations that work row by row, in fp64: maps, reductions, norms, rope,
 * embedding, and all that only moves data.
 *
 * They follow the textbook, not the rewriter, so that comparing the two means something. The one shared
 * convention: the 1/N of a norm's factor is a float, as every constant of a graph. A row whose sum of squares
 * is infinite is NaN after a norm, as coda.h has it.
 */
#include "eval.h"

#include <math.h>
#include <string.h>

/* ---- Threads ---- */

/* Rows from..to-1 of some operation. */
typedef void some_rows(void *ctx, int64_t from, int64_t to);

struct span {
    some_rows *fn;
    void *ctx;
    int64_t rows, chunk;
};

static void run_span(void *ctx, int64_t i)
{
    const struct span *s = ctx;
    s->fn(s->ctx, i * s->chunk, MIN((i + 1) * s->chunk, s->rows));
}

/* Calls fn over all rows, on several threads when there is enough to do; a row costs about `work`
 * multiply-adds. */
static void spread(int64_t rows, int64_t work, some_rows *fn, void *ctx)
{
    struct span s = {fn, ctx, rows, MAX((1 << 16) / MAX(work, 1), 1)};
    if (rows <= 2 * s.chunk) fn(ctx, 0, rows);
    else parallel_for(CEIL_DIV(rows, s.chunk), run_span, &s);
}

/* ---- Where a row begins ---- */

/* Offset of row `row` of a tensor of type t, under strides that need not be t's own. */
static int64_t row_offset(const struct type *t, const int64_t *stride, int64_t row)
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

/* ---- Moving data ---- */

struct gather {
    const struct type *type;
    int dtype;
    const void *base;
    const int64_t *stride;
    double *out;
};

static void gather_rows(void *ctx, int64_t from, int64_t to)
{
    const struct gather *s = ctx;
    int64_t columns = type_columns(s->type), step = column_stride(s->type, s->stride);
    for (int64_t row = from; row < to; row++) {
        int64_t at = row_offset(s->type, s->stride, row);
        double *out = s->out + row * columns;
        if (s->dtype == 0)
            for (int64_t c = 0; c < columns; c++) out[c] = ((const double *)s->base)[at + c * step];
        else
            for (int64_t c = 0; c < columns; c++)
                out[c] = dtype_load((coda_dtype)s->dtype, s->base, at + c * step);
    }
}

void eval_gather(const struct type *t, int dtype, const void *base, const int64_t *stride, double *out)
{
    struct gather s = {t, dtype, base, stride, out};
    if (type_elements(t) > 0) spread(type_rows(t), type_columns(t), gather_rows, &s);
}

static void slice(const struct node *n, const struct type *xt, const double *x, double *out)
{
    int64_t stride[CODA_MAX_RANK], axis = n->attr.i[0];
    dense_strides(xt, stride);
    if (n->type.dim[axis] > 0) x += n->attr.i[1] * stride[axis];
    if (n->type.dim[axis] > 1) stride[axis] *= n->attr.i[3]; /* else it may be huge */
    eval_gather(&n->type, 0, x, stride, out);
}

static void transpose(const struct node *n, const struct type *xt, const double *x, double *out)
{
    int64_t dense[CODA_MAX_RANK], stride[CODA_MAX_RANK];
    dense_strides(xt, dense);
    for (int d = 0; d < xt->rank; d++) stride[d] = dense[n->attr.i[d]];
    eval_gather(&n->type, 0, x, stride, out);
}

static void concat(const struct node *n, const struct type *const type[], const double *const in[],
                   double *out)
{
    int axis = (int)n->attr.i[0];
    int64_t outer = 1, inner = 1, to = 0, pitch;
    for (int d = 0; d < axis; d++) outer *= n->type.dim[d];
    for (int d = axis + 1; d < n->type.rank; d++) inner *= n->type.dim[d];
    pitch = n->type.dim[axis] * inner;
    for (int i = 0; i < n->nin; i++) {
        int64_t piece = type[i]->dim[axis] * inner;
        for (int64_t o = 0; o < outer; o++)
            memcpy(out + o * pitch + to, in[i] + o * piece, sizeof *out * (size_t)piece);
        to += piece;
    }
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

static void map_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    int inputs = s->n->nin;
    const double *at[PRIM_MAX_INPUTS];
    int64_t step[PRIM_MAX_INPUTS];
    double v[PRIM_MAX_INPUTS];
    for (int64_t row = from; row < to; row++) {
        for (int i = 0; i < inputs; i++) {
            at[i] = s->in[i] + row_offset(&s->n->type, s->stride[i], row);
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
        double key = s->n->nin > 1 ? s->in[1][row_offset(&s->n->type, s->stride[1], row)] : 0;
        r->init(state);
        for (int64_t c = 0; c < s->columns; c++) r->push(state, s->in[0][row * s->columns + c], c, key);
        s->out[row] = r->finish(state);
    }
}

/* ---- Norms ---- */

/* 1 / sqrt(mean + eps) from a sum of squares. */
static double norm_factor(const struct rowwise *s, double squares)
{
    double inverse = (double)(1.0f / (float)s->columns);
    return isinf(squares) ? NAN : 1 / sqrt(squares * inverse + (double)s->n->attr.f[0]);
}

static void rms_norm_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const double *gain = s->in[1];
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[0] + row * s->columns;
        double *y = s->out + row * s->columns, sum = 0;
        for (int64_t c = 0; c < s->columns; c++) sum += x[c] * x[c];
        double r = norm_factor(s, sum);
        for (int64_t c = 0; c < s->columns; c++) y[c] = x[c] * r * (gain ? gain[c] : 1);
    }
}

static void layer_norm_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const double *gain = s->in[1], *bias = s->in[2];
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[0] + row * s->columns;
        double *y = s->out + row * s->columns, sum = 0, square = 0;
        for (int64_t c = 0; c < s->columns; c++) sum += x[c];
        double mean = sum / (double)s->columns;
        for (int64_t c = 0; c < s->columns; c++) square += (x[c] - mean) * (x[c] - mean);
        double r = norm_factor(s, square);
        for (int64_t c = 0; c < s->columns; c++)
            y[c] = (x[c] - mean) * r * (gain ? gain[c] : 1) + (bias ? bias[c] : 0);
    }
}

static double row_max(const double *x, int64_t n)
{
    double most = -INFINITY;
    for (int64_t c = 0; c < n; c++) most = x[c] > most || isnan(x[c]) ? x[c] : most;
    return most;
}

static void softmax_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[0] + row * s->columns;
        double *y = s->out + row * s->columns, most = row_max(x, s->columns), sum = 0;
        for (int64_t c = 0; c < s->columns; c++) sum += y[c] = exp(x[c] - most);
        for (int64_t c = 0; c < s->columns; c++) y[c] /= sum;
    }
}

/* ---- Loss ---- */

static double row_loss(const struct rowwise *s, int64_t row)
{
    int64_t n = s->columns;
    const double *x = s->in[0] + row * n;
    double target = s->in[1][row];
    if (target == (double)s->n->attr.i[0]) return 0;
    if (!(target >= 0 && target < (double)n)) return NAN;
    double most = row_max(x, n), sum = 0;
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
        count += s->in[1][row] != (double)s->n->attr.i[0];
    }
    s->out[0] = s->n->attr.i[1] == LOSS_MEAN ? sum / count : sum;
}

/* ---- Rope, embedding ---- */

static void rope_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    const struct attr *a = &s->n->attr;
    int64_t head_dim = a->i[0], rotary = a->i[1], heads = a->i[2], half = a->i[3];
    int64_t period = s->in[1] ? type_elements(s->type[1]) : s->type[0]->dim[s->type[0]->rank - 2];
    for (int64_t row = from; row < to; row++) {
        const double *x = s->in[0] + row * s->columns;
        double *y = s->out + row * s->columns, at = (double)(row % period);
        if (s->in[1]) at = s->in[1][row % period];
        memcpy(y, x, sizeof *y * (size_t)s->columns);
        for (int64_t i = 0; i < rotary / 2; i++) {
            double t = at * pow(a->f[0], -2.0 * (double)i / (double)rotary), cosine = cos(t), sine = sin(t);
            int64_t p = half ? i : 2 * i, q = half ? i + rotary / 2 : 2 * i + 1;
            for (int64_t h = 0; h < heads * head_dim; h += head_dim) {
                y[h + p] = x[h + p] * cosine - x[h + q] * sine;
                y[h + q] = x[h + p] * sine + x[h + q] * cosine;
            }
        }
    }
}

static void embedding_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rowwise *s = ctx;
    for (int64_t row = from; row < to; row++) {
        double id = s->in[1][row], *y = s->out + row * s->columns;
        if (id >= 0 && id < (double)s->type[0]->dim[0])
            memcpy(y, s->in[0] + (int64_t)id * s->columns, sizeof *y * (size_t)s->columns);
        else
            memset(y, 0, sizeof *y * (size_t)s->columns);
    }
}

/* ---- Dispatch ---- */

enum { CALL = 8, TRANSCENDENTAL = 32 }; /* the cost of an element, in multiply-adds */

static coda_status map(struct rowwise *s)
{
    const struct node *n = s->n;
    if (!n->prim->reference)
        return fail(CODA_E_UNSUPPORTED, "evaluate: map %s has no reference", n->prim->name);
    for (int i = 0; i < n->nin; i++) broadcast_strides(s->type[i], &n->type, s->stride[i]);
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) s->param[i] = n->attr.f[i];
    spread(type_rows(&n->type), s->columns * CALL, map_rows, s);
    return CODA_OK;
}

static void reduce(struct rowwise *s)
{
    if (s->n->nin > 1) key_strides(s->type[1], &s->n->type, s->stride[1]);
    s->columns = type_columns(s->type[0]);
    spread(type_rows(&s->n->type), s->columns * CALL, reduce_rows, s);
}

static void loss(struct rowwise *s)
{
    int64_t rows = type_rows(s->type[0]);
    s->columns = type_columns(s->type[0]);
    if (s->n->attr.i[1] == LOSS_ROWS) spread(rows, s->columns * TRANSCENDENTAL, loss_rows, s);
    else reduced_loss(s, rows);
}

coda_status eval_rowwise(const struct node *n, const struct type *const type[], const double *const in[],
                         double *out)
{
    struct rowwise s = {.n = n, .type = type, .in = in, .out = out, .columns = type_columns(&n->type)};
    int64_t rows = type_rows(&n->type), count = type_elements(&n->type);
    if (count == 0) return CODA_OK;
    switch (n->op) {
    case OP_CONSTANT: *out = n->attr.f[0]; break;
    case OP_MAP: return map(&s);
    case OP_REDUCE: reduce(&s); break;
    case OP_RMS_NORM: spread(rows, s.columns * 4, rms_norm_rows, &s); break;
    case OP_LAYER_NORM: spread(rows, s.columns * 8, layer_norm_rows, &s); break;
    case OP_SOFTMAX: spread(rows, s.columns * TRANSCENDENTAL, softmax_rows, &s); break;
    case OP_CROSS_ENTROPY: loss(&s); break;
    case OP_ROPE: spread(rows, s.columns * TRANSCENDENTAL, rope_rows, &s); break;
    case OP_EMBEDDING: spread(rows, s.columns, embedding_rows, &s); break;
    case OP_SLICE: slice(n, type[0], in[0], out); break;
    case OP_TRANSPOSE: transpose(n, type[0], in[0], out); break;
    case OP_CONCAT: concat(n, type, in, out); break;
    case OP_CAST:
    case OP_RESHAPE: memcpy(out, in[0], sizeof *out * (size_t)count); break;
    default: return fail(CODA_E_INVALID, "evaluate: %s does not work on rows", op_info[n->op].text);
    }
    return CODA_OK;
}
