/*
 * halves.c -- is a product cut in halves that some map reads beside each other, as gate and up are? Then its
 * slices are lanes of one another. Others, as what Mamba convolves and its gate, are ranges of columns: what
 * is made of one half is stored without the other.
 */
#include "fuse.h"

bool is_column_slice(const struct node *n)
{
    return n->op == OP_SLICE && n->attr.slice.axis == n->type.rank - 1 && n->attr.slice.step <= 1;
}

static bool passes(const struct node *n) { return n->op == OP_MAP || n->op == OP_CAST || op_is_view(n->op); }

/* A slice of a member, and how many nodes may still be looked at. */
struct half {
    int member, slice, left;
};

/* Do maps make the value of another slice of the member? So it is said where there are too many to look. */
static bool is_of_other(const struct grouper *gr, int value, struct half *h)
{
    const struct node *n = value < 0 ? NULL : &gr->g->node[value];
    if (!n || value == h->slice || !passes(n)) return false;
    if (n->op == OP_SLICE && n->in[SLICE_X] == h->member) return true;
    bool of = --h->left < 0;
    for (int i = 0; i < n->nin && !of; i++) of = is_of_other(gr, n->in[i], h);
    return of;
}

/* Does a map read the slice, or what maps make of it, here `value`, beside what is of another one? */
static bool meets_other(const struct grouper *gr, int value, struct half *h)
{
    const struct uses *u = &gr->uses;
    bool meets = --h->left < 0;
    for (int i = u->at[value]; i < u->at[value + 1] && !meets; i++) {
        int reader = u->use[i].node;
        const struct node *n = &gr->g->node[reader];
        if (!passes(n)) continue;
        for (int j = 0; j < n->nin && !meets; j++) meets = n->in[j] != value && is_of_other(gr, n->in[j], h);
        meets = meets || meets_other(gr, reader, h);
    }
    return meets;
}

bool halves_meet(const struct grouper *gr, const struct group *q, int member)
{
    enum { MOST_NODES = 64 };
    const struct uses *u = &gr->uses;
    int64_t columns = q->p.dim[2];
    bool meet = false;
    for (int i = u->at[member]; i < u->at[member + 1]; i++) {
        struct half h = {member, u->use[i].node, MOST_NODES};
        const struct node *s = &gr->g->node[h.slice];
        if (!is_column_slice(s) || !extents_equal(2 * type_columns(&s->type), columns)) return false;
        meet = meet || meets_other(gr, h.slice, &h);
    }
    return meet;
}
