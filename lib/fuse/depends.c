/*
 * depends.c -- which program needs which, before there are programs: two may become one only if neither waits
 * for the other.
 *
 * Searches walk from a value towards the leaves, through whole groups, since a kernel runs all of its members
 * or none. Horizons cut them short: a value's is an upper bound of the levels, operations on the longest way
 * from a leaf, of all that computing it needs. What lies at or below a searched node's level cannot need it.
 */
#include "fuse.h"

/* ---- Horizons ---- */

static void raise_one(struct grouper *gr, int value, int horizon, int *top)
{
    if (gr->site[value].horizon >= horizon) return;
    gr->site[value].horizon = horizon;
    gr->stack[(*top)++] = value;
}

static void raise_readers(struct grouper *gr, const struct uses *uses, int value, int horizon, int *top)
{
    for (int i = uses->at[value]; i < uses->at[value + 1]; i++)
        raise_one(gr, uses->use[i].node, horizon, top);
}

/* A program needs what any of its members needs, so each member has the horizon of the one that has the
 * farthest: it is raised for all of them, and for all that read them, or come after. */
void horizon_raise(struct grouper *gr, int value, int horizon)
{
    int top = 0;
    raise_one(gr, value, horizon, &top);
    while (top) {
        int v = gr->stack[--top];
        raise_readers(gr, &gr->uses, v, horizon, &top);
        raise_readers(gr, &gr->ahead, v, horizon, &top);
        int finisher = gr->site[v].finished ? gr->site[v].again_in : -1;
        if (finisher >= 0 && gr->group[finisher]->first >= 0)
            raise_one(gr, gr->group[finisher]->first, horizon, &top);
        if (gr->site[v].role != ROLE_MEMBER) continue;
        for (int m = gr->group[gr->site[v].group]->first; m >= 0; m = gr->site[m].next)
            raise_one(gr, m, horizon, &top);
    }
}

void group_waits_for(struct grouper *gr, const struct group *q, int value)
{
    if (q->first >= 0) horizon_raise(gr, q->first, gr->site[value].horizon + 1);
}

/* The operations on the longest way to a node whose operands have their horizons. Unlike the node's place in
 * the graph that says nothing of how far along a value is read first, as by a backward pass. */
static int level(const struct grouper *gr, int value)
{
    const struct node *n = &gr->g->node[value];
    int most = 0;
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) most = MAX(most, 1 + gr->site[n->in[i]].horizon);
    return most;
}

void group_find_horizons(struct grouper *gr)
{
    for (int i = 0; i < gr->g->nodes; i++) gr->site[i].horizon = level(gr, i);
    for (int i = 0; i < gr->groups; i++) {
        int horizon = 0;
        for (int m = gr->group[i]->first; m >= 0; m = gr->site[m].next)
            horizon = MAX(horizon, gr->site[m].horizon);
        for (int m = gr->group[i]->first; m >= 0; m = gr->site[m].next) horizon_raise(gr, m, horizon);
    }
}

/* ---- Searches: nodes whose horizon is less than `least` need nothing of what is looked for ---- */

static void visit(struct grouper *gr, int least, int value, int *top)
{
    struct site *s = &gr->site[value];
    if (s->seen == gr->mark || s->horizon < least) return;
    s->seen = gr->mark;
    gr->stack[(*top)++] = value;
}

static void visit_operands(struct grouper *gr, int least, int value, int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) visit(gr, least, n->in[i], top);
}

/* Does the program compute operand i of its value again, and wait for nobody who might store it? */
static bool computes_again(const struct grouper *gr, const struct group *q, int value, int i)
{
    return q->agains && value != q->p.root && group_has_again(q, group_tile(gr, q, gr->g->node[value].in[i]));
}

static void visit_loads(struct grouper *gr, int least, const struct group *q, int value, int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && !computes_again(gr, q, value, i)) visit(gr, least, n->in[i], top);
}

/* All that a program needs, the first time. */
static void visit_group(struct grouper *gr, int least, struct group *q, int *top)
{
    if (q->seen == gr->mark) return;
    q->seen = gr->mark;
    for (int m = q->first; m >= 0; m = gr->site[m].next) visit_loads(gr, least, q, m, top);
    for (int i = 0; i < q->agains; i++) visit_loads(gr, least, q, q->again[i], top);
    for (int v = q->also; v >= 0; v = gr->site[v].also) visit(gr, least, v, top);
}

/* The programs that compute the value and store it besides; NULL: there is none. */
static struct group *computed_by(const struct grouper *gr, int value)
{
    const struct site *s = &gr->site[value];
    return s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
}

static struct group *finished_by(const struct grouper *gr, int value)
{
    const struct site *s = &gr->site[value];
    return s->finished && s->again_in >= 0 ? gr->group[s->again_in] : NULL;
}

/* What computing a value needs. */
static void visit_needs(struct grouper *gr, int least, int value, int *top)
{
    struct group *by = computed_by(gr, value), *finisher = finished_by(gr, value);
    if (by) visit_group(gr, least, by, top);
    else visit_operands(gr, least, value, top);
    if (finisher) visit_group(gr, least, finisher, top);
}

bool group_depends(struct grouper *gr, int value, const struct group *q)
{
    int top = 0, least = gr->site[q->p.root].horizon; /* which members share */
    for (int v = q->also; v >= 0; v = gr->site[v].also) least = MIN(least, gr->site[v].horizon);
    gr->mark++;
    visit(gr, least, value, &top);
    while (top) {
        int v = gr->stack[--top];
        if (computed_by(gr, v) == q || finished_by(gr, v) == q) return true;
        visit_needs(gr, least, v, &top);
    }
    return false;
}

bool group_waits(struct grouper *gr, const struct group *q, const struct group *other)
{
    for (int m = q->first; m >= 0 && q != other; m = gr->site[m].next)
        for (int i = 0; i < gr->g->node[m].nin; i++)
            if (gr->g->node[m].in[i] >= 0 && group_depends(gr, gr->g->node[m].in[i], other)) return true;
    return false;
}

/* What q reads from memory for its value m, but for x, which it is to compute; a statistic of columns is not
 * there before q has ended. */
static void visit_reads(struct grouper *gr, const struct group *q, int x, int m, int *top)
{
    const struct node *n = &gr->g->node[m];
    int computed = node_folds_columns(&gr->g->node[x]) ? -1 : x;
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        int tile = group_tile(gr, q, n->in[i]);
        if (m == q->p.root || (tile != computed && !group_holds(gr, q, tile) && !group_has_again(q, tile)))
            visit(gr, gr->site[x].horizon, n->in[i], top);
    }
}

bool group_needs(struct grouper *gr, const struct group *q, int x, int value)
{
    int top = 0, least = gr->site[x].horizon;
    gr->group[q->index]->seen = ++gr->mark; /* it needs what is visited here, and nothing else */
    if (value >= 0) visit_reads(gr, q, x, value, &top);
    for (int m = q->first; m >= 0; m = gr->site[m].next) visit_reads(gr, q, x, m, &top);
    for (int i = 0; i < q->agains; i++) visit_reads(gr, q, x, q->again[i], &top);
    while (top) {
        int v = gr->stack[--top];
        if (v == x) return true;
        visit_needs(gr, least, v, &top);
    }
    return false;
}
