/*
 * samples.c -- products whose rows are one dimension, and those of each sample apart.
 *
 *     x [.., T, K] W^T:  [samples T, N]  or  [samples][T, N]
 *
 * The rows of all samples are one dimension where they can be: tiles are full, whatever T is. But then a
 * tile has one place for its rows. By sample, a product stores its rows where a concat has them, behind those
 * of another one, and loads tiles of a table of positions that all samples share, [T, N] or [T]. A product is
 * one of each sample if that takes in what another program would do, and its tiles stay full.
 */
#include "fuse.h"

/* Do these strides of a tensor of type t lie by rows in each sample, but not over all samples? */
static bool lies_apart(const struct type *t, const int64_t *stride)
{
    int64_t row;
    return t->rank > 2 && !extents_equal(stride[t->rank - 2], 0) &&
           !view_collapse(t, stride, 0, t->rank - 1, &row) && view_collapse(t, stride, 0, t->rank - 2, &row);
}

/* Has the value the samples of a product of type t? */
static bool has_samples(const struct type *value, const struct type *t)
{
    return value->rank > 2 && extents_equal(value->dim[value->rank - 2], t->dim[t->rank - 2]) &&
           extents_equal(type_rows(value), type_rows(t));
}

/* Is an operand of map n a tile that a product of type t can load by sample alone, as a table of positions
 * which all samples share? What is rounded must not depend on how many rows there are. */
static bool loads_apart(const struct grouper *gr, const struct node *n, const struct type *t)
{
    for (int i = 0; i < n->nin && !gr->opt->invariant; i++) {
        if (n->in[i] < 0) continue;
        struct type of = domain_operand_type(gr->g, n, i);
        const struct view *v = &gr->view[n->in[i]];
        int64_t stride[CODA_MAX_RANK];
        if (v->base < 0 || of.rank > n->type.rank || (pair_loads(n, i) && i == ROPE_FREQUENCIES)) continue;
        view_broadcast(&of, v->stride, &n->type, stride);
        if (has_samples(&n->type, t) && lies_apart(&n->type, stride)) return true;
    }
    return false;
}

/* Is the value, of the samples of a product of type t, part of a concat that has them apart? */
static bool is_part_apart(const struct grouper *gr, const struct type *t, int value)
{
    const struct uses *u = &gr->uses;
    const struct type *x = &gr->g->node[value].type;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        const struct node *n = &gr->g->node[u->use[i].node];
        int64_t part[CODA_MAX_RANK];
        if (n->op != OP_CONCAT) continue;
        view_part(n, part);
        if (has_samples(x, t) && lies_apart(x, part)) return true;
    }
    return false;
}

/* Does the program of a product of type t store, or load, tiles by sample: of the value, or of what it
 * computes of it? What other products compute is not asked. */
static bool wants_samples(struct grouper *gr, const struct type *t, int value, int steps)
{
    const struct uses *u = &gr->uses;
    if (is_part_apart(gr, t, value)) return true;
    for (int i = u->at[value]; i < u->at[value + 1] && steps; i++) {
        int reader = u->use[i].node;
        const struct node *n = &gr->g->node[reader];
        const struct site *s = &gr->site[reader];
        bool map = s->role == ROLE_FREE && (n->op == OP_MAP || n->op == OP_CAST || op_combines_pairs(n->op));
        if ((!map && s->role != ROLE_VIEW) || s->seen == gr->mark) continue;
        gr->site[reader].seen = gr->mark;
        if ((map && loads_apart(gr, n, t)) || wants_samples(gr, t, reader, steps - 1)) return true;
    }
    return false;
}

/* Tiles are of 64 rows or more, and each sample's last one is filled up: with a quarter of its rows at most,
 * as a pass over the result costs no less. */
static bool fills_tiles(int64_t rows)
{
    enum { TILE = 64 };
    return extent_reaches(rows, TILE) && extent_reaches(5 * rows, 4 * CEIL_DIV(rows, TILE) * TILE);
}

bool samples_split(struct grouper *gr, int root, const struct matmul_view *v, struct matmul_view *to)
{
    enum { MOST_STEPS = 12 };
    const struct node *n = &gr->g->node[root];
    const struct type *x = &gr->g->node[n->in[MATMUL_X]].type;
    const int64_t *stride = gr->view[n->in[MATMUL_X]].stride;
    bool one = gr->opt->fuse && n->op == OP_MATMUL && x->rank > 2 && extent_is_one(v->batch) &&
               !extents_equal(x->dim[x->rank - 2], v->m) && !v->b.packed.format;
    gr->mark++;
    if (!one || !fills_tiles(x->dim[x->rank - 2]) || !wants_samples(gr, &n->type, root, MOST_STEPS))
        return false;
    *to = *v;
    to->m = x->dim[x->rank - 2];
    to->batch = type_rows(x) / to->m;
    to->a.row = stride[x->rank - 2];
    return view_collapse(x, stride, 0, x->rank - 2, &to->a.batch);
}

bool samples_pay(const struct grouper *gr, const struct group *q)
{
    const struct type *t = &gr->g->node[q->p.root].type;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if ((m != q->p.root && loads_apart(gr, &gr->g->node[m], t)) || is_part_apart(gr, t, m)) return true;
    return false;
}
