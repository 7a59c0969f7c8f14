/* eval_move.c -- the operations that compute nothing, in fp64: leaves, constants, and what moves data. */
#include "eval.h"

#include <math.h>
#include <string.h>

/* ---- Strided tensors ---- */

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
    int64_t columns = type_columns(s->type), step = s->type->rank ? s->stride[s->type->rank - 1] : 0;
    for (int64_t row = from; row < to; row++) {
        int64_t at = eval_row_offset(s->type, s->stride, row);
        double *out = s->out + row * columns;
        if (s->dtype == 0)
            for (int64_t c = 0; c < columns; c++) out[c] = ((const double *)s->base)[at + c * step];
        else
            for (int64_t c = 0; c < columns; c++)
                out[c] = dtype_load((coda_dtype)s->dtype, s->base, at + c * step);
    }
}

/* Gathers a strided tensor into dense doubles; dtype 0 stands for double itself. */
static void gather(const struct type *t, int dtype, const void *base, const int64_t *stride, double *out)
{
    struct gather s = {t, dtype, base, stride, out};
    if (type_elements(t) > 0) eval_spread(type_rows(t), type_columns(t), gather_rows, &s);
}

coda_status eval_slice(const struct eval_call *c)
{
    const struct node *n = c->n;
    const double *x = c->in[SLICE_X];
    const struct attr_slice *a = &n->attr.slice;
    int64_t stride[CODA_MAX_RANK];
    dense_strides(c->type[SLICE_X], stride);
    if (n->type.dim[a->axis] > 0) x += a->start * stride[a->axis];
    if (n->type.dim[a->axis] > 1) stride[a->axis] *= a->step; /* else it may be huge */
    gather(&n->type, 0, x, stride, c->out);
    return CODA_OK;
}

coda_status eval_transpose(const struct eval_call *c)
{
    const struct node *n = c->n;
    const struct type *xt = c->type[TRANSPOSE_X];
    int64_t dense[CODA_MAX_RANK], stride[CODA_MAX_RANK];
    dense_strides(xt, dense);
    for (int d = 0; d < xt->rank; d++) stride[d] = dense[n->attr.transpose.perm[d]];
    gather(&n->type, 0, c->in[TRANSPOSE_X], stride, c->out);
    return CODA_OK;
}

coda_status eval_concat(const struct eval_call *c)
{
    const struct node *n = c->n;
    int axis = (int)n->attr.concat.axis;
    int64_t outer = 1, inner = 1, to = 0, pitch;
    for (int d = 0; d < axis; d++) outer *= n->type.dim[d];
    for (int d = axis + 1; d < n->type.rank; d++) inner *= n->type.dim[d];
    pitch = n->type.dim[axis] * inner;
    if (n->attr.concat.interleave) { /* one element along the axis of each operand in turn */
        outer *= c->type[0]->dim[axis];
        pitch = n->nin * inner;
    }
    for (int i = 0; i < n->nin; i++) {
        int64_t piece = n->attr.concat.interleave ? inner : c->type[i]->dim[axis] * inner;
        for (int64_t o = 0; o < outer; o++)
            memcpy(c->out + o * pitch + to, c->in[i] + o * piece, sizeof *c->out * (size_t)piece);
        to += piece;
    }
    return CODA_OK;
}

/* The same elements in the same order. */
static coda_status copy(const struct eval_call *c)
{
    memcpy(c->out, c->in[0], sizeof *c->out * (size_t)type_elements(&c->n->type));
    return CODA_OK;
}

/* What is stored of x: of 8 bits, that many, which is part of what the operation computes. */
static double as_kept(coda_dtype t, double x, double scale)
{
    uint8_t bits;
    if (!dtype_is_f8(t)) return x;
    dtype_store(t, &bits, 0, x / scale);
    return dtype_load(t, &bits, 0);
}

/* To integers: towards zero, to the nearest that fits; NaN is 0. To fp8: rounded. */
coda_status eval_cast(const struct eval_call *c)
{
    coda_status s = copy(c);
    for (int64_t i = 0; !s && dtype_is_f8(c->n->type.dtype) && i < type_elements(&c->n->type); i++)
        c->out[i] = as_kept(c->n->type.dtype, c->out[i], 1);
    bool wide = c->n->type.dtype == CODA_I64;
    double least = wide ? -0x1p63 : INT32_MIN, most = wide ? 0x1p63 : INT32_MAX;
    for (int64_t i = 0; !s && dtype_is_index(c->n->type.dtype) && i < type_elements(&c->n->type); i++)
        c->out[i] = isnan(c->out[i]) ? 0 : trunc(fmax(least, fmin(most, c->out[i])));
    return s;
}
coda_status eval_reshape(const struct eval_call *c) { return copy(c); }

/* ---- Leaves ---- */

static coda_status leaf(const struct eval_call *c)
{
    gather(&c->n->type, (int)c->n->type.dtype, c->data, c->n->stride, c->out);
    return CODA_OK;
}

coda_status eval_input(const struct eval_call *c) { return leaf(c); }
coda_status eval_weight(const struct eval_call *c) { return leaf(c); }
coda_status eval_scalar(const struct eval_call *c) { return leaf(c); }
coda_status eval_state(const struct eval_call *c) { return leaf(c); }

/* ---- States ---- */

/* Row i, as slot `slot` of pages [heads][page][head_dim], or of rows: one page of one head. */
static void put_row(const struct eval_call *c, bool by_heads, int64_t i, int64_t slot)
{
    const struct type *state = &c->n->type, *rows = c->type[APPEND_ROWS], *scale = c->type[APPEND_SCALE];
    int64_t heads = by_heads ? state->dim[1] : 1, page = by_heads ? state->dim[2] : type_rows(state);
    int64_t head_dim = type_columns(state), columns = type_columns(rows), scales = scale ? scale->dim[0] : 1;
    for (int64_t k = 0; k < columns; k++) {
        double over = scale ? c->in[APPEND_SCALE][k / (columns / scales)] : 1;
        int64_t row = (slot / page * heads + k / head_dim) * page + slot % page;
        c->out[row * head_dim + k % head_dim] =
            as_kept(state->dtype, c->in[APPEND_ROWS][i * columns + k], over);
    }
}

/* One by one, so that of rows for one slot the last one stays. */
coda_status eval_append(const struct eval_call *c)
{
    const struct type *state = &c->n->type;
    bool by_heads = c->n->attr.append.layout == CODA_LAYOUT_HND;
    int64_t slots = by_heads ? state->dim[0] * state->dim[2] : type_rows(state);
    memcpy(c->out, c->in[APPEND_STATE], sizeof *c->out * (size_t)type_elements(state));
    for (int64_t i = 0; i < type_rows(c->type[APPEND_ROWS]); i++) {
        double slot = c->in[APPEND_SLOTS][i];
        if (slot < 0 || slot >= (double)slots) continue;
        put_row(c, by_heads, i, (int64_t)slot);
    }
    return CODA_OK;
}

coda_status eval_assign(const struct eval_call *c)
{
    memcpy(c->out, c->in[ASSIGN_VALUE], sizeof *c->out * (size_t)type_elements(&c->n->type));
    return CODA_OK;
}

void eval_scatter(const struct node *state, const double *from, void *base)
{
    const struct type *t = &state->type;
    int64_t columns = type_columns(t), step = t->rank ? state->stride[t->rank - 1] : 0;
    for (int64_t row = 0; row < type_rows(t); row++) {
        int64_t at = eval_row_offset(t, state->stride, row);
        for (int64_t i = 0; i < columns; i++) {
            double x = from[row * columns + i];
            if (isnan(x) && isnan(dtype_load(t->dtype, base, at + i * step))) continue; /* its bits */
            dtype_store(t->dtype, base, at + i * step, x);
        }
    }
}

coda_status eval_constant(const struct eval_call *c)
{
    *c->out = c->n->attr.constant.value;
    return CODA_OK;
}

coda_status eval_iota(const struct eval_call *c)
{
    for (int64_t i = 0; i < type_elements(&c->n->type); i++) c->out[i] = (double)i;
    return CODA_OK;
}

/* ---- Embedding ---- */

static void embedding_rows(void *ctx, int64_t from, int64_t to)
{
    const struct eval_call *c = ctx;
    int64_t columns = type_columns(&c->n->type);
    for (int64_t row = from; row < to; row++) {
        double id = c->in[EMBEDDING_IDS][row], *y = c->out + row * columns;
        if (id >= 0 && id < (double)c->type[EMBEDDING_TABLE]->dim[0])
            memcpy(y, c->in[EMBEDDING_TABLE] + (int64_t)id * columns, sizeof *y * (size_t)columns);
        else memset(y, 0, sizeof *y * (size_t)columns);
    }
}

coda_status eval_embedding(const struct eval_call *c)
{
    struct eval_call of = *c;
    eval_spread(type_rows(&c->n->type), type_columns(&c->n->type), embedding_rows, &of);
    return CODA_OK;
}

/* ---- Sums of rows by id: columns are shared out, and each adds its tokens in their order ---- */

static void row_sums_columns(void *ctx, int64_t from, int64_t to)
{
    const struct eval_call *c = ctx;
    int64_t rows = c->n->type.dim[0], columns = c->n->type.dim[1];
    for (int64_t row = 0; row < rows; row++)
        memset(c->out + row * columns + from, 0, sizeof *c->out * (size_t)(to - from));
    for (int64_t t = 0; t < type_elements(c->type[ROW_SUMS_IDS]); t++) {
        double id = c->in[ROW_SUMS_IDS][t];
        if (!(id >= 0 && id < (double)rows)) continue;
        const double *x = c->in[ROW_SUMS_X] + t * columns;
        double *sum = c->out + (int64_t)id * columns;
        for (int64_t k = from; k < to; k++) sum[k] += x[k];
    }
}

coda_status eval_row_sums(const struct eval_call *c)
{
    struct eval_call of = *c;
    int64_t work = add_counts(type_elements(c->type[ROW_SUMS_IDS]), c->n->type.dim[0]);
    eval_spread(c->n->type.dim[1], work, row_sums_columns, &of);
    return CODA_OK;
}
