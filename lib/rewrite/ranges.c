/*
 * ranges.c -- slices of a value's columns that its product's epilogue computes with, each apart from the
 * others: norms of latent vectors that one product makes (DeepSeek-V2, arXiv 2405.04434).
 *
 * So it is where nothing else is read of the value, and all slices consist of whole segments: as many columns
 * as a reader turns or folds, or SPAN. lib/fuse/segments.c has the same rules, and an epilogue leaves states
 * of the rows of such a slice.
 */
#include "ranges.h"

#include "guards.h"

#include <stdlib.h>

enum { SPAN = 64, MOST_SEGMENT = 256, MOST_SLICES = 7, AHEAD = 4 };

/* What is known of a value. */
struct cut {
    int of, steps; /* it is a slice of this value, or is made of one in so many steps; -1 */
    int slices;    /* that are read of it; all of them halves of it, or not */
    bool otherwise, halves;
    int64_t span;
};

static bool is_column_slice(const struct node *n)
{
    return n->op == OP_SLICE && n->attr.slice.axis == n->type.rank - 1 && n->attr.slice.step <= 1;
}

/* Symbols may count columns elsewhere: of these nothing is asked. */
static int64_t columns_of(const graph *g, int v) { return type_columns(&g->node[v].type); }

static bool is_half(const graph *g, const struct node *n)
{
    int64_t all = columns_of(g, n->in[SLICE_X]), columns = type_columns(&n->type);
    return dim_is_number(all) && dim_is_number(columns) && extents_equal(2 * columns, all);
}

static void count_readers(const graph *g, struct cut *cut)
{
    for (int v = 0; v < g->nodes; v++)
        cut[v] = (struct cut){.of = -1, .halves = true, .span = SPAN, .otherwise = g->node[v].output >= 0};
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        bool slice = is_column_slice(n);
        for (int j = 0; j < n->nin; j++) {
            if (n->in[j] < 0) continue;
            struct cut *c = &cut[n->in[j]];
            c->slices++;
            c->otherwise = c->otherwise || !slice;
            c->halves = c->halves && slice && is_half(g, n);
        }
    }
}

/* Columns that node n turns or folds, if they are a segment; 0: none. */
static int64_t segment_of(const graph *g, const struct node *n)
{
    bool folds = n->op == OP_REDUCE && !n->attr.reduce.columns;
    int64_t columns = op_info[n->op].kind == KIND_PAIRS ? n->attr.rope.head_dim
                      : folds                           ? columns_of(g, n->in[REDUCE_X])
                                                        : 0;
    return !dim_is_number(columns) || extent_reaches(columns, MOST_SEGMENT + 1) ? 0 : columns;
}

static void want(struct cut *c, int64_t columns)
{
    bool known = !extents_equal(c->span, SPAN);
    if (extents_equal(columns, 0)) return;
    if (known && !extents_equal(c->span, columns)) c->otherwise = true;
    c->span = extent_max(SPAN, columns);
}

/* Follows slices through maps and views, to what folds or turns segments of them. */
static void find_spans(const graph *g, struct cut *cut)
{
    for (int v = 0; v < g->nodes; v++) {
        const struct node *n = &g->node[v];
        bool passes = n->op == OP_MAP || n->op == OP_CAST || n->op == OP_RESHAPE;
        if (is_column_slice(n)) cut[v].of = n->in[SLICE_X];
        for (int j = 0; j < n->nin; j++) {
            const struct cut *c = n->in[j] < 0 ? NULL : &cut[n->in[j]];
            if (!c || c->of < 0 || is_column_slice(n)) continue;
            want(&cut[c->of], segment_of(g, n));
            if (passes && c->steps < AHEAD) cut[v].of = c->of, cut[v].steps = c->steps + 1;
        }
    }
}

static bool is_whole(const graph *g, const struct node *n, int64_t span)
{
    const int64_t extent[] = {columns_of(g, n->in[SLICE_X]), type_columns(&n->type), n->attr.slice.start};
    for (int i = 0; i < ARRAY_SIZE(extent); i++)
        if (!dim_is_number(extent[i]) || !extent_is_multiple(extent[i], span)) return false;
    return true;
}

/* Is the cut value such a slice's, once all its slices are known? */
static bool is_range(const struct cut *c, const struct node *n)
{
    bool apart = !c->otherwise && !c->halves && c->slices <= MOST_SLICES;
    return apart && extent_reaches(type_columns(&n->type), MOST_SEGMENT + 1);
}

bool *ranges_find(const graph *g)
{
    struct cut *cut = calloc((size_t)g->nodes + 1, sizeof *cut);
    bool *range = calloc((size_t)g->nodes + 1, sizeof *range);
    if (!cut || !range) return free(cut), free(range), NULL;
    count_readers(g, cut);
    find_spans(g, cut);
    for (int pass = 0; pass < 2; pass++)
        for (int v = 0; v < g->nodes; v++) {
            const struct node *n = &g->node[v];
            if (!is_column_slice(n)) continue;
            struct cut *c = &cut[n->in[SLICE_X]];
            if (pass) range[v] = is_range(c, n);
            else c->otherwise = c->otherwise || !is_whole(g, n, c->span);
        }
    free(cut);
    return range;
}
