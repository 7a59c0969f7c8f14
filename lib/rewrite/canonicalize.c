/*
 * canonicalize.c -- removes what does nothing, and merges what moves data twice.
 *
 *     1 x, cast to its own type, whole slice, same reshape, identity transpose   ==>  x
 *     cast(cast(x, a), b)           ==>  cast(x, b)      where a holds every x
 *     slice(slice(x)), reshape(reshape(x)), transpose(transpose(x))  ==>  one of them on x
 *
 * Exact.
 */
#include "guards.h"
#include "walk.h"

/* A map whose parameter is the number that leaves its operand as it is, bit for bit. */
static bool is_identity_map(const struct node *n)
{
    const struct prim_facts *f = &n->prim->facts;
    int k = f->identity - 1 - n->prim->inputs;
    return k >= 0 && n->attr.map.param[k] == f->identity_at;
}

static bool is_identity(const graph *g, const struct node *n)
{
    const struct type *x = n->nin ? &g->node[n->in[0]].type : NULL;
    switch (n->op) {
    case OP_MAP: return is_identity_map(n) && type_equal(x, &n->type);
    case OP_CAST:
    case OP_RESHAPE: return type_equal(x, &n->type);
    case OP_SLICE: return type_equal(x, &n->type) && n->attr.slice.step == 1;
    case OP_TRANSPOSE:
        for (int d = 0; d < x->rank; d++)
            if (n->attr.transpose.perm[d] != d) return false;
        return true;
    default: return false;
    }
}

/* A slice of a slice along one axis. Symbols may be in one of step 1. */
static bool join_slices(struct walk *w, const struct node *outer, const struct node *inner,
                        struct attr_slice *a)
{
    const struct attr_slice *o = &outer->attr.slice, *i = &inner->attr.slice;
    struct dims *t = w->out->dims;
    int64_t count = outer->type.dim[o->axis];
    if (o->axis != i->axis || extents_equal(count, 0)) return false;
    a->step = o->step * i->step;
    a->start = dims_add(t, i->start, dims_times(t, o->start, i->step));
    if (a->step > 1 && !(dim_is_number(a->start) && dim_is_number(count)))
        return rewrite_needs_numbers(w, "a slice in steps"), false;
    a->stop = a->step > 1 ? a->start + (count - 1) * a->step + 1 : dims_add(t, a->start, count);
    return a->start != DIM_NONE && a->stop != DIM_NONE;
}

/* The attributes of n taken on the operand of its operand; false if the two cannot be one. */
static bool join(struct walk *w, const struct node *n, const struct node *inner, union attr *a)
{
    *a = n->attr;
    if (n->op != inner->op) return false;
    coda_dtype from = inner->nin ? w->in->node[inner->in[0]].type.dtype : CODA_I32;
    switch (n->op) {
    case OP_CAST: return dtype_is_float(from) && (inner->type.dtype == CODA_F32 || inner->type.dtype == from);
    case OP_RESHAPE: return true;
    case OP_SLICE: return join_slices(w, n, inner, &a->slice);
    case OP_TRANSPOSE:
        for (int d = 0; d < n->type.rank; d++)
            a->transpose.perm[d] = inner->attr.transpose.perm[n->attr.transpose.perm[d]];
        return true;
    default: return false;
    }
}

static int simplify(struct walk *w, int v)
{
    struct node n = w->in->node[v];
    if (n.nin == 0) return RULE_COPY;
    if (is_identity(w->in, &n)) {
        rewrite_note(w->log, "tidy", true, "%s: %s changes nothing", rewrite_name(w->in, v).s, node_text(&n));
        return w->map[n.in[0]];
    }
    const struct node *inner = &w->in->node[n.in[0]];
    union attr a;
    if (!join(w, &n, inner, &a)) return RULE_COPY;
    rewrite_note(w->log, "tidy", true, "%s: two of %s are one", rewrite_name(w->in, v).s, op_info[n.op].text);
    n.attr = a;
    n.in = (int[]){w->map[inner->in[0]]};
    return graph_append(w->out, &n);
}

graph *tidy(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    for (int v = 0; v < in->nodes; v++) {
        const struct node *n = &in->node[v];
        bool joins = n->nin && n->op == in->node[n->in[0]].op && (n->op == OP_CAST || op_is_view(n->op));
        if (joins || is_identity(in, n)) return rewrite_walk(in, simplify, opt, log, NULL);
    }
    return rewrite_nothing(in);
}
