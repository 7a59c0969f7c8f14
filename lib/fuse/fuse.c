/*
 * fuse.c -- which nodes join a program.
 *
 * A program takes in, in topological order, whatever its epilogue can compute while the tile is in
 * registers: maps, casts, reductions, one pairing (in heads, or gating). A node joins only if its other
 * operands do not depend on the program, so programs have an order.
 */
#include "fuse.h"

#include <string.h>

/* So many readers of what a program of rows loads are asked whether they are maps that join it. */
enum { MOST_BESIDE = 16 };

/* Floats of a column's states beside a walk over rows: of one, and of all. A thread has them of eight
 * columns, and of more of them would have no registers left for what it computes. */
enum { MOST_COLUMN_STATE = 2, MOST_COLUMN_STATES = 4, MOST_KEPT_COLUMNS = 4096 };

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
    bool rows = q->p.kind == PROGRAM_ROWS && gr->opt->fuse;
    int behind = rows && node_folds_columns(&gr->g->node[value]) ? -1 : rows ? q->p.root : gr->at;
    if (value <= behind || s->queued == (unsigned)q->index + 1) return;
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

/* Sums of columns of what a program of rows loads, whose rows are grouped otherwise. */
static void enqueue_regrouped(struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    int x = regrouped(gr, value);
    if (!gr->opt->fuse) return;
    if (x != value) enqueue_readers(gr, q, x, &gr->statistics);
    for (int i = u->at[x]; i < MIN(u->at[x + 1], u->at[x] + MOST_BESIDE); i++) {
        int view = u->use[i].node;
        if (view != value && regrouped(gr, view) == x) enqueue_readers(gr, q, view, &gr->statistics);
    }
}

/* Enqueues maps behind the program's root among the first readers of what it loads. */
static void enqueue_beside(struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    if (!gr->opt->fuse || domain_shape(q, &gr->g->node[value].type) != SHAPE_TILE) return;
    for (int i = u->at[value]; i < MIN(u->at[value + 1], u->at[value] + MOST_BESIDE); i++)
        if (rows_is_map(gr, u->use[i].node)) enqueue(gr, q, u->use[i].node);
}

static void enqueue_neighbours(struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    enqueue_readers(gr, q, value, &gr->uses);
    for (int i = 0; i < n->nin && q->p.kind == PROGRAM_ROWS; i++) {
        if (n->in[i] < 0) continue;
        enqueue_readers(gr, q, n->in[i], &gr->statistics);
        enqueue_regrouped(gr, q, n->in[i]);
        enqueue_beside(gr, q, n->in[i]);
    }
}

/* ---- Joining ---- */

/* Another statistic of a tensor that a rows program walks anyway. */
static bool is_sibling(struct grouper *gr, const struct group *q, const struct node *n)
{
    int value = (int)(n - gr->g->node);
    if (q->p.kind != PROGRAM_ROWS || n->op != OP_REDUCE) return false;
    if (gr->site[q->first].horizon >= gr->site[value].horizon && group_needs(gr, q, value, -1)) return false;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < state_operands(&gr->g->node[m]); i++) {
            int x = gr->g->node[m].in[i];
            if (x == n->in[REDUCE_X] || (q->flat && x >= 0 && flat_sibling(gr, n, x))) return true;
        }
    return false;
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
    int value = (int)(n - gr->g->node);
    bool merges = q->merges && !group_needs(gr, q, value, value);
    return inside > 0 || merges || is_sibling(gr, q, n) || rows_beside(gr, q, value);
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
    if (q->p.kind == PROGRAM_ROWS) {
        pair_read(&q->p, gr->g, n);
        return true;
    }
    struct source s = group_source(gr, q, n->in[ROPE_X]);
    if (s.kind != SOURCE_MEMBER) return refuse_source(gr, q, n->in[ROPE_X]);
    if (q->p.pair != PAIR_NONE) return refuse_join(gr, REASON_PAIRED_ALREADY, -1, 0, 0);
    if (q->p.segment && !pair_suits_segments(n, q->p.segment))
        return refuse_join(gr, REASON_SEGMENT_SIZE, -1, n->attr.rope.head_dim, q->p.segment);
    pair_read(&q->p, gr->g, n);
    return try_pair(gr, q, PAIR_HEADS, s.value);
}

static bool folds_row(const struct node *n) { return n->op == OP_REDUCE && !node_folds_columns(n); }

/* Have the threads that walk rows of q registers for states of the columns that they meet, those of n too? */
static bool keeps_columns(const struct grouper *gr, const struct group *q, const struct node *n)
{
    int floats = node_folds_columns(n) ? n->prim->state : 0, most = floats;
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        const struct node *other = &gr->g->node[m];
        int state = node_folds_columns(other) ? other->prim->state : 0;
        floats += state;
        most = MAX(most, state);
    }
    return most <= MOST_COLUMN_STATE && floats <= MOST_COLUMN_STATES &&
           !extent_reaches(type_columns(&q->domain), MOST_KEPT_COLUMNS + 1);
}

/* A pass over rows folds these, or their columns, and then all else is element by element; or both, where
 * there are few columns. */
static bool suits_fold(const struct grouper *gr, const struct group *q, const struct node *n)
{
    bool alone = n->op != OP_REDUCE && n->op != OP_APPEND && !op_combines_pairs(n->op);
    if (q->p.kind != PROGRAM_ROWS || alone) return true;
    if (q->short_columns && node_folds_columns(n)) return refuse_join(gr, REASON_TWO_FOLDS, q->p.root, 0, 0);
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        const struct node *other = &gr->g->node[m];
        if (short_has(q, m)) continue;
        bool elements = other->op == OP_MAP || other->op == OP_CAST || other->op == OP_ASSIGN ||
                        node_folds_columns(other);
        bool both =
            (node_folds_columns(n) && folds_row(other)) || (folds_row(n) && node_folds_columns(other));
        if (both && keeps_columns(gr, q, n)) continue;
        if (node_folds_columns(n) ? !elements : node_folds_columns(other))
            return refuse_join(gr, REASON_TWO_FOLDS, m, 0, 0);
    }
    return true;
}

static bool joins(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    enum pair_kind pair = PAIR_NONE;
    int full = -1;
    bool version = op_is_version(n->op);
    if (!group_may_join(gr, q, value) || (version && !group_may_write(gr, q, n))) return false;
    if (n->op == OP_CONV1D) return conv1d_joins(gr, q, value);
    rows_take_in(gr, q, value);
    enum joining joining = version ? segment_append(gr, q, value) : segment_join(gr, q, value);
    if (joining != JOINS_OTHERWISE) return joining == JOINED;
    if (!operands_ok(gr, q, n, &pair, &full)) return false;
    if (pair != PAIR_NONE && has_parts(gr, q)) return refuse_join(gr, REASON_PAIRED_PARTS, -1, 0, 0);
    if (pair != PAIR_NONE && !try_pair(gr, q, pair, full)) return false;
    if (op_combines_pairs(n->op) && !try_heads(gr, q, n)) return false;
    if (!group_fits(gr, q, value) || !suits_fold(gr, q, n)) return false;
    if (!version && !group_reads_in_place(gr, q, value)) return false;
    q->loads += q->p.kind == PROGRAM_ROWS ? rows_loads(gr, q, n) : state_operands(n) - 1;
    group_join(gr, q, value);
    return true;
}

/* What groups rows otherwise joins if the program walks them as one dimension. */
static bool joins_flat(struct grouper *gr, struct group *q, int value)
{
    struct trial trial = trial_begin(q);
    return flat_reader(gr, q, &gr->g->node[value]) && flat_begin(gr, q) &&
           trial_end(&trial, joins(gr, q, value));
}

static bool try_join(struct grouper *gr, struct group *q, int value)
{
    struct trial trial = trial_begin(q);
    refuse_join(gr, REASON_NONE, -1, 0, 0);
    if (trial_end(&trial, joins(gr, q, value))) return true;
    refuse_keep(gr, q, value);
    return joins_flat(gr, q, value);
}

/* What a program of rows was to compute for a value that has joined it. */
static void join_taken(struct grouper *gr, struct group *q)
{
    while (q->p.kind == PROGRAM_ROWS && q->agains) {
        int x = q->again[--q->agains];
        group_join(gr, q, x);
        enqueue_neighbours(gr, q, x);
    }
}

bool group_takes(struct grouper *gr, struct group *q, int value)
{
    struct trial trial = trial_begin(q);
    q->merges = true;
    bool good = trial_end(&trial, joins(gr, q, value));
    q->merges = false;
    while (q->agains) group_join(gr, q, q->again[--q->agains]);
    return good;
}

static void grow(struct grouper *gr, struct group *q)
{
    while (gr->queued) {
        int value = dequeue(gr);
        if (gr->site[value].role == ROLE_VIEW) {
            enqueue_readers(gr, q, value, &gr->uses);
        } else if (try_join(gr, q, value)) {
            join_taken(gr, q);
            enqueue_neighbours(gr, q, value);
        } else conv1d_rows_try(gr, q, value);
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
