/*
 * infer.c -- the type of a node from the types of its operands, one rule for each operation.
 *
 * A rule also completes the attributes that were left 0, so that nobody after it needs to know the
 * defaults. Any dimension may be 0 (an empty batch), unless a rule has to divide by it.
 */
#include "graph.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *word(const struct node *n) { return n->prim ? n->prim->name : op_info[n->op].text; }

/* ---- Pieces of rules ---- */

static const struct type *operand(const graph *g, const struct node *n, int i)
{
    return i < n->nin && n->in[i] >= 0 ? &g->node[n->in[i]].type : NULL;
}

static bool dims_equal(const struct type *a, const struct type *b, int rank)
{
    return memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)rank) == 0;
}

static coda_status need_float(const struct node *n, const char *name, const struct type *t, int rank)
{
    if (!dtype_is_float(t->dtype))
        return fail(CODA_E_INVALID, "%s: %s is %s; it must be f32, bf16 or f16", word(n), name,
                    type_text(t).s);
    if (t->rank < rank)
        return fail(CODA_E_INVALID, "%s: %s is %s; it needs rank %d or more", word(n), name, dims_text(t).s,
                    rank);
    return CODA_OK;
}

/* An optional vector over x's columns. */
static coda_status need_columns(const struct node *n, const char *name, const struct type *v,
                                const struct type *x)
{
    if (!v) return CODA_OK;
    if (v->rank != 1 || v->dim[0] != type_columns(x))
        return fail(CODA_E_INVALID, "%s: x is %s but %s is %s; it must be [%" PRId64 "]", word(n),
                    dims_text(x).s, name, dims_text(v).s, type_columns(x));
    return need_float(n, name, v, 1);
}

static coda_status need_range(const struct node *n, const char *name, int64_t value, int64_t least,
                              int64_t most)
{
    if (value >= least && value <= most) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: %s is %" PRId64 "; must be %" PRId64 "..%" PRId64, word(n), name,
                value, least, most);
}

static coda_status need_eps(const struct node *n)
{
    float eps = n->attr.f[0];
    if (isfinite(eps) && eps >= 0) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: eps is %g; it must be finite and >= 0", word(n), (double)eps);
}

/* ---- Rules ---- */

static coda_status infer_leaf(struct node *n)
{
    const char *what = op_info[n->op].text, *name = n->name ? n->name : "(NULL)";
    coda_status s = type_check(what, name, &n->type);
    if (s != CODA_OK) return s;
    for (int i = n->type.rank; i < CODA_MAX_RANK; i++) n->type.dim[i] = n->stride[i] = 0;
    return strides_check(what, name, &n->type, n->stride);
}

static coda_status infer_matmul(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0), *w = operand(g, n, 1);
    coda_status s = need_float(n, "x", x, 2);
    if (s == CODA_OK) s = need_float(n, "w", w, 2);
    if (s == CODA_OK) s = need_range(n, "kn", n->attr.i[0], 0, 1);
    if (s == CODA_OK) s = need_range(n, "f32", n->attr.i[1], 0, 1);
    if (s != CODA_OK) return s;
    int kn = (int)n->attr.i[0];
    if (w->rank != 2 && (w->rank != x->rank || !dims_equal(x, w, x->rank - 2)))
        return fail(CODA_E_INVALID, "matmul: x is %s but w is %s; leading dimensions differ",
                    dims_text(x).s, dims_text(w).s);
    if (type_columns(x) != w->dim[w->rank - 1 - kn])
        return fail(CODA_E_INVALID, "matmul: x is %s but w is %s%s; inner sizes differ", dims_text(x).s,
                    dims_text(w).s, kn ? " (kn)" : "");
    n->type = *x;
    n->type.dim[x->rank - 1] = w->dim[w->rank - 2 + kn];
    if (n->attr.i[1]) n->type.dtype = CODA_F32;
    return CODA_OK;
}

static coda_status infer_map(const graph *g, struct node *n)
{
    struct type t = *operand(g, n, 0);
    for (int i = 1; i < n->nin; i++) {
        const struct type *b = operand(g, n, i);
        if (shape_broadcast(&t, b, &t)) continue;
        return fail(CODA_E_INVALID, "%s: operand 0 is %s but operand %d is %s; they do not broadcast",
                    word(n), dims_text(operand(g, n, 0)).s, i, dims_text(b).s);
    }
    if (t.dtype == CODA_I32) t.dtype = CODA_F32;
    n->type = t;
    return CODA_OK;
}

/* A key is one value for each row: [..] as x's rows, or [..,1] that may repeat. */
static bool is_row_key(const struct type *x, const struct type *key)
{
    if (key->rank == x->rank - 1) return dims_equal(x, key, key->rank);
    if (key->rank != x->rank || type_columns(key) != 1) return false;
    for (int i = 0; i + 1 < x->rank; i++)
        if (key->dim[i] != x->dim[i] && key->dim[i] != 1) return false;
    return true;
}

static coda_status infer_reduce(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0), *key = operand(g, n, 1);
    if (x->rank < 1)
        return fail(CODA_E_INVALID, "%s: x is %s; it needs rank 1 or more", word(n), dims_text(x).s);
    if (key && !is_row_key(x, key))
        return fail(CODA_E_INVALID, "%s: x is %s but the key is %s; it must be one value for each row",
                    word(n), dims_text(x).s, dims_text(key).s);
    n->type = *x;
    n->type.dtype = CODA_F32;
    n->type.dim[x->rank - 1] = 1;
    return CODA_OK;
}

static coda_status infer_norm(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0);
    coda_status s = need_float(n, "x", x, 1);
    if (s == CODA_OK) s = need_columns(n, "gain", operand(g, n, 1), x);
    if (s == CODA_OK) s = need_columns(n, "bias", operand(g, n, 2), x);
    if (s == CODA_OK && n->op != OP_SOFTMAX) s = need_eps(n);
    n->type = *x;
    return s;
}

static coda_status check_positions(const struct node *n, const struct type *x, const struct type *p)
{
    if (!p) return CODA_OK;
    bool rows = p->rank == x->rank - 1 && dims_equal(x, p, p->rank);
    bool times = p->rank == 1 && p->dim[0] == x->dim[x->rank - 2];
    if (p->dtype == CODA_I32 && (rows || times)) return CODA_OK;
    return fail(CODA_E_INVALID,
                "%s: x is %s but positions are %s; must be i32 with x's leading dimensions"
                " or [%" PRId64 "]",
                word(n), dims_text(x).s, type_text(p).s, x->dim[x->rank - 2]);
}

static const float ROPE_BASE = 10000;

static coda_status infer_rope(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0);
    int64_t *head_dim = &n->attr.i[0], *rotary = &n->attr.i[1], *heads = &n->attr.i[2];
    coda_status s = need_float(n, "x", x, 2);
    if (s != CODA_OK) return s;
    int64_t columns = type_columns(x);
    if (!*head_dim) *head_dim = columns;
    if (*head_dim < 1 || columns < 1 || columns % *head_dim)
        return fail(CODA_E_INVALID, "rope: head_dim is %" PRId64 "; it must divide the %" PRId64 " columns",
                    *head_dim, columns);
    if (!*rotary) *rotary = *head_dim;
    if (n->attr.f[0] == 0) n->attr.f[0] = ROPE_BASE;
    if (!*heads) *heads = columns / *head_dim;
    if (*rotary < 2 || *rotary % 2 || *rotary > *head_dim)
        return fail(CODA_E_INVALID,
                    "rope: rotary is %" PRId64 "; it must be even, 2..head_dim (%" PRId64 ")", *rotary,
                    *head_dim);
    if ((s = need_range(n, "heads", *heads, 1, columns / *head_dim)) != CODA_OK) return s;
    if ((s = need_range(n, "half", n->attr.i[3], 0, 1)) != CODA_OK) return s;
    if (!isfinite(n->attr.f[0]) || n->attr.f[0] < 1)
        return fail(CODA_E_INVALID, "rope: base is %g; it must be finite and >= 1", (double)n->attr.f[0]);
    n->type = *x;
    return check_positions(n, x, operand(g, n, 1));
}

/* Head counts and columns of q, k and v. */
static coda_status check_heads(struct node *n, const struct type *q, const struct type *k)
{
    int64_t *heads = &n->attr.i[0], *kv_heads = &n->attr.i[1], columns = type_columns(q);
    if (!*heads) *heads = 1;
    if (!*kv_heads) *kv_heads = *heads;
    if (*heads < 1 || *kv_heads < 1 || *heads % *kv_heads)
        return fail(CODA_E_INVALID,
                    "attention: heads is %" PRId64 ", kv_heads %" PRId64
                    "; both positive, and kv_heads divides heads",
                    *heads, *kv_heads);
    if (columns < 1 || columns % *heads)
        return fail(CODA_E_INVALID, "attention: q is %s; %" PRId64 " heads must divide its columns",
                    dims_text(q).s, *heads);
    int64_t head_dim = columns / *heads; /* <= columns, and kv_heads <= heads: no overflow */
    if (type_columns(k) != head_dim * *kv_heads)
        return fail(CODA_E_INVALID,
                    "attention: k is %s; %" PRId64 " kv_heads of %" PRId64 " columns make %" PRId64,
                    dims_text(k).s, *kv_heads, head_dim, head_dim * *kv_heads);
    if (n->attr.f[0] == 0) n->attr.f[0] = 1.0f / sqrtf((float)head_dim);
    if (!isfinite(n->attr.f[0]))
        return fail(CODA_E_INVALID, "attention: scale is %g; it must be finite", (double)n->attr.f[0]);
    return CODA_OK;
}

static coda_status check_lengths(const struct type *q, const struct type *lengths)
{
    int64_t batch = q->rank == 3 ? q->dim[0] : 1;
    if (!lengths || (lengths->dtype == CODA_I32 && lengths->rank == 1 && lengths->dim[0] == batch))
        return CODA_OK;
    return fail(CODA_E_INVALID, "attention: q is %s but lengths are %s; must be i32[%" PRId64 "]",
                dims_text(q).s, type_text(lengths).s, batch);
}

/* Positions matter to a causal mask and to a window. Where lengths leave open what they are counted from,
 * the caller has to say it: a single query under a causal mask alone sees the whole sequence either way. */
static coda_status check_align(struct node *n, const struct type *q, const struct type *k, bool lengths)
{
    int64_t *align = &n->attr.i[4], tq = q->dim[q->rank - 2], tk = k->dim[k->rank - 2];
    bool window = n->attr.i[2] != 0, causal = n->attr.i[3] != 0;
    coda_status s = need_range(n, "align", *align, CODA_ALIGN_DEFAULT, CODA_ALIGN_LENGTH);
    if (s != CODA_OK) return s;
    if (!causal && !window) *align = CODA_ALIGN_DEFAULT;
    if (*align || (!causal && !window) || !lengths || tq == tk || (tq == 1 && !window)) return CODA_OK;
    return fail(CODA_E_INVALID,
                "attention: %s, lengths, Tq %" PRId64 " and Tk %" PRId64 ": align must say where queries sit:"
                " CODA_ALIGN_LENGTH (3): the last before the length, CODA_ALIGN_END (2): before Tk,"
                " or CODA_ALIGN_START (1)",
                window ? "window" : "causal", tq, tk);
}

static coda_status infer_attention(const graph *g, struct node *n)
{
    const struct type *q = operand(g, n, 0), *k = operand(g, n, 1), *v = operand(g, n, 2);
    coda_status s = need_float(n, "q", q, 2);
    if (s == CODA_OK) s = need_float(n, "k", k, 2);
    if (s == CODA_OK) s = need_float(n, "v", v, 2);
    if (s != CODA_OK) return s;
    if (q->rank > 3 || q->rank != k->rank || (q->rank == 3 && q->dim[0] != k->dim[0]))
        return fail(CODA_E_INVALID, "attention: q is %s but k is %s; both [B,T,columns] or [T,columns]",
                    dims_text(q).s, dims_text(k).s);
    if (k->rank != v->rank || !dims_equal(k, v, k->rank))
        return fail(CODA_E_INVALID, "attention: k is %s but v is %s; they must be equal", dims_text(k).s,
                    dims_text(v).s);
    if ((s = check_heads(n, q, k)) != CODA_OK) return s;
    if ((s = need_range(n, "window", n->attr.i[2], 0, INT32_MAX)) != CODA_OK) return s;
    if ((s = need_range(n, "causal", n->attr.i[3], 0, 1)) != CODA_OK) return s;
    if ((s = check_align(n, q, k, operand(g, n, 3))) != CODA_OK) return s;
    n->type = *q;
    return check_lengths(q, operand(g, n, 3));
}

/* Losses have the shape of the targets, or [1] when they are reduced. The ignored index travels as a
 * float. */
static coda_status infer_cross_entropy(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0), *t = operand(g, n, 1);
    coda_status s = need_float(n, "logits", x, 1);
    if (s == CODA_OK) s = need_range(n, "reduction", n->attr.i[1], LOSS_ROWS, LOSS_SUM);
    if (s == CODA_OK) s = need_range(n, "ignore", n->attr.i[0], INT32_MIN, INT32_MAX);
    if (s != CODA_OK) return s;
    if ((int64_t)(float)n->attr.i[0] != n->attr.i[0])
        return fail(CODA_E_INVALID, "cross_entropy: ignore is %" PRId64 "; it has no exact fp32 value",
                    n->attr.i[0]);
    if (t->dtype != CODA_I32 || t->rank != x->rank - 1 || !dims_equal(x, t, t->rank))
        return fail(CODA_E_INVALID,
                    "cross_entropy: logits are %s but targets are %s; must be i32, one for"
                    " each row",
                    dims_text(x).s, type_text(t).s);
    n->type = *t;
    if (n->attr.i[1] != LOSS_ROWS) n->type = (struct type){.rank = 1, .dim = {1}};
    n->type.dtype = CODA_F32;
    return CODA_OK;
}

static coda_status infer_embedding(const graph *g, struct node *n)
{
    const struct type *table = operand(g, n, 0), *ids = operand(g, n, 1);
    coda_status s = need_float(n, "table", table, 2);
    if (s != CODA_OK) return s;
    if (table->rank != 2 || ids->dtype != CODA_I32 || ids->rank >= CODA_MAX_RANK)
        return fail(CODA_E_INVALID,
                    "embedding: table is %s and ids are %s; need [V,N] and i32 of rank < %d",
                    type_text(table).s, type_text(ids).s, CODA_MAX_RANK);
    n->type = *ids;
    n->type.dtype = table->dtype;
    n->type.dim[n->type.rank++] = table->dim[1];
    return CODA_OK;
}

static coda_status infer_cast(const graph *g, struct node *n)
{
    n->type = *operand(g, n, 0);
    coda_dtype to = (coda_dtype)n->attr.i[0], from = n->type.dtype;
    if (n->attr.i[0] < 0 || n->attr.i[0] > INT32_MAX || !dtype_size(to))
        return fail(CODA_E_INVALID, "cast: %" PRId64 " is no dtype", n->attr.i[0]);
    if (to == CODA_I32 && from != CODA_I32)
        return fail(CODA_E_INVALID, "cast: x is %s; only i32 casts to i32", type_text(&n->type).s);
    n->type.dtype = to;
    return CODA_OK;
}

/* The value becomes what its dtype can hold. */
static coda_status infer_constant(struct node *n)
{
    coda_dtype t = (coda_dtype)n->attr.i[0];
    float *value = &n->attr.f[0];
    uint32_t stored;
    if (n->attr.i[0] < 0 || n->attr.i[0] > INT32_MAX || !dtype_size(t))
        return fail(CODA_E_INVALID, "constant: %" PRId64 " is no dtype", n->attr.i[0]);
    if (t == CODA_I32 && !(fabsf(*value) < 0x1p24f && *value == rintf(*value)))
        return fail(CODA_E_INVALID, "constant: %.9g is no i32 below 2^24", (double)*value);
    dtype_store(t, &stored, 0, *value);
    *value = isnan(*value) ? NAN : (float)dtype_load(t, &stored, 0);
    n->type = (struct type){.dtype = t};
    return CODA_OK;
}

static coda_status infer_slice(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0);
    int64_t axis = n->attr.i[0], start = n->attr.i[1], stop = n->attr.i[2], step = n->attr.i[3];
    if (axis < 0 || axis >= x->rank)
        return fail(CODA_E_INVALID, "slice: x is %s; it has no axis %" PRId64, dims_text(x).s, axis);
    if (start < 0 || start > stop || stop > x->dim[axis] || step < 1)
        return fail(CODA_E_INVALID,
                    "slice: start %" PRId64 ", stop %" PRId64 ", step %" PRId64
                    "; need 0 <= start <= stop <= %" PRId64 " and step >= 1",
                    start, stop, step, x->dim[axis]);
    /* A longer step finds one element in any case; strides times a step fit as the tensor itself does. */
    n->attr.i[3] = step = MIN(step, MAX(x->dim[axis], 2));
    n->type = *x;
    n->type.dim[axis] = (stop - start) / step + ((stop - start) % step != 0);
    return CODA_OK;
}

static coda_status infer_concat(const graph *g, struct node *n)
{
    struct type t = *operand(g, n, 0);
    int64_t axis = n->attr.i[0];
    if (axis < 0 || axis >= t.rank)
        return fail(CODA_E_INVALID, "concat: operand 0 is %s; it has no axis %" PRId64, dims_text(&t).s,
                    axis);
    for (int i = 1; i < n->nin; i++) {
        const struct type *x = operand(g, n, i);
        struct type expect = t;
        expect.dim[axis] = x->rank == t.rank ? x->dim[axis] : 0;
        if (!type_equal(&expect, x))
            return fail(CODA_E_INVALID,
                        "concat: operand 0 is %s but operand %d is %s; only axis %" PRId64 " may differ",
                        type_text(operand(g, n, 0)).s, i, type_text(x).s, axis);
        if (__builtin_add_overflow(t.dim[axis], x->dim[axis], &t.dim[axis]))
            return fail(CODA_E_INVALID, "concat: axis %" PRId64 " does not fit in 63 bits", axis);
    }
    n->type = t;
    return CODA_OK;
}

static coda_status infer_reshape(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0);
    coda_status s = need_range(n, "rank", n->attr.i[6], 0, CODA_MAX_RANK);
    if (s != CODA_OK) return s;
    n->type = (struct type){x->dtype, (int)n->attr.i[6], {0}};
    for (int i = 0; i < CODA_MAX_RANK; i++) {
        if (i >= n->type.rank) n->attr.i[i] = 0;
        n->type.dim[i] = n->attr.i[i];
    }
    if ((s = type_check("reshape", "result", &n->type)) != CODA_OK) return s;
    if (type_elements(&n->type) == type_elements(x)) return CODA_OK;
    return fail(CODA_E_INVALID, "reshape: x is %s, %" PRId64 " elements, but %s has %" PRId64,
                dims_text(x).s, type_elements(x), dims_text(&n->type).s, type_elements(&n->type));
}

static coda_status infer_transpose(const graph *g, struct node *n)
{
    const struct type *x = operand(g, n, 0);
    unsigned seen = 0;
    n->type = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t p = n->attr.i[i];
        if (p < 0 || p >= x->rank || seen >> p & 1)
            return fail(CODA_E_INVALID, "transpose: x is %s; p%d = %" PRId64 " makes no permutation",
                        dims_text(x).s, i, p);
        seen |= 1u << p;
        n->type.dim[i] = x->dim[p];
    }
    for (int i = x->rank; i < CODA_MAX_RANK; i++) n->attr.i[i] = 0;
    return CODA_OK;
}

static coda_status infer(const graph *g, struct node *n)
{
    switch (n->op) {
    case OP_INPUT:
    case OP_WEIGHT: return infer_leaf(n);
    case OP_CONSTANT: return infer_constant(n);
    case OP_MATMUL: return infer_matmul(g, n);
    case OP_MAP: return infer_map(g, n);
    case OP_REDUCE: return infer_reduce(g, n);
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
    case OP_SOFTMAX: return infer_norm(g, n);
    case OP_ROPE: return infer_rope(g, n);
    case OP_ATTENTION: return infer_attention(g, n);
    case OP_CROSS_ENTROPY: return infer_cross_entropy(g, n);
    case OP_EMBEDDING: return infer_embedding(g, n);
    case OP_CAST: return infer_cast(g, n);
    case OP_SLICE: return infer_slice(g, n);
    case OP_CONCAT: return infer_concat(g, n);
    case OP_RESHAPE: return infer_reshape(g, n);
    case OP_TRANSPOSE: return infer_transpose(g, n);
    case OP_COUNT: break;
    }
    return fail(CODA_E_INVALID, "%d is no operation", (int)n->op);
}

coda_status shape_infer(const graph *g, struct node *n)
{
    coda_status s = infer(g, n);
    if (s != CODA_OK || op_is_leaf(n->op)) return s;
    return type_check(word(n), "result", &n->type);
}
