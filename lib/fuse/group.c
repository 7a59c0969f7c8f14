/*
 * group.c -- programs to be, as groups of nodes: what is a member, what it needs and stores, and how a node
 * becomes one. Which do is decided in fuse.c, segments.c and take_in.c.
 */
#include "fuse.h"

#include <string.h>

struct group *group_new(struct grouper *gr, enum program_kind kind, int root)
{
    struct arena *arena = &gr->plan->arena;
    if (gr->groups == gr->group_capacity) {
        int wider = MAX(64, 2 * gr->group_capacity);
        struct group **group = ARENA_NEW(arena, struct group *, wider);
        if (!group) return NULL;
        if (gr->groups) memcpy(group, gr->group, sizeof *group * (size_t)gr->groups);
        gr->group = group;
        gr->group_capacity = wider;
    }
    struct group *q = gr->group[gr->groups] = ARENA_NEW(arena, struct group, 1);
    if (!q) return NULL;
    *q = (struct group){.index = gr->groups++,
                        .first = -1,
                        .last = -1,
                        .paired = -1,
                        .turn = -1,
                        .root_step = -1,
                        .also = -1,
                        .finisher = -1,
                        .next_finisher = -1};
    q->p.kind = kind;
    q->p.root = root;
    q->p.prepare = gr->site[root].is_const;
    q->p.invariant = gr->opt->invariant;
    return q;
}

/* ---- Members ---- */

bool group_holds(const struct grouper *gr, const struct group *q, int value)
{
    return gr->site[value].role == ROLE_MEMBER && gr->group[gr->site[value].group] == q;
}

bool group_has_again(const struct group *q, int value)
{
    for (int i = 0; i < q->agains; i++)
        if (q->again[i] == value) return true;
    return false;
}

bool group_number(const struct grouper *gr, int value, float *number)
{
    while (op_is_view(gr->g->node[value].op)) value = gr->g->node[value].in[VIEW_OF];
    if (gr->site[value].role != ROLE_NUMBER) return false;
    *number = gr->site[value].number;
    return true;
}

bool group_has_column_parts(const struct grouper *gr, int value)
{
    return gr->site[value].partial && gr->g->node[value].attr.reduce.columns;
}

int group_scalar(const struct grouper *gr, int value)
{
    while (op_is_view(gr->g->node[value].op)) value = gr->g->node[value].in[VIEW_OF];
    return gr->g->node[value].op == OP_SCALAR ? value : -1;
}

static bool same_state(const struct node *a, const struct node *b)
{
    return a->op == OP_REDUCE && b->op == OP_REDUCE && prim_states_equal(a->prim, b->prim) &&
           attr_equal(a, b) && a->nin == b->nin && !memcmp(a->in, b->in, sizeof *a->in * (size_t)a->nin);
}

int group_state(const struct grouper *gr, int value)
{
    int m = gr->group[gr->site[value].group]->first;
    while (m != value && !same_state(&gr->g->node[m], &gr->g->node[value])) m = gr->site[m].next;
    return m;
}

bool group_writes_state(const struct grouper *gr, int value) { return op_is_version(gr->g->node[value].op); }

/* Is the node a statistic that a group of this kind only has in parts? */
static bool is_partial(const struct group *q, const struct node *n)
{
    return n->op == OP_REDUCE && (q->p.kind == PROGRAM_GEMM || n->attr.reduce.columns) && !q->short_columns;
}

int regrouped(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    while (g->node[value].op == OP_RESHAPE && g->node[value].type.rank > 0 &&
           extents_equal(type_columns(&g->node[value].type),
                         type_columns(&g->node[g->node[value].in[RESHAPE_X]].type)))
        value = g->node[value].in[RESHAPE_X];
    return value;
}

int group_tile(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    if (q->line) return line_value(g, value);
    return q->p.kind == PROGRAM_GEMM || q->flat ? regrouped(gr, value) : value;
}

bool group_has_rows(const struct grouper *gr, int value)
{
    if (gr->opt->invariant && gr->site[value].rows) return true;
    return extent_reaches(type_rows(&gr->g->node[value].type), 2);
}

bool group_is_one(const struct grouper *gr, int value)
{
    if (gr->opt->invariant && gr->site[value].rows) return false;
    return extent_is_one(type_elements(&gr->g->node[value].type));
}

bool group_repeats(const struct grouper *gr, int value, int reader)
{
    const struct type *t = &gr->g->node[value].type, *over = &gr->g->node[reader].type;
    if (gr->opt->invariant && gr->site[reader].rows & ~gr->site[value].rows) return true;
    return !extents_equal(type_rows(over), group_is_one(gr, value) ? 1 : type_rows(t));
}

bool group_shares_rows(const struct grouper *gr, const struct group *q, int value)
{
    return !gr->opt->invariant || gr->site[value].rows == gr->site[q->p.root].rows;
}

/* ---- Order ---- */

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
static void raise_horizon(struct grouper *gr, int value, int horizon)
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
    if (q->first >= 0) raise_horizon(gr, q->first, gr->site[value].horizon + 1);
}

/* A program that is looked for, walking from a value towards the leaves. Nodes whose horizon lies before
 * those of what it computes need none of it. */
struct sought {
    const struct group *q;
    int horizon;
};

static struct sought seek(const struct grouper *gr, const struct group *q)
{
    struct sought to = {q, gr->site[q->p.root].horizon}; /* which members share */
    for (int v = q->also; v >= 0; v = gr->site[v].also) to.horizon = MIN(to.horizon, gr->site[v].horizon);
    return to;
}

static void visit(struct grouper *gr, const struct sought *to, int value, int *top)
{
    struct site *s = &gr->site[value];
    if (s->seen == gr->mark || s->horizon < to->horizon) return;
    s->seen = gr->mark;
    gr->stack[(*top)++] = value;
}

static void visit_operands(struct grouper *gr, const struct sought *to, int value, int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) visit(gr, to, n->in[i], top);
}

/* Does the program compute operand i of its value again, and wait for nobody who might store it? */
static bool computes_again(const struct grouper *gr, const struct group *q, int value, int i)
{
    return q->agains && value != q->p.root && group_has_again(q, group_tile(gr, q, gr->g->node[value].in[i]));
}

static void visit_loads(struct grouper *gr, const struct sought *to, const struct group *q, int value,
                        int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && !computes_again(gr, q, value, i)) visit(gr, to, n->in[i], top);
}

/* All that a program needs, the first time. */
static void visit_group(struct grouper *gr, const struct sought *to, struct group *q, int *top)
{
    if (q->seen == gr->mark) return;
    q->seen = gr->mark;
    for (int m = q->first; m >= 0; m = gr->site[m].next) visit_loads(gr, to, q, m, top);
    for (int i = 0; i < q->agains; i++) visit_loads(gr, to, q, q->again[i], top);
    for (int v = q->also; v >= 0; v = gr->site[v].also) visit(gr, to, v, top);
}

bool group_depends(struct grouper *gr, int value, const struct group *q)
{
    const struct sought to = seek(gr, q);
    int top = 0;
    gr->mark++;
    visit(gr, &to, value, &top);
    while (top) {
        int v = gr->stack[--top];
        const struct site *s = &gr->site[v];
        struct group *by = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
        struct group *finisher = s->finished && s->again_in >= 0 ? gr->group[s->again_in] : NULL;
        if (by == q || finisher == q) return true;
        if (by) visit_group(gr, &to, by, &top);
        else visit_operands(gr, &to, v, &top);
        if (finisher) visit_group(gr, &to, finisher, &top);
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

static void reach(struct grouper *gr, int x, int value, int *top)
{
    struct site *s = &gr->site[value];
    if (s->seen == gr->mark || s->horizon < gr->site[x].horizon) return;
    s->seen = gr->mark;
    gr->stack[(*top)++] = value;
}

/* What q reads from memory for its value m, but for x, which it is to compute; a statistic of columns is not
 * there before q has ended. */
static void reach_loads(struct grouper *gr, const struct group *q, int x, int m, int *top)
{
    const struct node *n = &gr->g->node[m];
    int computed = node_folds_columns(&gr->g->node[x]) ? -1 : x;
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        int tile = group_tile(gr, q, n->in[i]);
        if (m == q->p.root || (tile != computed && !group_holds(gr, q, tile) && !group_has_again(q, tile)))
            reach(gr, x, n->in[i], top);
    }
}

static void reach_operands(struct grouper *gr, int x, int value, int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) reach(gr, x, n->in[i], top);
}

static void reach_others(struct grouper *gr, const struct group *other, int x, int value, int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && !computes_again(gr, other, value, i)) reach(gr, x, n->in[i], top);
}

/* What is of a lower horizon does not. */
bool group_needs(struct grouper *gr, const struct group *q, int x, int value)
{
    int top = 0;
    gr->mark++;
    if (value >= 0) reach_loads(gr, q, x, value, &top);
    for (int m = q->first; m >= 0; m = gr->site[m].next) reach_loads(gr, q, x, m, &top);
    for (int i = 0; i < q->agains; i++) reach_loads(gr, q, x, q->again[i], &top);
    while (top) {
        int v = gr->stack[--top];
        if (v == x) return true;
        if (gr->site[v].role != ROLE_MEMBER) {
            reach_operands(gr, x, v, &top);
            continue;
        }
        struct group *other = gr->group[gr->site[v].group];
        if (other == q || other->seen == gr->mark) continue;
        other->seen = gr->mark;
        for (int m = other->first; m >= 0; m = gr->site[m].next) reach_others(gr, other, x, m, &top);
        for (int i = 0; i < other->agains; i++) reach_others(gr, other, x, other->again[i], &top);
    }
    return false;
}

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

/* ---- Joining ---- */

int group_stores(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    int stores = group_writes_state(gr, value);
    for (int o = g->node[value].output; o >= 0; o = g->output[o].next) stores++;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++)
        stores += g->node[gr->uses.use[i].node].op == OP_CONCAT;
    return stores;
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
    raise_horizon(gr, q->first, horizon);
    raise_horizon(gr, value, horizon);
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
    s->role = ROLE_FREE;
    s->group = s->next = -1;
    s->range = 0;
    s->partial = s->segmented = s->leaves = false;
}

void group_dissolve(struct grouper *gr, struct group *q)
{
    for (int m = q->first, next; m >= 0; m = next) {
        struct site *s = &gr->site[m];
        next = s->next;
        s->role = ROLE_FREE;
        s->group = s->next = -1;
        s->partial = false;
    }
    q->first = q->last = -1;
    q->members = q->stores = 0;
}

void group_take_back(struct grouper *gr, struct group *q)
{
    while (q->first >= 0) {
        int m = q->first;
        q->first = gr->site[m].next;
        gr->site[m].role = op_is_view(gr->g->node[m].op) ? ROLE_VIEW : ROLE_FREE;
        gr->site[m].group = gr->site[m].next = -1;
        gr->site[m].range = 0;
        gr->site[m].partial = gr->site[m].segmented = gr->site[m].leaves = false;
        gr->site[m].store_columns = (struct column_range){0, 0};
    }
    for (int i = q->p.root; i < gr->g->nodes; i++)
        if (gr->site[i].role == ROLE_VIEW) view_extend(gr->g, i, gr->view);
    for (int i = 0; i < gr->g->nodes; i++) /* another group gets its number */
        if (gr->site[i].queued == (unsigned)q->index + 1) gr->site[i].queued = 0;
    gr->groups--;
    group_find_horizons(gr);
}

/* Of a node whose operands have theirs: the operations on the longest way to it. Unlike its place in the
 * graph it says nothing of how far along a value is read first, as by a backward pass. */
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
        for (int m = gr->group[i]->first; m >= 0; m = gr->site[m].next) raise_horizon(gr, m, horizon);
    }
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
    raise_horizon(gr, q->first, horizon);
    raise_horizon(gr, first, horizon);
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
