/*
 * lower_again.c -- which values a program computes again instead of reading them: cheap maps of vectors, and
 * statistics that it finishes from their parts.
 */
#include "writer.h"

/* Do elements of type `as` lie over the program's domain so that their columns are its columns? */
static bool counts_columns(const struct writer *w, const struct type *t, const struct type *as)
{
    bool parts = w->p->segment || w->range || w->q->line;
    return !parts && extents_equal(type_columns(t), type_columns(as)) && domain_shape(w->q, as) == SHAPE_TILE;
}

/* Can the program have operand i of an INLINE map: does it hold it, can it compute it again, or read it over
 * its domain? A vector that is broadcast over batches may have no strides where batches and rows are one
 * dimension. */
static bool operand_fits(struct writer *w, const struct node *n, int i, const struct type *as)
{
    int value = n->in[i];
    const struct view *v = &w->gr->view[value];
    int64_t stride[CODA_MAX_RANK];
    float ignored;
    if (group_number(w->gr, value, &ignored) || group_scalar(w->gr, value) >= 0) return true;
    if (group_holds(w->gr, w->q, value)) return true;
    if (is_computed_again(w, value, as)) return true;
    if (level_of(w->gr, value) >= 0 && level_fits(w, value, as)) return true;
    struct type t = w->gr->g->node[value].type;
    if (v->base < 0 || !domain_strides(w->q, &t, v->stride, as, stride)) return false;
    domain_use_samples(w->q, &t, v->stride, as, stride);
    return true;
}

static bool operands_fit(struct writer *w, const struct node *n, const struct type *as)
{
    struct trial trial = trial_begin(w->q);
    bool fit = true;
    for (int i = 0; i < n->nin && fit; i++) fit = operand_fits(w, n, i, as);
    return trial_end(&trial, fit);
}

static bool dims_equal(const struct type *a, const struct type *b)
{
    return a->rank == b->rank && extents_all_equal(a->dim, b->dim, a->rank);
}

static bool finishes(const struct writer *w, enum reduce_axis axis)
{
    for (int i = 0; i < w->p->steps; i++)
        if (w->p->step[i].kind == STEP_PARTIAL && w->p->step[i].axis == axis) return true;
    return false;
}

/* Is the program one that may finish a column's statistic where it lies? */
static bool may_finish_columns(const struct writer *w, const struct type *t)
{
    const graph *g = w->gr->g;
    for (int m = w->q->first; m >= 0; m = w->gr->site[m].next)
        if (g->node[m].op != OP_MAP && g->node[m].op != OP_CAST && !short_has(w->q, m)) return false;
    return w->p->kind == PROGRAM_ROWS && dims_equal(t, &w->q->domain) && !finishes(w, REDUCE_ROWS);
}

/* May the program finish the statistic of a row? Threads that work on columns share rows out only if they
 * fold these, too. */
static bool may_finish_rows(const struct writer *w)
{
    bool folds = false, walks = false;
    for (int m = w->q->first; m >= 0; m = w->gr->site[m].next) {
        folds = folds || group_has_column_parts(w->gr, m);
        walks = walks || (w->gr->g->node[m].op == OP_REDUCE && !node_folds_columns(&w->gr->g->node[m]));
    }
    return w->p->kind != PROGRAM_ROWS || !((folds && !walks) || finishes(w, REDUCE_COLUMNS));
}

bool is_computed_again(struct writer *w, int value, const struct type *as)
{
    const struct site *s = &w->gr->site[value];
    const struct type *t = &w->gr->g->node[value].type;
    if (w->gr->g->node[value].op == OP_IOTA) return s->role == ROLE_INLINE && counts_columns(w, t, as);
    if (s->role == ROLE_INLINE && s->vector) return operands_fit(w, &w->gr->g->node[value], as);
    if (w->q->finishes && group_has_column_parts(w->gr, value)) return true;
    if (t->rank != as->rank || !(s->partial || s->role == ROLE_INLINE)) return false;
    if (group_has_column_parts(w->gr, value)) return dims_equal(t, as) && may_finish_columns(w, t);
    if (s->partial && !may_finish_rows(w)) return false;
    if (!domain_rows_match(w->q, t) || !group_shares_rows(w->gr, w->q, value)) return false;
    if (s->role == ROLE_INLINE && !operands_fit(w, &w->gr->g->node[value], t)) return false;
    return extent_is_one(type_columns(t)) ||
           (s->role == ROLE_INLINE && extents_equal(type_columns(t), type_columns(as)));
}
