/*
 * rows_merge.c -- programs of rows that load the same tensors become one.
 *
 * A program of rows grows from its root to what follows that, or is there ahead of it (fuse.c). Two programs
 * over the same elements may still load the same tensor: a third one, which only one of them waits for, kept
 * them apart. Here the later one becomes part of the earlier one: its values join that
 * one after another, by the rules by which programs grow, or all of them stay where they are. So nothing is
 * stored or loaded that was not before, and what both load is loaded once. Who shares most is tried first.
 * Last come those that load as few columns beside those of the program: gates and decays, which one product
 * makes of all heads. Passes over so little are as long as a launch takes.
 */
#include "fuse.h"
#include "plan_sizes.h"

enum {
    MOST_PARTNERS = 4, /* programs that one is tried with, and ... */
    MOST_READERS = 16  /* ... readers of each tensor that are asked for their program */
};

struct partner {
    struct group *q;
    int bits; /* of each element that both load */
};

static bool is_pass(const struct group *q)
{
    return q->p.kind == PROGRAM_ROWS && q->first >= 0 && !q->line && !q->finishes && !q->agains &&
           !q->short_columns;
}

static bool have_one_domain(const struct group *a, const struct group *b)
{
    bool same = a->flat == b->flat && a->p.prepare == b->p.prepare && a->domain.rank == b->domain.rank;
    return same && extents_all_equal(a->domain.dim, b->domain.dim, a->domain.rank);
}

static void add_partner(struct partner *all, int *n, struct group *q, int bits)
{
    int i = 0;
    while (i < *n && all[i].q != q) i++;
    if (i == MOST_PARTNERS) return;
    if (i == *n) all[(*n)++] = (struct partner){q, 0};
    all[i].bits += bits;
}

/* Programs ahead of q that load the tensor x, of which q has so many bits an element. */
static void find_readers(const struct grouper *gr, const struct group *q, int x, int bits,
                         struct partner *all, int *n)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[x]; i < MIN(u->at[x + 1], u->at[x] + MOST_READERS); i++) {
        const struct site *s = &gr->site[u->use[i].node];
        struct group *other = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
        if (other && other->index < q->index && is_pass(other) && have_one_domain(other, q))
            add_partner(all, n, other, bits);
    }
}

/* Programs ahead of q that load as many columns beside the few of x. */
static void find_beside(const struct grouper *gr, const struct group *q, int x, struct partner *all, int *n)
{
    const struct node *node = gr->g->node;
    const struct uses *u = &gr->uses;
    if (!is_column_slice(&node[x]) || extent_reaches(type_columns(&node[x].type), MOST_NARROW + 1)) return;
    int of = node[x].in[SLICE_X];
    for (int i = u->at[of]; i < MIN(u->at[of + 1], u->at[of] + MOST_READERS); i++) {
        int other = u->use[i].node;
        if (other != x && is_column_slice(&node[other])) find_readers(gr, q, other, 0, all, n);
    }
}

static int find_partners(const struct grouper *gr, const struct group *q, struct partner *all)
{
    int n = 0;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < state_operands(&gr->g->node[m]); i++) {
            int x = gr->g->node[m].in[i];
            if (x < 0 || group_holds(gr, q, x) || domain_shape(q, &gr->g->node[x].type) != SHAPE_TILE)
                continue;
            find_readers(gr, q, x, dtype_bits(gr->g->node[x].type.dtype), all, &n);
            find_beside(gr, q, x, all, &n);
        }
    return n;
}

/* The one that shares most with the program, among the same the first; NULL: none is left. */
static struct group *best_of(struct partner *all, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (all[i].q && (best < 0 || all[i].bits > all[best].bits)) best = i;
    if (best < 0) return NULL;
    struct group *q = all[best].q;
    all[best].q = NULL;
    return q;
}

/* Takes the values back from q, and gives them to the program that they were of. */
static void part(struct grouper *gr, struct group *q, const struct group *was, struct group *other,
                 const int *value, int n)
{
    int loads = other->loads;
    for (int i = 0; i < n; i++)
        if (group_holds(gr, q, value[i])) group_leave(gr, q, value[i]);
    for (int i = 0; i < n; i++) group_join(gr, other, value[i]);
    other->loads = loads;
    q->loads = was->loads;
    q->p.pairing = was->p.pairing;
    group_find_horizons(gr);
}

/* Makes the values of `other` values of q, if all of them may be. */
static bool merge(struct grouper *gr, struct group *q, struct group *other)
{
    int value[MOST_PASS], n = 0;
    const struct group was = *q;
    if (q->members + other->members > MOST_PASS || group_waits(gr, q, other) || group_waits(gr, other, q))
        return false;
    for (int m = other->first; m >= 0; m = gr->site[m].next) value[n++] = m;
    group_dissolve(gr, other);
    bool good = true;
    for (int i = 0; i < n && good; i++) good = group_holds(gr, q, value[i]) || group_takes(gr, q, value[i]);
    if (good) other->into = q;
    else part(gr, q, &was, other, value, n);
    return good;
}

void fuse_merge_rows(struct grouper *gr)
{
    for (int i = 0; i < gr->groups && gr->opt->fuse; i++) {
        struct partner all[MOST_PARTNERS];
        struct group *q = gr->group[i], *other;
        int n = is_pass(q) ? find_partners(gr, q, all) : 0;
        while ((other = best_of(all, n)) && !merge(gr, other, q)) continue;
    }
}
