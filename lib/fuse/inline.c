/*
 * inline.c -- cheap values that have no program: each one that reads them computes them again. They are maps
 * of vectors, of numbers of rows, of row and column vectors, of columns' numbers, and of single elements.
 */
#include "fuse.h"

/* Has the value one element for each row of n, or one for each column? */
static bool is_vector(const struct grouper *gr, int value, const struct node *n)
{
    const struct type *t = &gr->g->node[value].type;
    int64_t columns = type_columns(t);
    bool row = t->rank == n->type.rank && extent_is_one(columns);
    bool col = extents_equal(type_elements(t), columns);
    if (gr->opt->invariant) col = col && !gr->site[value].rows; /* a row of one is no vector of all */
    return row || col;
}

/* Will one map read it, in whose program it and a map that it is of can be computed? */
static bool joins_reader(const struct grouper *gr, const struct node *n)
{
    int value = (int)(n - gr->g->node), at = gr->uses.at[value];
    bool joins = uses_count(&gr->uses, value) == 1 && rows_is_map(gr, gr->uses.use[at].node), made = false;
    for (int i = 0; i < n->nin; i++) made = made || rows_is_map(gr, n->in[i]);
    return joins && made && n->output < 0 &&
           extents_equal(type_elements(&gr->g->node[gr->uses.use[at].node].type), type_elements(&n->type));
}

/* Has the map n rows and columns, of which its operands have one each? */
static bool is_outer(const struct grouper *gr, const struct node *n)
{
    bool outer = extent_reaches(type_columns(&n->type), 2) && group_has_rows(gr, (int)(n - gr->g->node));
    return outer && !joins_reader(gr, n);
}

/* Bounds of what readers compute again: steps, and loads. */
enum {
    MOST_INLINE_STEPS = 32,
    MOST_INLINE_LOADS = 8,
    MOST_VECTOR_STEPS = 4,
    MOST_VECTOR_LOADS = 2,
    MOST_ELEMENT_STEPS = 12, /* of a single element: what corrects and clips a step of an optimizer */
    MOST_ELEMENT_LOADS = 4,
    MOST_CHAIN = 8
};

/* What computing map n again takes: false if it is too much. */
static bool count_again(const struct grouper *gr, const struct node *n, struct site *out, int steps,
                        int loads)
{
    out->steps = 1, out->loads = 0;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        out->steps += s->role == ROLE_INLINE ? s->steps : s->role != ROLE_NUMBER;
        out->loads += s->role == ROLE_INLINE ? s->loads : s->role != ROLE_NUMBER;
    }
    return out->steps <= steps && out->loads <= loads;
}

/* Is operand i one of the caller's tensors of a number for each row of n, [.., 1]? */
static bool is_row_leaf(const struct grouper *gr, const struct node *n, int i)
{
    const struct node *leaf = &gr->g->node[n->in[i]];
    bool rows =
        leaf->type.rank == n->type.rank && extents_equal(type_elements(&leaf->type), type_elements(&n->type));
    return op_is_leaf(leaf->op) && rows;
}

static bool is_row_ids(const struct grouper *gr, const struct node *n, int i)
{
    return dtype_is_index(gr->g->node[n->in[i]].type.dtype) && is_row_leaf(gr, n, i);
}

/* Do maps alone read a number of each row, over the row's columns, perhaps through maps of such numbers? */
static bool is_spread(const struct grouper *gr, int value, int depth)
{
    const struct uses *u = &gr->uses;
    if (gr->g->node[value].output >= 0 || depth == 0) return false;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        if (gr->g->node[reader].op != OP_MAP) return false;
        bool wide = extent_reaches(type_columns(&gr->g->node[reader].type), 2);
        if (!wide && !is_spread(gr, reader, depth - 1)) return false;
    }
    return uses_count(u, value) > 0;
}

bool is_taken_later(const struct grouper *gr, int value)
{
    return gr->opt->fuse && rows_is_map(gr, value) && extent_is_one(type_columns(&gr->g->node[value].type)) &&
           is_spread(gr, value, MOST_CHAIN);
}

/* A map of [.., 1] values, one of which is still in pieces, or ids, as masks are, or of the caller's, if it
 * is read over columns and coda_prepare does not compute it; or of a row vector and a column vector, or of
 * columns' numbers: computed again by each reader. */
static bool is_inline(const struct grouper *gr, const struct node *n, struct site *out)
{
    if (n->op != OP_MAP || n->type.rank == 0) return false;
    bool pieces = false, counts = false, leaves = true;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        if (!is_vector(gr, n->in[i], n)) return false;
        counts = counts || (gr->g->node[n->in[i]].op == OP_IOTA && extent_reaches(type_columns(&n->type), 2));
        pieces = pieces || (s->partial && !group_has_column_parts(gr, n->in[i])) || s->role == ROLE_INLINE ||
                 is_row_ids(gr, n, i);
        leaves = leaves && (s->role == ROLE_NUMBER || is_row_leaf(gr, n, i));
    }
    int value = (int)(n - gr->g->node);
    pieces = pieces || (leaves && !gr->site[value].is_const && is_spread(gr, value, MOST_CHAIN));
    if (!count_again(gr, n, out, MOST_INLINE_STEPS, MOST_INLINE_LOADS)) return false;
    return gr->opt->fuse && (is_outer(gr, n) || counts || (pieces && extent_is_one(type_columns(&n->type))));
}

/* Does the reader repeat the value: over rows, or what is given over the elements of a vector? */
static bool repeats(const struct grouper *gr, int value, int reader)
{
    const struct type *over = &gr->g->node[reader].type;
    bool vector = over->rank == 1 && extent_reaches(over->dim[0], 2);
    return group_repeats(gr, value, reader) || (vector && gr->site[value].given);
}

/* Do maps alone read the value, each over other rows than its own? To store it takes a launch, and to compute
 * one that is as small as itself again takes a few loads that threads of a row share. */
static bool is_broadcast(const struct grouper *gr, int value, int depth)
{
    const graph *g = gr->g;
    const struct type *t = &g->node[value].type;
    if (g->node[value].output >= 0 || depth == 0) return false;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++) {
        int reader = gr->uses.use[i].node;
        bool fits =
            group_is_one(gr, value) || extents_equal(type_columns(&g->node[reader].type), type_columns(t));
        if (g->node[reader].op != OP_MAP || !fits) return false;
        if (!repeats(gr, value, reader) && !is_broadcast(gr, reader, depth - 1)) return false;
    }
    return uses_count(&gr->uses, value) > 0;
}

/* A map of vectors, of all rows or of each sample's, which all of its readers broadcast: 1 + scale. */
static bool is_vector_map(const struct grouper *gr, int value, struct site *out)
{
    const struct node *n = &gr->g->node[value];
    if ((n->op != OP_MAP && n->op != OP_CAST) || !gr->opt->fuse || gr->site[value].is_const) return false;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        if (s->partial || (s->role == ROLE_INLINE && !s->vector)) return false;
    }
    bool one = gr->site[value].given;
    int steps = one ? MOST_ELEMENT_STEPS : MOST_VECTOR_STEPS;
    return count_again(gr, n, out, steps, one ? MOST_ELEMENT_LOADS : MOST_VECTOR_LOADS) &&
           is_broadcast(gr, value, steps);
}

/* Columns' numbers, which programs of rows have anyway. */
static bool is_counted(const struct grouper *gr, int value, struct site *out)
{
    out->steps = 1, out->loads = 0;
    return gr->opt->fuse && gr->g->node[value].op == OP_IOTA;
}

/* Does a reader combine pairs of its columns, perhaps of a view? A program of rows loads both from memory. */
static bool is_paired(const struct grouper *gr, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        enum op op = gr->g->node[reader].op;
        if (op_is_view(op) ? is_paired(gr, reader) : op_combines_pairs(op) && u->use[i].operand == ROPE_X)
            return true;
    }
    return false;
}

void inline_find(struct grouper *gr, int value)
{
    struct site *s = &gr->site[value];
    if (s->role != ROLE_FREE || state_is_read(gr->g, &gr->g->node[value]) || is_paired(gr, value)) return;
    s->vector = is_counted(gr, value, s) || is_vector_map(gr, value, s) || level_find(gr, value, s);
    if (s->vector || is_inline(gr, &gr->g->node[value], s)) s->role = ROLE_INLINE;
}
