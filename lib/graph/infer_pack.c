/*
 * infer_pack.c -- packed weights: matrices in a format of few bits, in a weight of bytes; and products of fp8
 * by fp8 whose operands have scales of blocks.
 */
#include "infer.h"

#include <inttypes.h>

coda_status graph_check_matrices(int rank, const int64_t *dim, coda_dtype t)
{
    struct type y = {.dtype = t, .rank = rank};
    if (!dtype_bits(t) || !dtype_is_float(t))
        return fail(CODA_E_INVALID, "unpack: its dtype is %s; must be f32, bf16 or f16",
                    dtype_bits(t) ? dtype_name(t) : "none");
    for (int i = 0; i < rank; i++) {
        y.dim[i] = dim[i];
        if (dim[i] < 1)
            return fail(CODA_E_INVALID, "unpack: dimension %d is %" PRId64 "; must be >= 1", i, dim[i]);
    }
    return type_check("unpack", "result", &y);
}

coda_status infer_unpack(const graph *g, struct node *n)
{
    const struct node *w = &g->node[n->in[UNPACK_W]];
    struct attr_unpack *a = &n->attr.unpack;
    struct pack_format f = node_format(n);
    coda_status s = pack_check(&f);
    if (s == CODA_OK) s = need_range(n, "rank", a->rank, 2, CODA_MAX_RANK);
    if (s == CODA_OK) s = need_dtype(n, a->to);
    if (s == CODA_OK) s = graph_check_matrices((int)a->rank, a->dim, (coda_dtype)a->to);
    if (s != CODA_OK) return s;
    n->type = (struct type){.dtype = (coda_dtype)a->to, .rank = (int)a->rank, .dims = g->dims};
    for (int i = 0; i < CODA_MAX_RANK; i++) n->type.dim[i] = a->dim[i] = i < n->type.rank ? a->dim[i] : 0;
    int64_t bytes = graph_packed_bytes(&f, n->type.rank, a->dim);
    bool good = w->op == OP_WEIGHT && w->type.dtype == CODA_U8 && w->type.rank == 1 && w->stride[0] == 1;
    if (good && w->type.dim[0] == bytes) return CODA_OK;
    return fail(CODA_E_INVALID, "unpack: w is %s %s; it must be a dense weight u8[%" PRId64 "], %s of %s",
                node_text(w), type_text(&w->type).s, bytes, dims_text(&n->type).s, pack_word(&f).s);
}

/* ---- Scales of blocks ---- */

static coda_status need_f8(const struct node *n, int operand, const struct type *t)
{
    if (dtype_is_f8(t->dtype) && t->rank >= 2) return CODA_OK;
    return fail(CODA_E_INVALID, "scaled_matmul: %s is %s; it must be f8e4m3 or f8e5m2 of rank 2 or more",
                op_info[n->op].name[operand], type_text(t).s);
}

/* As many dimensions as its operand, of which the last two are blocks of so many rows, and of k. */
static coda_status need_scales(const graph *g, const struct node *n, int operand, int of, int64_t rows)
{
    const struct type *s = operand_type(g, n, operand), *t = operand_type(g, n, of);
    struct type want = *t;
    want.dtype = CODA_F32;
    want.dim[t->rank - 1] = CEIL_DIV(type_columns(t), SCALE_BLOCK);
    if (rows > 1) want.dim[t->rank - 2] = CEIL_DIV(t->dim[t->rank - 2], rows);
    if (s->dtype == CODA_F32 && s->rank == t->rank && dims_equal(s, &want, t->rank)) return CODA_OK;
    return fail(CODA_E_INVALID,
                "scaled_matmul: %s is %s but %s is %s; blocks of %" PRId64 " x %d have scales of %s",
                op_info[n->op].name[of], dims_text(t).s, op_info[n->op].name[operand], type_text(s).s, rows,
                SCALE_BLOCK, type_text(&want).s);
}

static coda_status need_number(const char *what, const struct type *t, int64_t dim)
{
    if (dim_is_number(dim)) return CODA_OK;
    return fail(CODA_E_INVALID, "scaled_matmul: %s is %s; %s must be a number", what, dims_text(t).s,
                dim_text(t->dims, dim).s);
}

static coda_status need_shapes(const struct type *x, const struct type *w)
{
    if (w->rank != 2 && (w->rank != x->rank || !dims_equal(x, w, x->rank - 2)))
        return fail(CODA_E_INVALID, "scaled_matmul: x is %s but w is %s; leading dimensions differ",
                    dims_text(x).s, dims_text(w).s);
    if (type_columns(x) != type_columns(w))
        return fail(CODA_E_INVALID, "scaled_matmul: x is %s but w is %s; inner sizes %s and %s differ",
                    dims_text(x).s, dims_text(w).s, dim_text(x->dims, type_columns(x)).s,
                    dim_text(w->dims, type_columns(w)).s);
    coda_status s = need_number("x", x, type_columns(x));
    return s == CODA_OK ? need_number("w", w, w->dim[w->rank - 2]) : s;
}

coda_status infer_scaled_matmul(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, SCALED_MATMUL_X), *w = operand_type(g, n, SCALED_MATMUL_W);
    coda_status s = need_f8(n, SCALED_MATMUL_X, x);
    if (s == CODA_OK) s = need_f8(n, SCALED_MATMUL_W, w);
    if (s == CODA_OK) s = need_shapes(x, w);
    if (s == CODA_OK) s = need_scales(g, n, SCALED_MATMUL_X_SCALE, SCALED_MATMUL_X, 1);
    if (s == CODA_OK) s = need_scales(g, n, SCALED_MATMUL_W_SCALE, SCALED_MATMUL_W, SCALE_BLOCK);
    if (s != CODA_OK) return s;
    n->type = *x;
    n->type.dtype = CODA_F32;
    n->type.dim[x->rank - 1] = w->dim[w->rank - 2];
    return CODA_OK;
}

/* ---- Who may read it ---- */

static bool may_read(const struct node *n, int operand)
{
    if (n->op == OP_MATMUL) return operand == MATMUL_W;
    return op_is_view(n->op) || (n->op == OP_EMBEDDING && operand == EMBEDDING_TABLE);
}

static coda_status refuse(const graph *g, int packed, const char *reader, const char *name)
{
    const struct node *u = &g->node[packed];
    struct pack_format f = node_format(u);
    return fail(CODA_E_UNSUPPORTED,
                "compile: %s %s reads %s, which is packed as %s: only products, as w, and embeddings do",
                reader, name, g->node[u->in[UNPACK_W]].name, pack_word(&f).s);
}

static coda_status check_reader(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    for (int i = 0; i < n->nin; i++) {
        int packed = n->in[i] < 0 || may_read(n, i) ? -1 : graph_packed(g, n->in[i]);
        if (packed >= 0) return refuse(g, packed, node_text(n), value_text(g, v).s);
    }
    return CODA_OK;
}

static coda_status check_output(const graph *g, const struct output *o)
{
    int packed = graph_packed(g, o->value);
    return packed < 0 ? CODA_OK : refuse(g, packed, "output", o->name);
}

coda_status graph_check_packed(const graph *g)
{
    coda_status s = CODA_OK;
    int first = 0;
    while (first < g->nodes && g->node[first].op != OP_UNPACK) first++;
    if (first == g->nodes) return s;
    for (int v = first + 1; v < g->nodes && s == CODA_OK; v++) s = check_reader(g, v);
    for (int i = 0; i < g->outputs && s == CODA_OK; i++) s = check_output(g, &g->output[i]);
    return s;
}
