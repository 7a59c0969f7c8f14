/* segment_rest.c -- what is left of a product whose columns are in ranges, and is read by other programs:
 * slices that the program stores by themselves, so that nobody needs the whole; or the first columns of
 * it. */
#include "fuse.h"

/* Is the value, or a view of it, an operand of a product? Its strides are known to that already. */
static bool is_multiplied(const struct grouper *gr, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        enum op op = gr->g->node[u->use[i].node].op;
        if (op_is_product(op) || op == OP_CONCAT || (op_is_view(op) && is_multiplied(gr, u->use[i].node)))
            return true;
    }
    return false;
}

/* Is it read outside the program? */
static bool is_read(const struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int n = u->use[i].node;
        bool view = gr->site[n].role == ROLE_VIEW;
        if (view ? is_read(gr, q, n) : !group_holds(gr, q, n)) return true;
    }
    return gr->g->node[value].output >= 0;
}

/* Is all that is read of a member, outside the program, slices that may be ranges? */
static bool rest_fits(const struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    struct program p = q->p;
    if (gr->g->node[value].output >= 0) return false;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int n = u->use[i].node;
        const struct node *s = &gr->g->node[n];
        if (gr->site[n].role != ROLE_VIEW ? group_holds(gr, q, n) : !is_read(gr, q, n)) continue;
        if (gr->site[n].role != ROLE_VIEW || !is_column_slice(s) || is_multiplied(gr, n)) return false;
        int64_t first = s->attr.slice.start, columns = type_columns(&s->type);
        if (!segment_is_whole(&p, first, columns) || segment_range(&p, first, columns) <= 0) return false;
    }
    return true;
}

/* The slice is a value that the program makes; views of it lie in its memory. */
static void take_slice(struct grouper *gr, struct group *q, int slice)
{
    const struct node *n = &gr->g->node[slice];
    struct view *v = &gr->view[slice];
    group_join(gr, q, slice);
    for (int i = gr->uses.at[slice]; i < gr->uses.at[slice + 1]; i++) /* they may join now */
        gr->site[gr->uses.use[i].node].queued = 0;
    gr->site[slice].range = segment_range(&q->p, n->attr.slice.start, type_columns(&n->type));
    *v = (struct view){.base = slice};
    dense_strides(&n->type, v->stride);
    for (int i = slice + 1; i < gr->g->nodes; i++)
        if (gr->site[i].role == ROLE_VIEW) view_extend(gr->g, i, gr->view);
}

void segment_rest(struct grouper *gr, struct group *q, void (*grow)(struct grouper *, struct group *, int))
{
    if (!q->p.ranges) return;
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        const struct uses *u = &gr->uses;
        if (gr->site[m].range || gr->site[m].segmented || !rest_fits(gr, q, m)) continue;
        for (int i = u->at[m]; i < u->at[m + 1]; i++) {
            int n = u->use[i].node;
            if (gr->site[n].role != ROLE_VIEW || !is_read(gr, q, n)) continue;
            take_slice(gr, q, n);
            grow(gr, q, n);
        }
    }
}

struct column_range segment_read(const struct grouper *gr, const struct group *q, int member)
{
    const struct uses *u = &gr->uses;
    struct column_range all = {0, 0}, read = {0, 0};
    const graph *g = gr->g;
    if (q->p.kind != PROGRAM_GEMM || program_is_gated(&q->p) || q->p.segment) return all;
    if (g->node[member].output >= 0) return all;
    if (!extents_equal(type_columns(&g->node[member].type), q->p.dim[2])) return all;
    for (int i = u->at[member]; i < u->at[member + 1]; i++) {
        int n = u->use[i].node;
        bool view = gr->site[n].role == ROLE_VIEW;
        if (view ? !is_read(gr, q, n) : group_holds(gr, q, n)) continue;
        if (!view || !is_column_slice(&g->node[n])) return all;
        read.end = extent_max(read.end, g->node[n].attr.slice.start + type_columns(&g->node[n].type));
    }
    read.end += !extent_is_multiple(read.end, 2);
    return extent_reaches(read.end, q->p.dim[2]) ? all : read;
}
