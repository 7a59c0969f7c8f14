/*
 * fuse.c -- which nodes join a program.
 *
 * A program takes in, in topological order, whatever its epilogue can compute while the tile is in
 * registers: maps, casts, row reductions, one pairing (in heads, or gating). A node joins only if its other
 * operands do not depend on the program, so programs have an order.
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
    *q = (struct group){.index = gr->groups++, .first = -1, .last = -1, .paired = -1, .root_step = -1};
    q->p.kind = kind;
    q->p.root = root;
    q->p.prepare = gr->site[root].is_const;
    return q;
}

/* Of one program, which has room for all that they bring: its parameters are 4 kB. */
enum { MOST_MEMBERS = 32, MOST_LOADS = 16, MOST_STORES = 48 };

/* ---- Where operands come from ---- */

bool group_holds(const struct grouper *gr, const struct group *q, int value)
{
    return gr->site[value].role == ROLE_MEMBER && gr->group[gr->site[value].group] == q;
}

bool group_number(const struct grouper *gr, int value, float *number)
{
    while (op_is_view(gr->g->node[value].op)) value = gr->g->node[value].in[0];
    if (gr->site[value].role != ROLE_NUMBER) return false;
    *number = gr->site[value].number;
    return true;
}

static bool same_state(const struct node *a, const struct node *b)
{
    return a->op == OP_REDUCE && b->op == OP_REDUCE && prim_states_equal(a->prim, b->prim) &&
           a->nin == b->nin && !memcmp(a->in, b->in, sizeof *a->in * (size_t)a->nin);
}

int group_state(const struct grouper *gr, int value)
{
    int m = gr->group[gr->site[value].group]->first;
    while (m != value && !same_state(&gr->g->node[m], &gr->g->node[value])) m = gr->site[m].next;
    return m;
}

/* A reshape that only regroups rows is the same tile. */
static int same_tile(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    while (q->p.kind == PROGRAM_GEMM && g->node[value].op == OP_RESHAPE && g->node[value].type.rank > 0 &&
           type_columns(&g->node[value].type) == type_columns(&g->node[g->node[value].in[0]].type))
        value = g->node[value].in[0];
    return value;
}

/* Is slice s half of the columns of the value it cuts, as gate and up lie? */
static bool is_lane(const graph *g, const struct node *s, struct source *out)
{
    const struct type *t = &g->node[s->in[0]].type;
    int64_t n = type_columns(t);
    if (s->op != OP_SLICE || s->attr.slice.axis != t->rank - 1 || n < 2 || n % 2) return false;
    int64_t start = s->attr.slice.start, step = MAX(s->attr.slice.step, 1);
    if (type_columns(&s->type) * 2 != n) return false;
    bool stacked = step == 1 && (start == 0 || start == n / 2), interleaved = step == 2 && start <= 1;
    out->pair = stacked ? PAIR_GLU_STACKED : PAIR_GLU_INTERLEAVED;
    out->lane = start != 0;
    return stacked || interleaved;
}

struct source group_source(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    struct source s = {.kind = SOURCE_OUTSIDE, .value = value};
    int tile = same_tile(gr, q, value);
    if (group_holds(gr, q, tile)) {
        bool lost = q->p.kind == PROGRAM_GEMM && g->node[tile].op == OP_REDUCE;
        s.kind = lost ? SOURCE_NONE : SOURCE_MEMBER;
        s.value = tile;
        return s;
    }
    if (q->p.kind != PROGRAM_GEMM || g->node[tile].op != OP_SLICE) return s;
    int full = same_tile(gr, q, g->node[tile].in[0]);
    if (!group_holds(gr, q, full) || g->node[full].op == OP_REDUCE || !is_lane(g, &g->node[tile], &s))
        return s;
    if (domain_shape(q, &g->node[full].type) != SHAPE_TILE) return s;
    s.kind = SOURCE_LANE;
    s.value = full;
    return s;
}

/* ---- Order ---- */

/* A program needs what any of its members needs, so each member has the horizon of the one that has the
 * farthest: it is raised for all of them, and for all that read them. */
static void raise_horizon(struct grouper *gr, int value, int horizon)
{
    int *stack = gr->stack, top = 0;
    if (gr->site[value].horizon >= horizon) return;
    gr->site[value].horizon = horizon;
    stack[top++] = value;
    while (top) {
        int v = stack[--top];
        const struct use *end = gr->uses.use + gr->uses.at[v + 1];
        for (const struct use *u = gr->uses.use + gr->uses.at[v]; u < end; u++) {
            if (gr->site[u->node].horizon >= horizon) continue;
            gr->site[u->node].horizon = horizon;
            stack[top++] = u->node;
        }
        if (gr->site[v].role != ROLE_MEMBER) continue;
        for (int m = gr->group[gr->site[v].group]->first; m >= 0; m = gr->site[m].next) {
            if (gr->site[m].horizon >= horizon) continue;
            gr->site[m].horizon = horizon;
            stack[top++] = m;
        }
    }
}

/* Nodes whose horizon lies before the group's root need none of its members. */
static void visit(struct grouper *gr, const struct group *q, int value, int *stack, int *top)
{
    struct site *s = &gr->site[value];
    if (s->seen == gr->mark || s->horizon < q->p.root) return;
    s->seen = gr->mark;
    stack[(*top)++] = value;
}

static void visit_operands(struct grouper *gr, const struct group *q, int value, int *stack, int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) visit(gr, q, n->in[i], stack, top);
}

/* Does computing `value` need the program of group q? */
static bool depends_on(struct grouper *gr, int value, const struct group *q)
{
    int *stack = gr->stack, top = 0;
    gr->mark++;
    visit(gr, q, value, stack, &top);
    while (top) {
        int v = stack[--top];
        const struct site *s = &gr->site[v];
        if (s->role != ROLE_MEMBER) {
            visit_operands(gr, q, v, stack, &top);
            continue;
        }
        struct group *other = gr->group[s->group];
        if (other == q) return true;
        if (other->seen == gr->mark) continue;
        other->seen = gr->mark;
        for (int m = other->first; m >= 0; m = gr->site[m].next) visit_operands(gr, q, m, stack, &top);
    }
    return false;
}

/* ---- Candidates: what reads a member, and what reads the same as one ---- */

static void enqueue(struct grouper *gr, const struct group *q, int value)
{
    struct site *s = &gr->site[value];
    if (value <= gr->at || s->queued == (unsigned)q->index + 1) return;
    if (s->role != ROLE_FREE && s->role != ROLE_VIEW) return;
    s->queued = (unsigned)q->index + 1;
    int i = gr->queued++;
    for (; i > 0 && gr->queue[(i - 1) / 2] > value; i = (i - 1) / 2) gr->queue[i] = gr->queue[(i - 1) / 2];
    gr->queue[i] = value;
}

/* The first of them. */
static int dequeue(struct grouper *gr)
{
    int *heap = gr->queue, first = heap[0], last = heap[--gr->queued], i = 0;
    for (int child; (child = 2 * i + 1) < gr->queued; i = child) {
        if (child + 1 < gr->queued && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return gr->at = first;
}

static void enqueue_readers(struct grouper *gr, const struct group *q, int value, const struct uses *uses)
{
    for (int i = uses->at[value]; i < uses->at[value + 1]; i++) enqueue(gr, q, uses->use[i].node);
}

static void enqueue_neighbours(struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    enqueue_readers(gr, q, value, &gr->uses);
    for (int i = 0; i < n->nin && q->p.kind == PROGRAM_ROWS; i++)
        if (n->in[i] >= 0) enqueue_readers(gr, q, n->in[i], &gr->statistics);
}

/* ---- Joining ---- */

int group_stores(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    int stores = 0;
    for (int o = g->node[value].output; o >= 0; o = g->output[o].next) stores++;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++)
        stores += g->node[gr->uses.use[i].node].op == OP_CONCAT;
    return stores;
}

void group_join(struct grouper *gr, struct group *q, int value)
{
    struct site *s = &gr->site[value];
    s->role = ROLE_MEMBER;
    s->group = q->index;
    s->next = -1;
    if (q->first < 0) q->first = value;
    else gr->site[q->last].next = value;
    q->last = value;
    q->members++;
    q->stores += group_stores(gr, value);
    s->partial = q->p.kind == PROGRAM_GEMM && gr->g->node[value].op == OP_REDUCE;
    int horizon = MAX(s->horizon, gr->site[q->first].horizon);
    raise_horizon(gr, q->first, horizon);
    raise_horizon(gr, value, horizon);
}

static bool outside_ok(struct grouper *gr, struct group *q, const struct node *n, int i)
{
    int value = n->in[i];
    struct type t = domain_operand_type(gr->g, n, i);
    int64_t out[CODA_MAX_RANK];
    const struct view *v = &gr->view[value];
    if (v->base < 0 || !domain_strides(q, &t, v->stride, domain_walked(gr->g, n), out)) return false;
    return !depends_on(gr, value, q);
}

/* Another statistic of a tensor that a rows program walks anyway. */
static bool is_sibling(const struct grouper *gr, const struct group *q, const struct node *n)
{
    if (q->p.kind != PROGRAM_ROWS || n->op != OP_REDUCE) return false;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < gr->g->node[m].nin; i++)
            if (gr->g->node[m].in[i] == n->in[0]) return true;
    return false;
}

/* The operands of n: some inside the group, the rest reachable from outside. */
static bool operands_ok(struct grouper *gr, struct group *q, const struct node *n, enum pair_kind *pair,
                        int *full)
{
    int inside = 0, lanes = 0;
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        struct source s = group_source(gr, q, n->in[i]);
        if (s.kind == SOURCE_NONE) return false;
        inside += s.kind == SOURCE_MEMBER || s.kind == SOURCE_LANE;
        if (s.kind == SOURCE_OUTSIDE && !outside_ok(gr, q, n, i)) return false;
        if (s.kind != SOURCE_LANE) continue;
        if (lanes++ && (s.pair != *pair || s.value != *full)) return false;
        *pair = s.pair;
        *full = s.value;
    }
    return inside > 0 || is_sibling(gr, q, n);
}

static void unpair(struct group *q)
{
    q->p.pair = PAIR_NONE;
    q->paired = -1;
}

static bool try_pair(struct group *q, enum pair_kind pair, int full)
{
    if (q->p.pair == pair && (pair == PAIR_NONE || q->paired == full)) return true;
    if (q->p.pair != PAIR_NONE) return false;
    q->p.pair = pair;
    q->paired = full;
    if (program_pairs_meet(&q->p)) return true;
    unpair(q);
    return false;
}

static bool try_heads(struct grouper *gr, struct group *q, const struct node *n)
{
    struct source s = group_source(gr, q, n->in[0]);
    if (s.kind != SOURCE_MEMBER || q->p.pair != PAIR_NONE) return false;
    pair_read(&q->p, gr->g, n);
    return try_pair(q, PAIR_HEADS, s.value);
}

/* Every place that the value must be stored to is a matrix over the group's domain. */
static bool stores_ok(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    const struct type *t = &g->node[value].type;
    int64_t out[CODA_MAX_RANK], stride[CODA_MAX_RANK];
    for (int o = g->node[value].output; o >= 0; o = g->output[o].next)
        if (!domain_strides(q, t, g->output[o].stride, t, out)) return false;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++) {
        const struct node *c = &g->node[gr->uses.use[i].node];
        dense_strides(&c->type, stride);
        if (c->op == OP_CONCAT && !domain_strides(q, t, stride, t, out)) return false;
    }
    return true;
}

static bool may_join(struct grouper *gr, struct group *q, int value)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[value];
    const struct node *root = &g->node[q->p.root];
    if (gr->site[value].role != ROLE_FREE || gr->site[value].is_const != gr->site[q->p.root].is_const)
        return false;
    if (!gr->opt->fuse && n->origin != root->origin) return false;
    if (q->members >= MOST_MEMBERS || q->loads + n->nin > MOST_LOADS) return false;
    if (q->stores + group_stores(gr, value) > MOST_STORES) return false;
    if (op_combines_pairs(n->op)) return q->p.kind == PROGRAM_GEMM;
    return n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE;
}

/* Can the tile hold the value, and can it be stored from there? */
static bool fits(const struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    enum shape shape = domain_shape(q, domain_walked(gr->g, n));
    bool tiles = q->p.kind != PROGRAM_GEMM || q->p.dim[2] > 0; /* without any, no states of a row */
    if (n->op == OP_REDUCE && !tiles) return false;
    return shape != SHAPE_NO && !(n->op == OP_REDUCE && shape == SHAPE_ROW) && stores_ok(gr, q, value);
}

static bool try_join(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    enum pair_kind pair = PAIR_NONE;
    int full = -1;
    if (!may_join(gr, q, value) || !operands_ok(gr, q, n, &pair, &full)) return false;
    bool paired = q->p.pair != PAIR_NONE;
    if (pair != PAIR_NONE && !try_pair(q, pair, full)) return false;
    if (op_combines_pairs(n->op) && !try_heads(gr, q, n)) return false;
    bool joins = fits(gr, q, value);
    if (joins) {
        group_join(gr, q, value);
        q->loads += n->nin - 1;
    } else if (!paired) {
        unpair(q);
    }
    return joins;
}

/* cuBLASLt, which makes products taken apart, has no epilogue of ours. */
void group_grow(struct grouper *gr, struct group *q)
{
    const struct decision *d = plan_decision(gr->opt, q->p.root);
    if (d && d->apart) return;
    gr->at = q->p.root;
    enqueue_neighbours(gr, q, q->p.root);
    while (gr->queued) {
        int value = dequeue(gr);
        if (gr->site[value].role == ROLE_VIEW) enqueue_readers(gr, q, value, &gr->uses);
        else if (try_join(gr, q, value)) enqueue_neighbours(gr, q, value);
    }
}
