/*
 * may_join.c -- where a program gets the operands of a value from, and whether its kind, its number of values
 * and its shape let it have the value. What else it takes to join is asked in fuse.c.
 */
#include "fuse.h"

/* Bounds of one program, which has room for all that its members bring: parameters of a kernel are 4 kB. A
 * pass over rows has the registers that a product's tile would take. */
enum { MOST_MEMBERS = 32, MOST_LOADS = 16, MOST_PARTNER = 8 };

/* ---- Where operands come from ---- */

/* Has q, of which it is a member, the value as it is read: no parts of it, and of a state's versions one that
 * a program of rows has in registers, each element in the thread that stores it? */
static bool has_whole(const struct grouper *gr, const struct group *q, int member)
{
    bool assigned = gr->g->node[member].op == OP_ASSIGN && q->p.kind == PROGRAM_ROWS;
    return !gr->site[member].partial && (assigned || !group_writes_state(gr, member));
}

/* Is slice s half of the columns of the value it cuts, as gate and up lie? One column would be a number of
 * each row, which others repeat. */
static bool is_lane(const graph *g, const struct node *s, struct source *out)
{
    const struct type *t = &g->node[s->in[SLICE_X]].type;
    int64_t n = type_columns(t);
    if (s->op != OP_SLICE || s->attr.slice.axis != t->rank - 1 || !extent_reaches(n, 4) ||
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
        s.kind = has_whole(gr, q, tile) ? SOURCE_MEMBER : SOURCE_NONE;
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

/* ---- What may join ---- */

/* Is x what q loads, or maps of this and of values of the row, *maps at most? Then an element that needs
 * another one of its row computes that, too. */
static bool is_had_elsewhere(const struct grouper *gr, const struct group *q, int x, int *maps)
{
    int base = x;
    while (op_is_view(gr->g->node[base].op)) base = gr->g->node[base].in[VIEW_OF];
    enum role role = gr->site[base].role;
    struct source s = group_source(gr, q, x);
    bool loads = s.kind == SOURCE_OUTSIDE && role != ROLE_INLINE && role != ROLE_NUMBER;
    if (loads || s.kind == SOURCE_NONE || s.kind == SOURCE_LANE) return loads;
    const struct node *n = &gr->g->node[s.kind == SOURCE_OUTSIDE ? base : s.value];
    bool map = (n->op == OP_MAP || n->op == OP_CAST) && (*maps)-- > 0;
    for (int i = 0; map && i < n->nin; i++) {
        float ignored;
        bool row = extent_is_one(type_columns(&gr->g->node[n->in[i]].type));
        map = row || group_number(gr, n->in[i], &ignored) || is_had_elsewhere(gr, q, n->in[i], maps);
    }
    return map;
}

/* May n combine pairs in q, a program of rows, and does it combine no others? */
static bool rows_may_pair(const struct grouper *gr, const struct group *q, const struct node *n)
{
    int maps = MOST_PARTNER;
    bool had = gr->opt->fuse && !q->p.pairing.op && is_had_elsewhere(gr, q, n->in[ROPE_X], &maps);
    return had || refuse_join(gr, REASON_PAIRS_IN_ROWS, -1, 0, 0);
}

bool group_may_join(struct grouper *gr, struct group *q, int value)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[value];
    const struct node *root = &g->node[q->p.root];
    bool token = n->op == OP_CONV1D && q->p.kind == PROGRAM_GEMM;
    bool step = token || n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE || op_is_version(n->op);
    if (gr->site[value].role != ROLE_FREE || gr->site[value].is_const != gr->site[q->p.root].is_const)
        return refuse_join(gr, REASON_PREPARED, -1, 0, 0);
    if (!gr->opt->fuse && n->origin != root->origin) return refuse_join(gr, REASON_NO_FUSION, -1, 0, 0);
    if (!group_shares_rows(gr, q, value)) return refuse_join(gr, REASON_OTHER_ROWS, -1, 0, 0);
    bool rows = q->p.kind == PROGRAM_ROWS;
    int members = q->members + q->agains, most = rows ? MOST_PASS : MOST_MEMBERS;
    int loads = q->loads + state_operands(n), most_loads = rows ? MOST_PASS_LOADS : MOST_LOADS;
    if (members >= most) return refuse_join(gr, REASON_MOST_VALUES, -1, members, most);
    if (loads > most_loads) return refuse_join(gr, REASON_MOST_OPERANDS, -1, loads, most_loads);
    if (q->stores + group_stores(gr, value) > MOST_STORES)
        return refuse_join(gr, REASON_MOST_RESULTS, -1, q->stores + group_stores(gr, value), MOST_STORES);
    if (q->flat && n->op != OP_MAP && n->op != OP_CAST && n->op != OP_REDUCE)
        return refuse_join(gr, REASON_REGROUPED, -1, 0, 0);
    if (op_combines_pairs(n->op)) return q->p.kind == PROGRAM_GEMM || rows_may_pair(gr, q, n);
    return step || refuse_join(gr, n->op == OP_EMBEDDING ? REASON_LOOKS_UP : REASON_NO_EPILOGUE, -1, 0, 0);
}

/* The matrices of the value are those of the product, or of the rows that are one dimension. */
static bool has_matrices(const struct group *q, const struct type *t)
{
    if (q->flat) return extents_equal(t->dim[t->rank - 2], q->domain.dim[0]);
    return q->p.kind != PROGRAM_GEMM || extents_equal(t->dim[t->rank - 2], q->p.dim[1]);
}

/* Can the tile hold the value, and can it be stored from there? A statistic of columns is stored by the
 * program that finishes it. */
bool group_fits(const struct grouper *gr, const struct group *q, int value)
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
