/*
 * join.c -- how a node becomes a member of a group, and none again; what the group can load and store of it.
 * Which nodes join is decided in fuse.c, segments.c, take_in.c and rows_take_in.c.
 */
#include "fuse.h"

/* ---- Loads ---- */

/* What a view does to the order of elements, of several views the most. */
static enum reason_kind kind_of_views(const graph *g, int value)
{
    enum reason_kind kind = REASON_RESHAPED;
    for (; op_is_view(g->node[value].op); value = g->node[value].in[VIEW_OF]) {
        if (g->node[value].op == OP_TRANSPOSE) return REASON_TRANSPOSED;
        if (g->node[value].op == OP_SLICE) kind = REASON_SLICED;
    }
    return kind;
}

bool refuse_source(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    int base = value;
    while (op_is_view(g->node[base].op)) base = g->node[base].in[VIEW_OF];
    const struct node *n = &g->node[base];
    if (!group_holds(gr, q, base)) return refuse_join(gr, REASON_DEPENDS, value, 0, 0);
    if (group_writes_state(gr, base)) return refuse_join(gr, REASON_STATE, base, 0, 0);
    if (!gr->site[base].partial) return refuse_join(gr, kind_of_views(g, value), value, 0, 0);
    const struct type *of = &g->node[n->in[0]].type;
    if (!n->attr.reduce.columns) return refuse_join(gr, REASON_ROW_STATISTIC, base, type_columns(of), 0);
    return refuse_join(gr, REASON_COLUMN_STATISTIC, base, of->dim[of->rank - 2], 0);
}

/* What q holds already has a reason of its own. */
static bool refuse_shape(const struct grouper *gr, const struct group *q, int value)
{
    int base = value;
    while (op_is_view(gr->g->node[base].op)) base = gr->g->node[base].in[VIEW_OF];
    return !group_holds(gr, q, base) && refuse_join(gr, REASON_SPREADS, value, 0, 0);
}

bool group_can_load(struct grouper *gr, struct group *q, const struct node *n, int i)
{
    int value = n->in[i];
    struct type t = domain_operand_type(gr->g, n, i);
    int64_t out[CODA_MAX_RANK];
    const struct view *v = &gr->view[value];
    if (v->base < 0) return refuse_join(gr, REASON_LAYOUT, value, 0, 0);
    if (!domain_strides(q, &t, v->stride, domain_walked(gr->g, n), out))
        return refuse_source(gr, q, value) || refuse_shape(gr, q, value);
    domain_use_samples(q, &t, v->stride, domain_walked(gr->g, n), out);
    return !group_depends(gr, value, q) || refuse_source(gr, q, value);
}

/* ---- Joining and leaving ---- */

int group_stores(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    int stores = group_writes_state(gr, value);
    for (int o = g->node[value].output; o >= 0; o = g->output[o].next) stores++;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++)
        stores += g->node[gr->uses.use[i].node].op == OP_CONCAT;
    return stores;
}

bool group_has_one_place(const struct grouper *gr, int value)
{
    int stores = group_stores(gr, value);
    return !stores || (stores == 1 && gr->g->node[value].output >= 0 && own_output(gr->g, value) >= 0);
}

/* Is the node a statistic that a group of this kind only has in parts? */
static bool is_partial(const struct group *q, const struct node *n)
{
    return n->op == OP_REDUCE && (q->p.kind == PROGRAM_GEMM || n->attr.reduce.columns) && !q->short_columns;
}

/* The root comes first, then the others as they are ordered in the graph. */
static void link_member(struct grouper *gr, struct group *q, int value)
{
    int before = q->first < 0 || value > q->last ? q->last : q->first;
    while (before >= 0 && gr->site[before].next >= 0 && gr->site[before].next < value)
        before = gr->site[before].next;
    int *link = before < 0 ? &q->first : &gr->site[before].next;
    gr->site[value].next = *link;
    *link = value;
    if (before == q->last) q->last = value;
}

void group_join(struct grouper *gr, struct group *q, int value)
{
    struct site *s = &gr->site[value];
    s->role = ROLE_MEMBER;
    s->group = q->index;
    link_member(gr, q, value);
    q->members++;
    q->stores += group_stores(gr, value);
    s->partial = is_partial(q, &gr->g->node[value]);
    int horizon = MAX(s->horizon, gr->site[q->first].horizon);
    horizon_raise(gr, q->first, horizon);
    horizon_raise(gr, value, horizon);
}

/* The node is no member any more, and nothing is left of what it was as one. */
static void release(struct site *s, enum role role)
{
    s->role = role;
    s->group = s->next = -1;
    s->range = 0;
    s->partial = s->segmented = s->leaves = false;
    s->store_columns = (struct column_range){0, 0};
}

void group_leave(struct grouper *gr, struct group *q, int value)
{
    struct site *s = &gr->site[value];
    int before = q->first;
    while (gr->site[before].next != value) before = gr->site[before].next;
    gr->site[before].next = s->next;
    if (q->last == value) q->last = before;
    q->members--;
    q->stores -= group_stores(gr, value);
    release(s, ROLE_FREE);
}

void group_dissolve(struct grouper *gr, struct group *q)
{
    for (int m = q->first, next; m >= 0; m = next) {
        next = gr->site[m].next;
        release(&gr->site[m], ROLE_FREE);
    }
    q->first = q->last = -1;
    q->members = q->stores = 0;
}

void group_take_back(struct grouper *gr, struct group *q)
{
    for (int m = q->first, next; m >= 0; m = next) {
        next = gr->site[m].next;
        release(&gr->site[m], op_is_view(gr->g->node[m].op) ? ROLE_VIEW : ROLE_FREE);
    }
    for (int i = q->p.root; i < gr->g->nodes; i++)
        if (gr->site[i].role == ROLE_VIEW) view_extend(gr->g, i, gr->view);
    for (int i = 0; i < gr->g->nodes; i++) /* another group gets its number */
        if (gr->site[i].queued == (unsigned)q->index + 1) gr->site[i].queued = 0;
    gr->groups--;
    group_find_horizons(gr);
}

void group_absorb(struct grouper *gr, struct group *q, struct group *other)
{
    int first = other->first, next, horizon = MAX(gr->site[q->first].horizon, gr->site[first].horizon);
    for (int m = first; m >= 0; m = next) {
        next = gr->site[m].next;
        gr->site[m].group = q->index;
        link_member(gr, q, m);
    }
    q->members += other->members;
    q->stores += other->stores;
    q->loads += other->loads + other->members;
    other->into = q;
    other->first = other->last = -1;
    horizon_raise(gr, q->first, horizon);
    horizon_raise(gr, first, horizon);
}

bool group_has_room(const struct grouper *gr, const struct group *q, int state)
{
    int floats = state;
    for (int i = 0; i < q->bests; i++) floats += q->best[i].reduce->state;
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        const struct node *n = &gr->g->node[m];
        bool wide = n->op == OP_REDUCE && n->prim->state > PRIM_MAX_COLUMN_STATE;
        floats += wide && group_state(gr, m) == m ? n->prim->state : 0;
    }
    return state <= PRIM_MAX_COLUMN_STATE || floats <= PRIM_MAX_STATE ||
           refuse_join(gr, REASON_MOST_STATES, -1, floats, PRIM_MAX_STATE);
}

/* Columns of segments that lie apart. */
static bool is_split(const struct group *q, const struct type *t, const int64_t *stride)
{
    return q->p.segment && extent_reaches(type_columns(t), 2) &&
           !extents_equal(stride[3], q->p.segment * stride[2]);
}

bool group_can_store(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    const struct type *t = &g->node[value].type;
    int64_t out[CODA_MAX_RANK], stride[CODA_MAX_RANK];
    for (int o = g->node[value].output; o >= 0; o = g->output[o].next)
        if (!domain_strides(q, t, g->output[o].stride, t, out) || is_split(q, t, out)) return false;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++) {
        const struct node *c = &g->node[gr->uses.use[i].node];
        if (c->op != OP_CONCAT) continue;
        view_part(c, stride);
        if (!domain_strides(q, t, stride, t, out) || is_split(q, t, out)) return false;
    }
    if (g->node[value].op != OP_ASSIGN) return true;
    return domain_strides(q, t, g->node[value].stride, t, out) && !is_split(q, t, out);
}
