/*
 * infer.c -- the type of a node from the types of its operands, one rule for each operation: infer_NAME.
 *
 * A rule also completes the attributes that were left 0, so that nobody after it needs to know the
 * defaults. Any dimension may be 0 (an empty batch), unless a rule has to divide by it.
 */
#include "infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Leaves ---- */

static coda_status infer_leaf(struct node *n)
{
    const char *what = op_info[n->op].text, *name = n->name ? n->name : "(NULL)";
    coda_status s = type_check(what, name, &n->type);
    if (s != CODA_OK) return s;
    for (int i = n->type.rank; i < CODA_MAX_RANK; i++) n->type.dim[i] = n->stride[i] = 0;
    return strides_check(what, name, &n->type, n->stride);
}

coda_status infer_input(const graph *g, struct node *n)
{
    (void)g;
    if (n->attr.input.consumed == 0 || n->attr.input.consumed == 1) return infer_leaf(n);
    return fail(CODA_E_INVALID, "input %.40s: consumed is %lld; must be 0..1", n->name,
                (long long)n->attr.input.consumed);
}

coda_status infer_weight(const graph *g, struct node *n)
{
    (void)g;
    coda_status s = infer_leaf(n);
    for (int i = 0; i < n->type.rank && s == CODA_OK; i++) {
        if (dim_is_number(n->type.dim[i]) && dim_is_number(n->stride[i])) continue;
        s = fail(CODA_E_INVALID, "weight %.40s: it is %s; its dimensions and strides must be numbers",
                 n->name, dims_text(&n->type).s);
    }
    return s;
}

coda_status infer_state(const graph *g, struct node *n)
{
    (void)g;
    return infer_leaf(n);
}

coda_status infer_scalar(const graph *g, struct node *n)
{
    const char *name = n->name ? n->name : "(NULL)";
    (void)g;
    if (n->type.rank)
        return fail(CODA_E_INVALID, "scalar %.40s: its type is %s; it has no dimensions", name,
                    type_text(&n->type).s);
    if (n->type.dtype != CODA_F32 && n->type.dtype != CODA_I32)
        return fail(CODA_E_INVALID, "scalar %.40s: its dtype is %s; must be f32 or i32", name,
                    dtype_bits(n->type.dtype) ? dtype_name(n->type.dtype) : "none");
    return infer_leaf(n);
}

/* ---- Products ---- */

/* Inner sizes differ. Weights are [N,K], as PyTorch's Linear has them, while JAX and GPT-2's files have
 * [K,N]: if w would fit that way round, say how. */
static coda_status fail_inner(const struct type *x, const struct type *w, int kn)
{
    int64_t k = type_columns(x);
    const char *hint = "";
    if (w->dim[w->rank - 2 + kn] == k)
        hint = kn ? "; a w of [N,K] is for coda_matmul, or kn=0"
                  : "; a w of [K,N] is for coda_matmul_kn, or kn=1";
    return fail(CODA_E_INVALID, "matmul: x is %s but w is %s%s; inner sizes %s and %s differ%s",
                dims_text(x).s, dims_text(w).s, kn ? " (kn)" : "", dim_text(x->dims, k).s,
                dim_text(w->dims, w->dim[w->rank - 1 - kn]).s, hint);
}

/* Both operands are fp8: their product is exact in fp32. */
static bool is_f8_product(const struct node *n, const graph *g)
{
    const struct type *x = operand_type(g, n, MATMUL_X), *w = operand_type(g, n, MATMUL_W);
    return n->op == OP_MATMUL && x && w && dtype_is_f8(x->dtype) && dtype_is_f8(w->dtype);
}

static coda_status need_matrix(const struct node *n, int operand, const struct type *t)
{
    if (t->rank >= 2) return CODA_OK;
    return fail(CODA_E_INVALID, "matmul: %s is %s; it needs rank 2 or more", op_info[n->op].name[operand],
                dims_text(t).s);
}

coda_status infer_matmul(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, MATMUL_X), *w = operand_type(g, n, MATMUL_W);
    coda_status s = is_f8_product(n, g) ? need_matrix(n, MATMUL_X, x) : need_any_float(n, MATMUL_X, x, 2);
    if (s == CODA_OK)
        s = dtype_is_storage(w->dtype) ? need_matrix(n, MATMUL_W, w) : need_any_float(n, MATMUL_W, w, 2);
    if (s == CODA_OK) s = need_range(n, "kn", n->attr.matmul.kn, 0, 1);
    if (s == CODA_OK) s = need_range(n, "f32", n->attr.matmul.f32, 0, 1);
    if (s != CODA_OK) return s;
    int kn = (int)n->attr.matmul.kn;
    if (!dim_is_number(w->dim[w->rank - 2 + kn]))
        return fail(CODA_E_INVALID, "matmul: w is %s; y's columns, %s, must be a number", dims_text(w).s,
                    dim_text(w->dims, w->dim[w->rank - 2 + kn]).s);
    if (w->rank != 2 && (w->rank != x->rank || !dims_equal(x, w, x->rank - 2)))
        return fail(CODA_E_INVALID, "matmul: x is %s but w is %s; leading dimensions differ", dims_text(x).s,
                    dims_text(w).s);
    if (type_columns(x) != w->dim[w->rank - 1 - kn]) return fail_inner(x, w, kn);
    n->type = *x;
    n->type.dim[x->rank - 1] = w->dim[w->rank - 2 + kn];
    if (n->attr.matmul.f32 || dtype_is_storage(x->dtype)) n->type.dtype = CODA_F32;
    return CODA_OK;
}

/* ---- Maps ---- */

/* `so_far` is what operands 0 to i - 1 make. The first dimensions, from the right, that differ, or may: a
 * symbol may be 1 at times, but never broadcasts. */
static coda_status fail_broadcast(const struct node *n, const struct type *first, const struct type *so_far,
                                  int i, const struct type *b)
{
    for (int d = 1; d <= MIN(so_far->rank, b->rank); d++) {
        int64_t p = so_far->dim[so_far->rank - d], q = b->dim[b->rank - d];
        if (p == q || p == 1 || q == 1) continue;
        if (dim_is_number(p) && dim_is_number(q))
            return fail(CODA_E_INVALID,
                        "%s: operand 0 is %s but operand %d is %s; they do not broadcast: %" PRId64
                        " and %" PRId64 " differ",
                        node_word(n), dims_text(first).s, i, dims_text(b).s, p, q);
        return fail(CODA_E_INVALID,
                    "%s: operand 0 is %s but operand %d is %s; %s and %s may differ: use one for both",
                    node_word(n), dims_text(first).s, i, dims_text(b).s, dim_text(so_far->dims, p).s,
                    dim_text(b->dims, q).s);
    }
    return fail(CODA_E_INVALID, "%s: operand 0 is %s but operand %d is %s; they do not broadcast",
                node_word(n), dims_text(first).s, i, dims_text(b).s);
}

coda_status infer_map(const graph *g, struct node *n)
{
    struct type t = *operand_type(g, n, 0);
    for (int i = 1; i < n->nin; i++) {
        const struct type *b = operand_type(g, n, i);
        if (!shape_broadcast(&t, b, &t)) return fail_broadcast(n, operand_type(g, n, 0), &t, i, b);
    }
    t.dtype = operand_type(g, n, n->prim->facts.dtype)->dtype;
    if (dtype_is_index(t.dtype)) t.dtype = CODA_F32;
    n->type = t;
    return CODA_OK;
}

/* ---- Rows by id ---- */

coda_status infer_embedding(const graph *g, struct node *n)
{
    const struct type *table = operand_type(g, n, EMBEDDING_TABLE), *ids = operand_type(g, n, EMBEDDING_IDS);
    if (table->rank != 2 || !dtype_is_index(ids->dtype) || ids->rank >= CODA_MAX_RANK)
        return fail(CODA_E_INVALID,
                    "embedding: table is %s and ids are %s; need [V,N] and i32 or i64 of rank < %d",
                    type_text(table).s, type_text(ids).s, CODA_MAX_RANK);
    if (dims_most(g->dims, table->dim[0]) > IOTA_MOST) /* an id is an fp32 number in kernels */
        return fail(CODA_E_INVALID, "embedding: table is %s, %s rows; most are %d", type_text(table).s,
                    dim_text(g->dims, table->dim[0]).s, IOTA_MOST);
    n->type = *ids;
    n->type.dtype = table->dtype;
    n->type.dim[n->type.rank++] = table->dim[1];
    return need_fixed_columns(n, "table", table);
}

coda_status infer_row_sums(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, ROW_SUMS_X), *ids = operand_type(g, n, ROW_SUMS_IDS);
    int64_t rows = n->attr.row_sums.rows, tokens;
    coda_status s = need_float(n, ROW_SUMS_X, x, 1);
    if (s == CODA_OK) s = need_fixed_columns(n, "x", x);
    if (s != CODA_OK) return s;
    if (!dtype_is_index(ids->dtype) || ids->rank != x->rank - 1 || !dims_equal(x, ids, ids->rank))
        return fail(CODA_E_INVALID,
                    "row_sums: x is %s but ids are %s; must be i32 or i64, one for each row of x",
                    dims_text(x).s, type_text(ids).s);
    if ((tokens = type_count(ids)) == DIM_NONE) return CODA_E_INVALID;
    if (dims_most(g->dims, tokens) > INT32_MAX) /* kernels keep their places in 32 bits */
        return fail(CODA_E_INVALID, "row_sums: ids are %s, %s of them; most are %d", type_text(ids).s,
                    dim_text(g->dims, tokens).s, INT32_MAX);
    if (!dims_has(g->dims, rows) || dims_most(g->dims, rows) > IOTA_MOST)
        return fail(CODA_E_INVALID, "row_sums: rows is %s; must be 0..%d", dim_text(g->dims, rows).s,
                    IOTA_MOST);
    n->type = (struct type){.dtype = CODA_F32, .rank = 2, .dim = {rows, type_columns(x)}, .dims = g->dims};
    return CODA_OK;
}

/* ---- Casts and constants ---- */

coda_status infer_cast(const graph *g, struct node *n)
{
    n->type = *operand_type(g, n, CAST_X);
    coda_dtype to = (coda_dtype)n->attr.cast.to;
    coda_status s = need_dtype(n, n->attr.cast.to);
    bool rounds = dtype_is_f8(to) && dtype_is_float(n->type.dtype);
    if (s == CODA_OK && dtype_is_storage(to) && n->type.dtype != to && !rounds)
        return fail(CODA_E_INVALID,
                    "cast: x is %s; of 8 bits only f8e4m3 and f8e5m2 are written, of f32, "
                    "bf16 or f16",
                    type_text(&n->type).s);
    n->type.dtype = to;
    return s;
}

/* The value becomes what its dtype can hold. */
coda_status infer_constant(const graph *g, struct node *n)
{
    (void)g;
    coda_dtype t = (coda_dtype)n->attr.constant.to;
    float *value = &n->attr.constant.value;
    uint64_t stored;
    coda_status s = need_dtype(n, n->attr.constant.to);
    if (s != CODA_OK) return s;
    if (dtype_is_storage(t))
        return fail(CODA_E_INVALID, "constant: %s is storage of caches and weights; take f32, bf16 or f16",
                    dtype_name(t));
    if (dtype_is_index(t) && !(fabsf(*value) < 0x1p24f && *value == rintf(*value)))
        return fail(CODA_E_INVALID, "constant: %.9g is no %s below 2^24", (double)*value, dtype_name(t));
    dtype_store(t, &stored, 0, *value);
    *value = isnan(*value) ? NAN : (float)dtype_load(t, &stored, 0);
    n->type = (struct type){.dtype = t};
    return CODA_OK;
}

/* As many as a float counts. */
coda_status infer_iota(const graph *g, struct node *n)
{
    int64_t extent = n->attr.iota.n;
    if (!dims_has(g->dims, extent) || dims_most(g->dims, extent) > IOTA_MOST)
        return fail(CODA_E_INVALID, "iota: n is %s; must be 0..%d", dim_text(g->dims, extent).s, IOTA_MOST);
    n->type = (struct type){.dtype = CODA_I32, .rank = 1, .dims = g->dims};
    n->type.dim[0] = extent;
    return CODA_OK;
}

/* ---- The table ---- */

static coda_status (*const rule[OP_COUNT])(const graph *g, struct node *n) = {
#define OP(NAME, name, ...) infer_##name,
#include "ops.def"
};

/* Does operand i of n take what is only kept in memory? */
static bool takes_narrow(const graph *g, const struct node *n, int i)
{
    if (op_is_view(n->op) || n->op == OP_CAST || n->op == OP_ASSIGN) return true;
    if (n->op == OP_ATTENTION) return i == ATTENTION_K || i == ATTENTION_V;
    if (n->op == OP_MATMUL) return i == MATMUL_W || is_f8_product(n, g);
    if (n->op == OP_SCALED_MATMUL) return i == SCALED_MATMUL_X || i == SCALED_MATMUL_W;
    if (n->op == OP_UNPACK || op_is_exchange(n->op)) return true;
    return n->op == OP_APPEND && (i == APPEND_STATE || i >= APPEND_OPERANDS);
}

static coda_status check_narrow(const graph *g, const struct node *n)
{
    for (int i = 0; i < n->nin; i++) {
        const struct type *t = operand_type(g, n, i);
        if (!t || !dtype_is_storage(t->dtype) || takes_narrow(g, n, i)) continue;
        return fail(CODA_E_INVALID,
                    "%s: operand %d is %s; only a product's w, attention's k and v, coda_cast, views, "
                    "coda_all_gather and "
                    "coda_assign read 8 bits",
                    node_word(n), i, type_text(t).s);
    }
    return CODA_OK;
}

coda_status shape_infer(const graph *g, struct node *n)
{
    coda_status s = check_groups(g, n);
    int k = attr_result(n);
    if (s == CODA_OK) s = check_narrow(g, n);
    if (s == CODA_OK && k >= 0)
        s = need_range(n, attr_key(n, k), node_result(n), 0, op_info[n->op].results - 1);
    if (s == CODA_OK) s = rule[n->op](g, n);
    n->type.dims = g->dims; /* also where a rule made a type of numbers alone: others come in later */
    if (s != CODA_OK || op_is_leaf(n->op)) return s;
    return type_check(node_word(n), "result", &n->type);
}
