/*
 * flat.c -- programs that walk rows as one dimension.
 *
 * A program of rows has the dimensions of its root. What reads its values through a reshape that only groups
 * rows otherwise, [2, 512, 64] as [1024, 64], walks the same rows in the same order: a sum of columns over
 * all tokens of a batch, which is a bias's gradient. If all that the program has lies so that its rows have
 * one stride, they become one dimension, and such readers join it as others do.
 */
#include "fuse.h"

/* A sum of columns is one of all rows. */
static bool sums_all(const struct grouper *gr, const struct node *n)
{
    const struct type *t = domain_walked(gr->g, n);
    return !node_folds_columns(n) || extents_equal(t->dim[t->rank - 2], type_rows(t));
}

bool flat_sibling(const struct grouper *gr, const struct node *n, int x)
{
    return node_folds_columns(n) && regrouped(gr, x) == regrouped(gr, n->in[REDUCE_X]);
}

static bool loads(const struct grouper *gr, const struct group *q, const struct node *n)
{
    for (int m = q->first; m >= 0 && node_folds_columns(n); m = gr->site[m].next)
        for (int i = 0; i < state_operands(&gr->g->node[m]); i++)
            if (gr->g->node[m].in[i] >= 0 && flat_sibling(gr, n, gr->g->node[m].in[i])) return true;
    return false;
}

bool flat_reader(const struct grouper *gr, const struct group *q, const struct node *n)
{
    bool step = n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE;
    if (q->p.kind != PROGRAM_ROWS || q->flat || !gr->opt->fuse || !step || !sums_all(gr, n)) return false;
    for (int i = 0; i < n->nin; i++) {
        int x = n->in[i] < 0 ? -1 : regrouped(gr, n->in[i]);
        if (x != n->in[i] && group_holds(gr, q, x)) return true;
    }
    return loads(gr, q, n);
}

static bool operands_lie_flat(const struct grouper *gr, const struct group *q, const struct node *n);

/* Has operand i of member n one stride from row to row, wherever q reads it from memory? */
static bool operand_lies_flat(const struct grouper *gr, const struct group *q, const struct node *n, int i)
{
    int x = n->in[i];
    int64_t out[CODA_MAX_RANK];
    float ignored;
    if (x < 0 || group_number(gr, x, &ignored) || group_scalar(gr, x) >= 0) return true;
    if (group_holds(gr, q, group_tile(gr, q, x))) return true;
    if (gr->site[x].partial) return domain_rows_match(q, &gr->g->node[x].type);
    if (gr->site[x].role == ROLE_INLINE) return operands_lie_flat(gr, q, &gr->g->node[x]);
    struct type t = domain_operand_type(gr->g, n, i);
    return gr->view[x].base >= 0 && domain_strides(q, &t, gr->view[x].stride, domain_walked(gr->g, n), out);
}

static bool operands_lie_flat(const struct grouper *gr, const struct group *q, const struct node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (!operand_lies_flat(gr, q, n, i)) return false;
    return true;
}

static bool member_lies_flat(const struct grouper *gr, const struct group *q, int m)
{
    const struct node *n = &gr->g->node[m];
    bool step = n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE;
    if (short_has(q, m)) return short_lies(gr, q) && (m != q->p.root || group_can_store(gr, q, m));
    return step && sums_all(gr, n) && group_can_store(gr, q, m) && operands_lie_flat(gr, q, n);
}

static void set_domain(struct group *q, bool flat, const struct type *domain)
{
    q->flat = flat;
    q->domain = *domain;
    q->p.rank = domain->rank;
    for (int d = 0; d < CODA_MAX_RANK; d++) q->p.dim[d] = d < domain->rank ? domain->dim[d] : 0;
}

void flat_end(struct group *q, const struct type *domain) { set_domain(q, false, domain); }

bool flat_begin(const struct grouper *gr, struct group *q)
{
    struct type domain = q->domain, flat = domain;
    flat.rank = 2;
    flat.dim[0] = type_rows(&domain);
    flat.dim[1] = type_columns(&domain);
    bool several = q->short_columns || extent_reaches(flat.dim[0], 2);
    if (domain.rank < 2 || !several) return false;
    set_domain(q, true, &flat);
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if (!member_lies_flat(gr, q, m)) {
            flat_end(q, &domain);
            return false;
        }
    return true;
}
