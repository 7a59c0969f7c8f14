/*
 * fuse.c -- which nodes join a program.
 *
 * A program takes in, in topological order, whatever its epilogue can compute while the tile is in
 * registers: maps, casts, reductions, one pairing (in heads, or gating). A node joins only if its other
 * operands do not depend on the program, so programs have an order.
 */
#include "fuse.h"

#include <string.h>

/* Of one program, which has room for all that they bring: its parameters are 4 kB. */
enum { MOST_MEMBERS = 32, MOST_LOADS = 16, MOST_STORES = 48 };

/* ---- Where operands come from ---- */

/* Is slice s half of the columns of the value it cuts, as gate and up lie? */
static bool is_lane(const graph *g, const struct node *s, struct source *out)
{
    const struct type *t = &g->node[s->in[SLICE_X]].type;
    int64_t n = type_columns(t);
    if (s->op != OP_SLICE || s->attr.slice.axis != t->rank - 1 || !extent_reaches(n, 2) ||
        !extent_is_multiple(n, 2))
        return false;
    int64_t start = s->attr.slice.start, step = MAX(s->attr.slice.step, 1);
    if (!extents_equal(type_columns(&s->type) * 2, n)) return false;
    bool first = extents_equal(start, 0), second = !first && extents_equal(start, step == 1 ? n / 2 : 1);
    bool stacked = step == 1 && (first || second), interleaved = step == 2 && (first || second);
    out->pair = stacked ? PAIR_GLU_STACKED : PAIR_GLU_INTERLEAVED;
    out->lane = !first;
    return stacked || interleaved;
}

struct source group_source(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    struct source s = {.kind = SOURCE_OUTSIDE, .value = value};
    int tile = group_tile(gr, q, value);
    if (group_holds(gr, q, tile)) {
        bool held = !gr->site[tile].partial && !group_writes_state(gr, tile);
        s.kind = held ? SOURCE_MEMBER : SOURCE_NONE;
        s.value = tile;
        return s;
    }
    if (group_has_again(q, tile)) return (struct source){.kind = SOURCE_AGAIN, .value = tile};
    struct spot spot;
    if (q->p.kind != PROGRAM_GEMM) return s;
    if (spot_of(gr, q, value, &spot) && (q->p.segment || spot.segmented)) {
        s.kind = SOURCE_MEMBER;
        s.value = spot.member;
        return s;
    }
    if (g->node[tile].op != OP_SLICE) return s;
    int full = group_tile(gr, q, g->node[tile].in[SLICE_X]);
    bool lanes = group_holds(gr, q, full) && g->node[full].op != OP_REDUCE && !group_writes_state(gr, full);
    if (!lanes || !is_lane(g, &g->node[tile], &s)) return s;
    if (domain_shape(q, &g->node[full].type) != SHAPE_TILE) return s;
    s.kind = SOURCE_LANE;
    s.value = full;
    return s;
}

/* ---- Candidates: what reads a member, and what reads the same as one ---- */

/* What is no candidate, since it has its place already. Operands of other kernels are noted where those are
 * made: fuse_roots.c. */
static void note_taken(const struct grouper *gr, const struct group *q, int value)
{
    const struct site *s = &gr->site[value];
    if (s->role == ROLE_INLINE) refuse_note(gr, q, value, REASON_AGAIN, -1, 0, 0);
    if (s->role == ROLE_CONCAT) refuse_note(gr, q, value, REASON_CONCAT, -1, 0, 0);
    if (s->role != ROLE_MEMBER || gr->group[s->group] == q) return;
    const struct program *p = &gr->group[s->group]->p;
    bool product = q->p.kind == PROGRAM_GEMM;
    if (p->kind == PROGRAM_GEMM && p->root != value)
        refuse_note(gr, q, value, product ? REASON_ONE_PRODUCT : REASON_IN_EPILOGUE, p->root, 0, 0);
    if (p->kind == PROGRAM_ROWS) refuse_note(gr, q, value, REASON_OTHER_PASS, p->root, 0, 0);
}

static void enqueue(struct grouper *gr, const struct group *q, int value)
{
    struct site *s = &gr->site[value];
    if (value <= gr->at || s->queued == (unsigned)q->index + 1) return;
    if (s->role != ROLE_FREE && s->role != ROLE_VIEW) {
        if (gr->opt->reasons) note_taken(gr, q, value);
        return;
    }
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

/* Another statistic of a tensor that a rows program walks anyway. */
static bool is_sibling(struct grouper *gr, const struct group *q, const struct node *n)
{
    int value = (int)(n - gr->g->node);
    if (q->p.kind != PROGRAM_ROWS || n->op != OP_REDUCE) return false;
    if (gr->site[q->first].horizon >= gr->site[value].horizon && group_needs(gr, q, value)) return false;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < state_operands(&gr->g->node[m]); i++)
            if (gr->g->node[m].in[i] == n->in[REDUCE_X]) return true;
    return false;
}

/* Does a member read the version that n writes over, each element by the thread that then writes it? */
static bool reads_in_place(const struct grouper *gr, const struct group *q, const struct node *n, int member)
{
    const graph *g = gr->g;
    const struct node *r = &g->node[member];
    bool walks = q->p.kind == PROGRAM_ROWS && n->op == OP_ASSIGN && n->type.rank == q->domain.rank &&
                 extents_all_equal(n->type.dim, q->domain.dim, n->type.rank);
    if (!walks || !group_holds(gr, q, member)) return false;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if (g->node[m].op != OP_MAP && g->node[m].op != OP_CAST && !group_writes_state(gr, m)) return false;
    for (int i = 0; i < r->nin; i++)
        if (r->in[i] >= 0 && g->node[r->in[i]].state == n->in[ASSIGN_STATE] &&
            r->in[i] != n->in[ASSIGN_STATE])
            return false;
    return true;
}

/* Does a version, whatever it takes of q, come after all that has to be ahead of it, and can q load its
 * slots? */
static bool may_write(struct grouper *gr, struct group *q, const struct node *n)
{
    for (int i = 0; i < n->nin; i++) {
        bool ahead = i == VERSION_OF || i >= state_operands(n);
        if (n->in[i] < 0 || i == VERSION_VALUE || (ahead && i && reads_in_place(gr, q, n, n->in[i])))
            continue;
        if (n->op == OP_APPEND && i == APPEND_SCALE) {
            if (gr->view[n->in[i]].base < 0) return refuse_join(gr, REASON_LAYOUT, n->in[i], 0, 0);
            if (group_depends(gr, n->in[i], q)) return refuse_source(gr, q, n->in[i]);
            continue;
        }
        if (ahead && group_depends(gr, n->in[i], q))
            return refuse_join(gr, REASON_WRITE_ORDER, n->in[i], 0, 0);
        enum source_kind slots = ahead ? SOURCE_MEMBER : group_source(gr, q, n->in[i]).kind;
        if (slots == SOURCE_OUTSIDE && !group_can_load(gr, q, n, i)) return false;
        if (slots != SOURCE_OUTSIDE && slots != SOURCE_MEMBER) return refuse_source(gr, q, n->in[i]);
    }
    return true;
}

/* A key of rows, where all that a product of one column makes is of its tiles. */
static bool is_tile_key(const struct group *q, const struct node *n, int i)
{
    return n->op == OP_REDUCE && i == REDUCE_KEY && q->p.kind == PROGRAM_GEMM && extent_is_one(q->p.dim[2]);
}

/* The operands of n: some inside the group, the rest reachable from outside. */
static bool operands_ok(struct grouper *gr, struct group *q, const struct node *n, enum pair_kind *pair,
                        int *full)
{
    int inside = 0, lanes = 0;
    if (op_is_version(n->op)) {
        struct source s = group_source(gr, q, n->in[VERSION_VALUE]);
        bool whole = s.kind == SOURCE_MEMBER && s.value == group_tile(gr, q, n->in[VERSION_VALUE]);
        return whole || refuse_source(gr, q, n->in[VERSION_VALUE]);
    }
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        if (pair_loads(n, i)) {
            if (i == ROPE_POSITIONS && !group_can_load(gr, q, n, i)) return false;
            if (group_depends(gr, n->in[i], q)) return refuse_source(gr, q, n->in[i]);
            continue;
        }
        struct source s = group_source(gr, q, n->in[i]);
        if (s.kind == SOURCE_NONE) return refuse_source(gr, q, n->in[i]);
        if (s.kind == SOURCE_MEMBER && is_tile_key(q, n, i))
            return refuse_join(gr, REASON_SAME_ROW, n->in[i], 0, 0);
        inside += s.kind == SOURCE_MEMBER || s.kind == SOURCE_LANE;
        if (s.kind == SOURCE_OUTSIDE && !group_can_load(gr, q, n, i)) return false;
        if (s.kind != SOURCE_LANE) continue;
        if (!extents_equal(type_columns(domain_walked(gr->g, n)), type_columns(&gr->g->node[n->in[i]].type)))
            return refuse_join(gr, REASON_SLICED, n->in[i], 0, 0);
        if (lanes++ && (s.pair != *pair || s.value != *full))
            return refuse_join(gr, REASON_PAIRED_ALREADY, -1, 0, 0);
        *pair = s.pair;
        *full = s.value;
    }
    return inside > 0 || is_sibling(gr, q, n);
}

static bool try_pair(const struct grouper *gr, struct group *q, enum pair_kind pair, int full)
{
    if (q->p.pair == pair && (pair == PAIR_NONE || q->paired == full)) return true;
    if (q->p.pair != PAIR_NONE) return refuse_join(gr, REASON_PAIRED_ALREADY, -1, 0, 0);
    q->p.pair = pair;
    q->paired = full;
    return program_pairs_meet(&q->p, &gr->opt->target) ||
           refuse_join(gr, pair == PAIR_HEADS ? REASON_PAIRS_APART : REASON_GATES_APART, -1, 0, 0);
}

/* Has it segments, or do states take some of its columns as they are? A gated product has neither. */
static bool has_parts(const struct grouper *gr, const struct group *q)
{
    int m = q->first;
    while (m >= 0 && !gr->site[m].store_columns.end) m = gr->site[m].next;
    return q->p.segment || m >= 0;
}

static bool try_heads(struct grouper *gr, struct group *q, const struct node *n)
{
    struct source s = group_source(gr, q, n->in[ROPE_X]);
    if (s.kind != SOURCE_MEMBER) return refuse_source(gr, q, n->in[ROPE_X]);
    if (q->p.pair != PAIR_NONE) return refuse_join(gr, REASON_PAIRED_ALREADY, -1, 0, 0);
    if (q->p.segment && !pair_suits_segments(n, q->p.segment))
        return refuse_join(gr, REASON_SEGMENT_SIZE, -1, n->attr.rope.head_dim, q->p.segment);
    pair_read(&q->p, gr->g, n);
    return try_pair(gr, q, PAIR_HEADS, s.value);
}

static bool may_join(struct grouper *gr, struct group *q, int value)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[value];
    const struct node *root = &g->node[q->p.root];
    bool step = n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE || op_is_version(n->op);
    if (gr->site[value].role != ROLE_FREE || gr->site[value].is_const != gr->site[q->p.root].is_const)
        return refuse_join(gr, REASON_PREPARED, -1, 0, 0);
    if (!gr->opt->fuse && n->origin != root->origin) return refuse_join(gr, REASON_NO_FUSION, -1, 0, 0);
    if (!group_shares_rows(gr, q, value)) return refuse_join(gr, REASON_OTHER_ROWS, -1, 0, 0);
    if (q->members >= MOST_MEMBERS) return refuse_join(gr, REASON_MOST_VALUES, -1, q->members, MOST_MEMBERS);
    if (q->loads + state_operands(n) > MOST_LOADS)
        return refuse_join(gr, REASON_MOST_OPERANDS, -1, q->loads + state_operands(n), MOST_LOADS);
    if (q->stores + group_stores(gr, value) > MOST_STORES)
        return refuse_join(gr, REASON_MOST_RESULTS, -1, q->stores + group_stores(gr, value), MOST_STORES);
    if (op_combines_pairs(n->op))
        return q->p.kind == PROGRAM_GEMM || refuse_join(gr, REASON_PAIRS_IN_ROWS, -1, 0, 0);
    return step || refuse_join(gr, n->op == OP_EMBEDDING ? REASON_LOOKS_UP : REASON_NO_EPILOGUE, -1, 0, 0);
}

/* A pass over rows folds these, or their columns: then all else is element by element. */
/* Does a member read the version that another one, an assign, writes over? Then it is loaded once: a program
 * of several phases, which loads again, would find what it has stored. */
static bool writes_what_it_reads(const struct grouper *gr, const struct group *q, const struct node *assign)
{
    const graph *g = gr->g;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < state_operands(&g->node[m]) && &g->node[m] != assign; i++)
            if (g->node[m].in[i] >= 0 && g->node[g->node[m].in[i]].state == assign->in[ASSIGN_STATE])
                return true;
    return false;
}

static bool suits_fold(const struct grouper *gr, const struct group *q, const struct node *n)
{
    if (q->p.kind != PROGRAM_ROWS || (n->op != OP_REDUCE && !op_is_version(n->op))) return true;
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        const struct node *other = &gr->g->node[m];
        if (n->op == OP_REDUCE && other->op == OP_ASSIGN && writes_what_it_reads(gr, q, other))
            return refuse_join(gr, REASON_LOADED_ONCE, m, 0, 0);
        bool elements = other->op == OP_MAP || other->op == OP_CAST || node_folds_columns(other);
        if (node_folds_columns(n) ? !elements : node_folds_columns(other))
            return refuse_join(gr, REASON_TWO_FOLDS, m, 0, 0);
    }
    return true;
}

/* The matrices of the value are those of the product. */
static bool has_matrices(const struct group *q, const struct type *t)
{
    return q->p.kind != PROGRAM_GEMM || extents_equal(t->dim[t->rank - 2], q->p.dim[1]);
}

/* Can the tile hold the value, and can it be stored from there? A statistic of columns is stored by the
 * program that finishes it. */
static bool fits(const struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    const struct type *walked = domain_walked(gr->g, n);
    enum shape shape = domain_shape(q, walked);
    bool tiles =
        q->p.kind != PROGRAM_GEMM || extent_reaches(q->p.dim[2], 1); /* without any, no states of a row */
    if (n->op == OP_REDUCE && !tiles) return refuse_join(gr, REASON_EMPTY, -1, 0, 0);
    if (n->op == OP_REDUCE && q->p.kind == PROGRAM_GEMM && !group_has_room(gr, q, n->prim->state))
        return false;
    if (node_folds_columns(n) && q->p.segment) /* parts of states are of whole tiles */
        return refuse_join(gr, REASON_SEGMENT_FOLD, -1, 0, 0);
    if (node_folds_columns(n))
        return ((shape == SHAPE_TILE || shape == SHAPE_HALF) && has_matrices(q, walked)) ||
               refuse_join(gr, REASON_SHAPE, q->p.root, 0, 0);
    if (shape == SHAPE_NO) return refuse_join(gr, REASON_SHAPE, q->p.root, 0, 0);
    if (n->op == OP_REDUCE && shape == SHAPE_ROW) return refuse_join(gr, REASON_ROW_OF_ROWS, q->p.root, 0, 0);
    return group_can_store(gr, q, value) || refuse_join(gr, REASON_STORED_PLACE, -1, 0, 0);
}

static bool joins(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    enum pair_kind pair = PAIR_NONE;
    int full = -1;
    bool version = op_is_version(n->op);
    if (!may_join(gr, q, value) || (version && !may_write(gr, q, n))) return false;
    enum joining joining = version ? segment_append(gr, q, value) : segment_join(gr, q, value);
    if (joining != JOINS_OTHERWISE) return joining == JOINED;
    if (!operands_ok(gr, q, n, &pair, &full)) return false;
    if (pair != PAIR_NONE && has_parts(gr, q)) return refuse_join(gr, REASON_PAIRED_PARTS, -1, 0, 0);
    if (pair != PAIR_NONE && !try_pair(gr, q, pair, full)) return false;
    if (op_combines_pairs(n->op) && !try_heads(gr, q, n)) return false;
    if (!fits(gr, q, value) || !suits_fold(gr, q, n)) return false;
    group_join(gr, q, value);
    q->loads += state_operands(n) - 1;
    return true;
}

static bool try_join(struct grouper *gr, struct group *q, int value)
{
    struct trial trial = trial_begin(q);
    refuse_join(gr, REASON_NONE, -1, 0, 0);
    if (trial_end(&trial, joins(gr, q, value))) return true;
    refuse_keep(gr, q, value);
    return false;
}

static void grow(struct grouper *gr, struct group *q)
{
    while (gr->queued) {
        int value = dequeue(gr);
        if (gr->site[value].role == ROLE_VIEW) enqueue_readers(gr, q, value, &gr->uses);
        else if (try_join(gr, q, value)) enqueue_neighbours(gr, q, value);
    }
}

static void grow_from(struct grouper *gr, struct group *q, int value)
{
    gr->at = value;
    enqueue_neighbours(gr, q, value);
    grow(gr, q);
}

/* cuBLASLt, which makes products taken apart, has no epilogue of ours. */
void group_grow(struct grouper *gr, struct group *q)
{
    const struct decision *d = plan_decision(gr->opt, q->p.root);
    if (d && d->apart) {
        refuse_note(gr, q, q->p.root, REASON_MEASURED, -1, 0, 0);
        return;
    }
    grow_from(gr, q, q->p.root);
    segment_rest(gr, q, grow_from);
}
