/*
 * give_back.c -- what a program can compute, and saves nothing there.
 *
 * An epilogue takes in all that depends on its accumulator, a program of rows what it can (fuse.c). Some of
 * it is read by other programs of rows alone, which have in memory what it is made of, and compute it as they
 * walk that: a map of a value that is stored anyway would be one tensor more to store. Such members are given
 * back. And a statistic of rows leaves states, one for each tile, which others read: more than it saves where
 * these walk the rows anyway, or where rows are short.
 */
#include "fuse.h"
#include "plan_sizes.h"

/* How far readers are searched along a chain of maps. */
enum { MOST_CHAIN = 8 };

/* Are these elements, which node `walker` walks, the value's, not as many by chance? */
static bool are_elements(const struct grouper *gr, int value, const struct type *walked, int walker)
{
    const struct type *t = &gr->g->node[value].type;
    bool rows = !gr->opt->invariant || gr->site[value].rows == gr->site[walker].rows;
    return rows && t->rank == walked->rank && extents_all_equal(t->dim, walked->dim, t->rank);
}

static bool is_elementwise(const struct node *n)
{
    return n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE;
}

/* ---- Statistics of rows ---- */

/* May a program that walks the elements of x compute the value? */
static bool is_free_tile(const struct grouper *gr, int value, int x)
{
    const struct node *n = &gr->g->node[value];
    bool map = n->op == OP_MAP || n->op == OP_CAST;
    return map && gr->site[value].role == ROLE_FREE && are_elements(gr, value, &gr->g->node[x].type, x);
}

/* Does the value come of x by such maps alone? */
static bool comes_of(const struct grouper *gr, int value, int x, int chain)
{
    const struct node *n = &gr->g->node[value];
    if (value == x) return true;
    if (!chain || value < x || !is_free_tile(gr, value, x)) return false;
    for (int i = 0; i < n->nin; i++)
        if (comes_of(gr, n->in[i], x, chain - 1)) return true;
    return false;
}

/* The member of x's shape that x is a map of; -1: none. */
static int made_of(const struct grouper *gr, const struct group *q, int x)
{
    const struct node *n = &gr->g->node[x];
    for (int i = 0; i < n->nin && x != q->p.root; i++) {
        bool here = n->in[i] >= 0 && group_holds(gr, q, n->in[i]);
        if (here && are_elements(gr, n->in[i], &n->type, x)) return n->in[i];
    }
    return -1;
}

/* Does a kernel store or walk it in any case: is it, or what such maps make of it, an output, an operand of a
 * kernel, or folded? */
static bool is_stored_anyway(const struct grouper *gr, int value, int chain)
{
    const struct uses *u = &gr->uses;
    if (gr->g->node[value].output >= 0) return true;
    for (int i = u->at[value]; i < u->at[value + 1] && chain; i++) {
        int n = u->use[i].node;
        bool map = op_is_view(gr->g->node[n].op) || is_free_tile(gr, n, value);
        bool folds = gr->g->node[n].op == OP_REDUCE && gr->site[n].role == ROLE_FREE;
        if (map ? is_stored_anyway(gr, n, chain - 1) : folds || !is_elementwise(&gr->g->node[n])) return true;
    }
    return false;
}

/* Does the value walk x, or what x is a map of, where no epilogue does? */
static bool walks(const struct grouper *gr, const struct group *q, int value, int x)
{
    bool free = is_free_tile(gr, value, x) && is_stored_anyway(gr, value, MOST_CHAIN);
    while (free && x >= 0 && !comes_of(gr, value, x, MOST_CHAIN)) x = made_of(gr, q, x);
    return free && x >= 0;
}

/* Do all that want a statistic of x's rows, perhaps through maps of it, walk x? Then they fold it, too. */
static bool walkers_fold(const struct grouper *gr, const struct group *q, int x, int statistic, int chain)
{
    const struct uses *u = &gr->uses;
    if (gr->g->node[statistic].output >= 0 || !chain) return false;
    for (int i = u->at[statistic]; i < u->at[statistic + 1]; i++) {
        int n = u->use[i].node;
        bool row = extent_is_one(type_columns(&gr->g->node[n].type)) &&
                   extent_reaches(type_columns(&gr->g->node[x].type), 2);
        bool again = row && gr->site[n].role == ROLE_FREE && gr->g->node[n].op == OP_MAP;
        if (again ? !walkers_fold(gr, q, x, n, chain - 1) : !walks(gr, q, n, x)) return false;
    }
    return u->at[statistic + 1] > u->at[statistic];
}

/* Is it read outside the program, or stored, for others than members that leave? */
static bool is_stored(const struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    if (group_stores(gr, value)) return true;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int n = u->use[i].node;
        if (gr->site[n].role == ROLE_VIEW ? is_stored(gr, q, n) : !group_holds(gr, q, n)) return true;
    }
    return false;
}

/* How many columns x should have at least to leave states of its rows: see plan_sizes.h. */
static int64_t least_folded(const struct grouper *gr, const struct group *q, int x)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[x]; i < u->at[x + 1]; i++)
        if (op_is_product(gr->g->node[u->use[i].node].op)) return LEAST_FOLDED;
    return is_stored(gr, q, x) ? LEAST_FOLDED_KEPT : LEAST_FOLDED;
}

static bool states_save(const struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    int64_t columns = type_columns(&gr->g->node[n->in[REDUCE_X]].type),
            least = least_folded(gr, q, n->in[REDUCE_X]);
    if (!extent_reaches(columns, least)) return refuse_join(gr, REASON_SHORT_ROWS, -1, columns, least);
    return !walkers_fold(gr, q, n->in[REDUCE_X], value, MOST_CHAIN) ||
           refuse_join(gr, REASON_WALKED_ANYWAY, -1, 0, 0);
}

/* ---- Members that programs of rows compute for nothing ---- */

/* The member that an operand is, perhaps some columns of it; -1: it comes from elsewhere. */
static int member_of(const struct grouper *gr, const struct group *q, int operand)
{
    struct spot p;
    int tile = group_tile(gr, q, operand);
    if (group_holds(gr, q, tile)) return tile;
    while (op_is_view(gr->g->node[operand].op)) operand = gr->g->node[operand].in[VIEW_OF];
    if (group_holds(gr, q, operand)) return operand;
    return spot_of(gr, q, operand, &p) ? p.member : -1;
}

/* Do programs of rows alone read the value, or members that leave? */
static bool is_read_by_rows(const struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int n = u->use[i].node;
        bool leaves = group_holds(gr, q, n) && gr->site[n].leaves;
        bool free = gr->site[n].role == ROLE_FREE && is_elementwise(&gr->g->node[n]);
        if (gr->site[n].role == ROLE_VIEW ? !is_read_by_rows(gr, q, n) : !leaves && !free) return false;
    }
    return u->at[value + 1] > u->at[value] && gr->g->node[value].output < 0;
}

/* Is there a reader in whose program the value can be computed, as that walks its elements? */
static bool has_walker(const struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int n = u->use[i].node;
        bool leaves = group_holds(gr, q, n) && gr->site[n].leaves;
        bool free = gr->site[n].role == ROLE_FREE && is_elementwise(&gr->g->node[n]);
        if ((leaves || free) && are_elements(gr, value, domain_walked(gr->g, &gr->g->node[n]), n))
            return true;
    }
    return false;
}

/* Is it an outer product, or another map of a value of rows and one of columns, for maps elsewhere? These
 * compute it again, from less than a tile. */
static bool is_outer(const struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    const struct uses *u = &gr->uses;
    bool outer = n->op == OP_MAP && extent_reaches(type_columns(&n->type), 2) && group_has_rows(gr, value);
    for (int i = 0; i < n->nin && outer; i++)
        outer = extent_is_one(type_columns(&gr->g->node[n->in[i]].type)) || !group_has_rows(gr, n->in[i]);
    for (int i = u->at[value]; i < u->at[value + 1] && outer; i++) {
        int reader = u->use[i].node;
        outer = gr->g->node[reader].op == OP_MAP && !group_holds(gr, q, reader);
    }
    return outer;
}

static bool is_wanted_elsewhere(const struct grouper *gr, const struct group *q, int value)
{
    return (is_read_by_rows(gr, q, value) && has_walker(gr, q, value)) || is_outer(gr, q, value);
}

/* Does a member write over a state that the value reads? Who computed the value later would wait for the
 * program, which waits for it. */
static bool is_ahead_of_write(const struct grouper *gr, const struct group *q, int value)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        const struct node *n = &gr->g->node[m];
        for (int i = state_operands(n); i < n->nin; i++)
            if (n->in[i] == value) return true;
    }
    return false;
}

static bool may_leave(const struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    bool computes = is_elementwise(n) && !gr->site[value].partial && value != q->p.root;
    return computes && !group_stores(gr, value) && !is_ahead_of_write(gr, q, value) &&
           is_wanted_elsewhere(gr, q, value);
}

/* Is all that the member is made of in memory, or leaves too, and in no more bytes? */
static bool can_leave(const struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin && !is_outer(gr, q, value); i++) {
        int z = n->in[i] < 0 ? -1 : member_of(gr, q, n->in[i]);
        if (z < 0 || gr->site[z].leaves) continue;
        bool wider = dtype_bits(gr->g->node[z].type.dtype) > dtype_bits(n->type.dtype);
        if (wider || gr->site[z].partial || !is_stored(gr, q, z)) return false;
    }
    return true;
}

static bool stays(const struct grouper *gr, const struct group *q, int value)
{
    return gr->site[value].leaves && !(is_wanted_elsewhere(gr, q, value) && can_leave(gr, q, value));
}

/* Without members in them there are no ranges and segments. */
static void close_ranges(const struct grouper *gr, struct group *q)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if (gr->site[m].range || gr->site[m].segmented) return;
    if (q->conv1d_rows && q->conv1d_rows->range) return;
    q->p.ranges = 0;
    q->p.segment = 0;
}

/* Segments that nobody folds or turns, as states of whole ranges were there for, need not be wide: so tiles
 * have more widths. Ranges stay whole, as wider segments are so many of these. */
static void narrow_segments(const struct grouper *gr, struct group *q)
{
    bool wide = extent_reaches(q->p.segment, SEGMENT_SPAN + 1);
    for (int m = q->first; m >= 0 && wide; m = gr->site[m].next)
        wide = !gr->site[m].segmented && (gr->g->node[m].op != OP_REDUCE || gr->site[m].partial);
    if (wide && q->p.pair == PAIR_NONE) q->p.segment = SEGMENT_SPAN;
}

/* Once no member reads a lane, the columns are no longer pairs of lanes. */
static void part_lanes(const struct grouper *gr, struct group *q)
{
    const struct node *node = gr->g->node;
    if (!program_is_gated(&q->p)) return;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < node[m].nin && m != q->p.root; i++)
            if (node[m].in[i] >= 0 && group_source(gr, q, node[m].in[i]).kind == SOURCE_LANE) return;
    q->p.pair = PAIR_NONE;
    q->paired = -1;
}

void group_close(const struct grouper *gr, struct group *q)
{
    close_ranges(gr, q);
    narrow_segments(gr, q);
    part_lanes(gr, q);
}

/* Members come before their readers, so the last ones are asked first whether they leave. */
static void mark_leaving(struct grouper *gr, struct group *q)
{
    for (int more = q->members; more > 0; more--)
        for (int m = q->first; m >= 0; m = gr->site[m].next)
            gr->site[m].leaves = gr->site[m].leaves || may_leave(gr, q, m);
    for (bool again = true; again;) {
        again = false;
        for (int m = q->first; m >= 0; m = gr->site[m].next)
            if (stays(gr, q, m)) gr->site[m].leaves = false, again = true;
    }
}

static int leave(struct grouper *gr, struct group *q)
{
    int members = q->members;
    for (int m = q->first, next; m >= 0; m = next) {
        next = gr->site[m].next;
        if (gr->site[m].leaves) group_leave(gr, q, m);
    }
    return members - q->members;
}

/* Nobody in the program reads what it has in states. */
static int leave_states(struct grouper *gr, struct group *q)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        bool rows = gr->site[m].partial && !group_has_column_parts(gr, m);
        gr->site[m].leaves = rows && !states_save(gr, q, m);
        if (gr->site[m].leaves) refuse_keep(gr, q, m);
    }
    return leave(gr, q);
}

static int leave_maps(struct grouper *gr, struct group *q)
{
    mark_leaving(gr, q);
    for (int m = q->first; m >= 0 && gr->opt->reasons; m = gr->site[m].next)
        if (gr->site[m].leaves)
            refuse_note(gr, q, m, is_outer(gr, q, m) ? REASON_OUTER : REASON_READ_BY_ROWS, -1, 0, 0);
    return leave(gr, q);
}

void give_back(struct grouper *gr, struct group *q)
{
    bool product = q->p.kind == PROGRAM_GEMM;
    if (!gr->opt->fuse || (product ? leave_states(gr, q) : 0) + leave_maps(gr, q) == 0) return;
    group_close(gr, q);
    group_find_horizons(gr);
}
