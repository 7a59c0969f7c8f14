/*
 * segments.c -- values of some columns of a product, and statistics of segments of them: QK-norm.
 *
 *     q = x[:, a:b];   r = reduce(reshape(q, [.., segments, columns]));   reshape(q) * r ...
 *
 * A REDUCE of segments opens a range of columns in its product's program, and so does a map of a slice, as a
 * bias is. What computes with it joins in that range: maps, casts, pairs. Ranges are disjoint and consist of
 * whole spans, so that a tile's chunk is in one of them. Of a range wider than a segment tiles leave states
 * of their rows, as of all columns. What is left of the product and read by others is stored by itself, as
 * values of ranges, too: then nobody needs the product.
 */
#include "fuse.h"

enum { MOST_SEGMENT = 256 };

/* ---- Places ---- */

static bool through_reshape(const graph *g, const struct node *n, struct spot *p)
{
    const struct type *from = &g->node[n->in[RESHAPE_X]].type, *to = &n->type;
    int64_t inner = type_columns(to), outer = to->rank > 1 ? to->dim[to->rank - 2] : 1;
    if (to->rank < 1 || from->rank < 1) return false;
    if (p->segmented) {
        int64_t segments = from->dim[from->rank - 2], each = type_columns(from);
        bool regrouped = to->rank > 1 && extents_equal(outer, segments) && extents_equal(inner, each);
        if (!regrouped && !extents_equal(inner, segments * each)) return false;
        p->segmented = regrouped;
        return regrouped || extent_reaches(each, 2);
    }
    if (extents_equal(inner, p->columns)) return true;
    p->segmented = to->rank > 1 && extents_equal(inner * outer, p->columns);
    return p->segmented;
}

bool spot_of(const struct grouper *gr, const struct group *q, int value, struct spot *out)
{
    const struct node *n = &gr->g->node[value];
    *out = (struct spot){.member = -1};
    if (q->p.kind != PROGRAM_GEMM || program_is_gated(&q->p)) return false;
    if (group_writes_state(gr, value)) return false;
    if (group_holds(gr, q, value)) {
        const struct site *s = &gr->site[value];
        struct column_range all = {0, q->p.dim[2]}, r = s->range ? q->p.range[s->range - 1] : all;
        *out = (struct spot){value, r.first, r.end - r.first, s->segmented, s->range || s->segmented};
        return !s->partial;
    }
    if ((n->op != OP_RESHAPE && n->op != OP_SLICE) || !spot_of(gr, q, n->in[VIEW_OF], out)) return false;
    if (n->op == OP_RESHAPE) return through_reshape(gr->g, n, out);
    if (out->segmented || n->attr.slice.axis != n->type.rank - 1 || n->attr.slice.step > 1) return false;
    out->first += n->attr.slice.start;
    out->columns = type_columns(&n->type);
    return true;
}

/* ---- Ranges ---- */

int segment_range(struct program *p, int64_t first, int64_t columns)
{
    if (extents_equal(first, 0) && extents_equal(columns, p->dim[2])) return p->ranges ? -1 : 0;
    for (int i = 0; i < p->ranges; i++) {
        const struct column_range *r = &p->range[i];
        if (extents_equal(r->first, first) && extents_equal(r->end, first + columns)) return i + 1;
        if (!extent_reaches(first, r->end) && !extent_reaches(r->first, first + columns)) return -1;
    }
    if (p->ranges == MOST_RANGES) return -1;
    p->range[p->ranges] = (struct column_range){first, first + columns};
    return ++p->ranges;
}

bool segment_is_whole(const struct program *p, int64_t first, int64_t columns)
{
    int64_t span = program_span(p);
    return extent_reaches(columns, 1) && extent_is_multiple(first, span) &&
           extent_is_multiple(columns, span) && extent_is_multiple(p->dim[2], span);
}

/* ---- Joining ---- */

/* Has operand i of n a number for each row and column? A vector of each sample has fewer rows. */
static bool is_tile(const struct grouper *gr, const struct node *n, int i)
{
    int value = n->in[i], reader = (int)(n - gr->g->node);
    struct type t = domain_operand_type(gr->g, n, i);
    return extent_reaches(type_columns(&t), 2) && group_has_rows(gr, value) &&
           !group_repeats(gr, value, reader);
}

/* Will the epilogue compute operand i again, from values of rows and columns? Maps of them are taken in, at
 * most `left` here: each is counted by every way to it, of which there may be more than can be walked. */
static bool is_outer(struct grouper *gr, struct group *q, const struct node *n, int i, int *left)
{
    int x = group_tile(gr, q, n->in[i]);
    const struct node *map = &gr->g->node[x];
    bool free = gr->site[x].role == ROLE_FREE && !gr->site[x].is_const;
    if (!free || (map->op != OP_MAP && map->op != OP_CAST) || (*left)-- <= 0) return false;
    for (int j = 0; j < map->nin; j++) {
        float number;
        if (group_number(gr, map->in[j], &number)) continue;
        bool narrow =
            extent_is_one(type_columns(&gr->g->node[map->in[j]].type)) || group_repeats(gr, map->in[j], x);
        if (!narrow ? !is_outer(gr, q, map, j, left) : !group_can_load(gr, q, map, j)) return false;
    }
    return true;
}

/* Are the elements of a tile loaded to compute the value? They would be loaded once more to be folded. */
static bool loads_tiles(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    struct spot p;
    if (!group_holds(gr, q, value)) return spot_of(gr, q, value, &p) ? loads_tiles(gr, q, p.member) : false;
    for (int i = 0; i < n->nin && value != q->p.root; i++) {
        if (n->in[i] < 0) continue;
        bool member = spot_of(gr, q, n->in[i], &p);
        int left = q->agains < MOST_AGAIN / 2 ? MOST_AGAIN : 0;
        if (member ? loads_tiles(gr, q, p.member) : is_tile(gr, n, i) && !is_outer(gr, q, n, i, &left))
            return true;
    }
    return false;
}

/* A vector of columns, or one value for each row. */
static bool outside_fits(struct grouper *gr, struct group *q, const struct node *n, int i)
{
    struct type t = domain_operand_type(gr->g, n, i);
    const struct view *v = &gr->view[n->in[i]];
    int64_t out[CODA_MAX_RANK];
    if (v->base < 0 || !domain_strides(q, &t, v->stride, domain_walked(gr->g, n), out)) return false;
    bool batches = !extents_equal(out[0], 0), rows = batches || !extents_equal(out[1], 0);
    bool columns = !extents_equal(out[2], 0) || !extents_equal(out[3], 0);
    bool samples = batches && extent_is_one(q->p.dim[0]);
    return !(rows && columns) && !samples && !group_depends(gr, n->in[i], q);
}

/* Refuses an operand beside part of the columns. */
static bool refuse_part(struct grouper *gr, const struct group *q, int value)
{
    if (group_depends(gr, value, q)) return refuse_source(gr, q, value);
    return refuse_join(gr, REASON_PART_OPERAND, value, 0, 0);
}

/* The place of the operands that are members, all of one; false if there is none, or they differ. */
static bool common_spot(const struct grouper *gr, const struct group *q, const struct node *n,
                        struct spot *out)
{
    bool found = false, narrow = false;
    *out = (struct spot){.member = -1};
    for (int i = 0; i < n->nin; i++) {
        struct spot p;
        float number;
        if (n->in[i] < 0 || pair_loads(n, i) || group_number(gr, n->in[i], &number)) continue;
        if (!spot_of(gr, q, n->in[i], &p)) continue;
        bool same = found && p.segmented == out->segmented && extents_equal(p.first, out->first) &&
                    extents_equal(p.columns, out->columns);
        if (found && !same) return false;
        *out = p;
        found = true;
        narrow = narrow || p.narrow;
    }
    out->narrow = narrow;
    return found;
}

static bool operands_fit(struct grouper *gr, struct group *q, const struct node *n)
{
    bool statistic = extent_is_one(type_columns(&n->type));
    for (int i = 0; i < n->nin; i++) {
        struct spot p;
        float number;
        if (n->in[i] < 0 || group_number(gr, n->in[i], &number)) continue;
        if (pair_loads(n, i) && group_depends(gr, n->in[i], q)) return refuse_source(gr, q, n->in[i]);
        if (pair_loads(n, i) ? i == ROPE_FREQUENCIES : spot_of(gr, q, n->in[i], &p)) continue;
        if (!statistic && n->op == OP_MAP && group_scalar(gr, n->in[i]) >= 0) continue;
        if (statistic || !outside_fits(gr, q, n, i)) return refuse_part(gr, q, n->in[i]);
    }
    return true;
}

/* Does the type have the columns of the place, or one for each of its segments? */
static bool type_fits(const struct group *q, const struct type *t, const struct spot *p)
{
    int64_t columns = type_columns(t), segment = q->p.segment;
    if (!p->segmented) /* or a segment, and its statistic */
        return extents_equal(columns, p->columns) ||
               (extents_equal(p->columns, segment) && extent_is_one(columns));
    if (t->rank < 2 || !extents_equal(t->dim[t->rank - 2] * segment, p->columns)) return false;
    return extents_equal(columns, segment) || extent_is_one(columns);
}

/* Does the group fold columns? The states that it leaves are of the columns of whole tiles. */
static bool folds_columns(const struct grouper *gr, const struct group *q)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if (node_folds_columns(&gr->g->node[m])) return true;
    return false;
}

/* May so many columns be a segment? */
static bool is_segment(int64_t columns)
{
    return extent_reaches(columns, 1) && extent_is_multiple(columns, 16) &&
           !extent_reaches(columns, MOST_SEGMENT + 1) &&
           (extent_is_multiple(SEGMENT_SPAN, columns) || extent_is_multiple(columns, SEGMENT_SPAN));
}

static bool reduce_fits(struct grouper *gr, struct group *q, const struct node *n, const struct spot *p)
{
    int64_t segment = type_columns(&gr->g->node[n->in[REDUCE_X]].type);
    bool spans = is_segment(segment);
    int64_t span = pair_span(&q->p);
    bool pairs = q->p.pair == PAIR_NONE || extents_equal(span, 0) || extents_equal(span, segment);
    bool folds = (p->segmented || extents_equal(segment, p->columns)) && !p->narrow && n->nin == 1;
    if (folds_columns(gr, q) || n->prim->state > PRIM_MAX_COLUMN_STATE || !folds)
        return refuse_join(gr, REASON_SEGMENT_FOLD, -1, 0, 0);
    if (!spans) return refuse_join(gr, REASON_SEGMENT_WIDTH, -1, segment, 0);
    if (!pairs) return refuse_join(gr, REASON_SEGMENT_SIZE, -1, segment, span);
    return !loads_tiles(gr, q, p->member) || refuse_join(gr, REASON_SEGMENT_LOADS, -1, 0, 0);
}

/* All pairs of a program are combined alike, by one turn. */
static bool pair_fits(struct grouper *gr, struct group *q, const struct node *n, const struct spot *p)
{
    if (p->segmented || !pair_suits_segments(n, q->p.segment) || !pair_takes_all(gr->g, n))
        return refuse_join(gr, REASON_SEGMENT_SIZE, -1, n->attr.rope.head_dim, q->p.segment);
    if (q->turn >= 0 && pairs_alike(&gr->g->node[q->turn], n)) return true;
    if (q->turn >= 0 || q->p.pair != PAIR_NONE) return refuse_join(gr, REASON_PAIRED_ALREADY, -1, 0, 0);
    pair_read(&q->p, gr->g, n);
    q->p.pairing.heads = q->p.dim[2] / q->p.pairing.head_dim;
    q->p.pair = PAIR_HEADS;
    return program_pairs_meet(&q->p, &gr->opt->target) || refuse_join(gr, REASON_PAIRS_APART, -1, 0, 0);
}

/* May it be stored where a tensor of its own would lie? A reshape may have taken its rows apart. */
static bool can_be_dense(const struct group *q, const struct type *t)
{
    int64_t dense[CODA_MAX_RANK], out[CODA_MAX_RANK];
    dense_strides(t, dense);
    return domain_strides(q, t, dense, t, out);
}

static bool fits(struct grouper *gr, struct group *q, int value, const struct spot *p)
{
    const struct node *n = &gr->g->node[value];
    if (!can_be_dense(q, &n->type)) return refuse_join(gr, REASON_SHAPE, q->p.root, 0, 0);
    if (n->op == OP_REDUCE && !reduce_fits(gr, q, n, p)) return false;
    if (!segment_is_whole(&q->p, p->first, p->columns))
        return refuse_join(gr, REASON_PART_BOUNDS, -1, p->first, p->columns);
    if (!type_fits(q, &n->type, p)) return refuse_join(gr, REASON_SHAPE, q->p.root, 0, 0);
    if (!operands_fit(gr, q, n)) return false;
    if (!group_can_store(gr, q, value)) return refuse_join(gr, REASON_STORED_PLACE, -1, 0, 0);
    return !op_combines_pairs(n->op) || pair_fits(gr, q, n, p);
}

/* ---- Ranges without statistics ---- */

/* The segments that a reader of `value`, or of what is made of it in a step or two, will ask for; 0: none. */
static int64_t segment_wanted(const struct grouper *gr, int value, int steps)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        const struct node *n = &gr->g->node[reader];
        bool folds = n->op == OP_REDUCE && !n->attr.reduce.columns;
        int64_t columns = op_combines_pairs(n->op) ? n->attr.rope.head_dim
                          : folds                  ? type_columns(&gr->g->node[value].type)
                                                   : 0;
        if (is_segment(columns)) return columns;
        bool passes = n->op == OP_MAP || n->op == OP_CAST || op_is_view(n->op);
        int64_t wanted = passes && steps ? segment_wanted(gr, reader, steps - 1) : 0;
        if (wanted) return wanted;
    }
    return 0;
}

/* May a slice of a member open a range? Others that are cut of the member are values of ranges, too, and
 * their segments are all alike. */
static bool opens_range(const struct grouper *gr, const struct group *q, const struct spot *p)
{
    bool part = !p->narrow && !p->segmented && !extent_reaches(p->columns, q->p.dim[2]);
    bool pairs = q->p.pair != PAIR_NONE && q->turn < 0; /* of all columns */
    bool plain = !pairs && !folds_columns(gr, q) && gr->g->node[p->member].output < 0;
    if (!part || !plain || !gr->opt->fuse || halves_meet(gr, q, p->member)) return false;
    const struct uses *u = &gr->uses;
    for (int i = u->at[p->member]; i < u->at[p->member + 1]; i++) {
        const struct node *s = &gr->g->node[u->use[i].node];
        if (!is_column_slice(s)) return false;
        if (!extent_is_multiple(s->attr.slice.start, SEGMENT_SPAN)) return false;
        if (!extent_is_multiple(type_columns(&s->type), SEGMENT_SPAN)) return false;
    }
    return true;
}

/* Does the map, or turn of pairs, do so? */
static bool map_opens_range(const struct grouper *gr, const struct group *q, const struct node *n,
                            const struct spot *p)
{
    bool kind = n->op == OP_MAP || n->op == OP_CAST || op_combines_pairs(n->op);
    return kind && opens_range(gr, q, p);
}

static int64_t segment_to_open(const struct grouper *gr, const struct spot *p)
{
    enum { AHEAD = 4 };
    int64_t wanted = segment_wanted(gr, p->member, AHEAD);
    return wanted ? wanted : SEGMENT_SPAN;
}

/* Does wgmma multiply tiles of SEGMENT_SPAN columns, as it does weights of 8 bits and packed ones? Streams
 * take fewer rows, of one batch. mma.sync, which has wider tiles, takes ten times as long for 2,048 rows.
 * With equal bits a stream takes all rows, and no statistics: else mma.sync would take few, wgmma others. */
static bool has_narrow_tiles(const struct grouper *gr, const struct group *q)
{
    return program_has_narrow_b(&q->p) && dtype_is_half(q->p.a.dtype) &&
           target_has(&gr->opt->target, TARGET_PDL | TARGET_TMA | TARGET_WGMMA) &&
           (q->p.invariant || extent_reaches(q->p.dim[1], STREAM_ROWS + 1) || !extent_is_one(q->p.dim[0]));
}

/* ---- Statistics of whole ranges ---- */

/* Does n fold each row of a range? A tile leaves a state of the columns that it has of these, an empty one if
 * it has none. Of segments the tile has all columns: reduce_fits(). */
static bool leaves_states(const struct grouper *gr, const struct group *q, const struct node *n,
                          const struct spot *p)
{
    bool folds = n->op == OP_REDUCE && !n->attr.reduce.columns && n->nin == 1;
    bool part = !p->segmented && !extent_reaches(p->columns, q->p.dim[2]);
    bool all = folds && extents_equal(type_columns(&gr->g->node[n->in[REDUCE_X]].type), p->columns);
    bool wide = extent_reaches(p->columns, MOST_SEGMENT + 1);
    return all && part && wide && n->prim->state <= PRIM_MAX_COLUMN_STATE &&
           (p->narrow || opens_range(gr, q, p));
}

/* The range is there, or may be opened, and the statistic has the product's rows. */
static bool states_fit(const struct grouper *gr, const struct group *q, int value, const struct spot *p)
{
    const struct node *n = &gr->g->node[value];
    if (!can_be_dense(q, &n->type)) return refuse_join(gr, REASON_SHAPE, q->p.root, 0, 0);
    if (!segment_is_whole(&q->p, p->first, p->columns))
        return refuse_join(gr, REASON_PART_BOUNDS, -1, p->first, p->columns);
    return group_has_room(gr, q, n->prim->state);
}

enum joining segment_join(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    struct spot p;
    int64_t segment = q->p.segment;
    if (q->p.kind != PROGRAM_GEMM || program_is_gated(&q->p) || extents_equal(q->p.dim[2], 0))
        return JOINS_OTHERWISE;
    if (!common_spot(gr, q, n, &p)) return JOINS_OTHERWISE;
    bool one = !p.segmented && !extent_reaches(p.columns, q->p.dim[2]) && /* no half: a lane */
               !extents_equal(2 * p.columns, q->p.dim[2]);
    bool folds = n->op == OP_REDUCE && !n->attr.reduce.columns;
    bool opens = folds && (p.segmented || (one && reduce_fits(gr, q, n, &p)));
    bool states = !opens && leaves_states(gr, q, n, &p);
    bool begins = !opens && (states ? !p.narrow : map_opens_range(gr, q, n, &p));
    if (!opens && !begins && !states && (!p.narrow || n->op == OP_REDUCE)) return JOINS_OTHERWISE;
    int64_t wanted = opens ? type_columns(&gr->g->node[n->in[REDUCE_X]].type) : segment;
    if (begins && !segment) wanted = segment_to_open(gr, &p);
    if (segment && !extents_equal(wanted, segment)) {
        refuse_join(gr, REASON_SEGMENT_SIZE, -1, wanted, segment);
        return REFUSED;
    }
    bool wide = extent_reaches(wanted, SEGMENT_SPAN + 1);
    if ((opens ? wide || q->p.invariant : wide && !segment) && has_narrow_tiles(gr, q)) {
        enum reason_kind why = q->p.invariant ? REASON_SEGMENT_ALONE : REASON_SEGMENT_TILE;
        if (opens) refuse_join(gr, why, -1, wanted, SEGMENT_SPAN);
        if (opens) return REFUSED;
        wanted = SEGMENT_SPAN;
    }
    q->p.segment = wanted;
    if (!wanted) refuse_join(gr, REASON_PART_BOUNDS, -1, p.first, p.columns);
    bool good = wanted && (states ? states_fit(gr, q, value, &p) : fits(gr, q, value, &p));
    int range = good ? segment_range(&q->p, p.first, p.columns) : -1;
    if (range < 0) {
        if (good) refuse_join(gr, REASON_PART_OVERLAP, -1, p.first, p.columns);
        return REFUSED;
    }
    if (op_combines_pairs(n->op) && q->turn < 0) q->turn = value;
    group_join(gr, q, value);
    gr->site[value].range = range;
    gr->site[value].segmented = p.segmented;
    gr->site[value].partial = states;
    q->loads += n->nin - 1;
    return JOINED;
}

/* ---- States ---- */

/* Appends rows of a range, whose statistics they may need, or some columns of a member that has all. */
enum joining segment_append(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    struct site *s = &gr->site[value];
    struct spot p;
    if (n->op != OP_APPEND || !spot_of(gr, q, n->in[APPEND_ROWS], &p)) return JOINS_OTHERWISE;
    bool whole = extents_equal(p.first, 0) && extents_equal(p.columns, q->p.dim[2]);
    bool even = extent_is_multiple(p.first, 2) && extent_is_multiple(p.columns, 2);
    int range = gr->site[p.member].range;
    refuse_join(gr, REASON_PART_BOUNDS, -1, p.first, p.columns);
    if (p.segmented || extents_equal(p.columns, 0)) return REFUSED;
    if (!extents_equal(type_columns(&gr->g->node[n->in[APPEND_ROWS]].type), p.columns)) return REFUSED;
    if (range) {
        const struct column_range *r = &q->p.range[range - 1];
        if (!extents_equal(r->first, p.first) || !extents_equal(r->end, p.first + p.columns)) return REFUSED;
    } else if (!whole && (q->p.segment || !even)) return REFUSED;
    refuse_join(gr, REASON_SHAPE, q->p.root, 0, 0);
    if (!domain_rows_match(q, &gr->g->node[n->in[APPEND_ROWS]].type)) return REFUSED;
    group_join(gr, q, value);
    s->range = range;
    if (!range && !whole) s->store_columns = (struct column_range){p.first, p.first + p.columns};
    q->loads++;
    return JOINED;
}
