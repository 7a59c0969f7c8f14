/* infer_pack.c -- packed weights: matrices in a format of few bits, in a weight of bytes. */
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
