/*
 * finish.c -- programs that finish statistics of columns become one.
 *
 * A statistic of columns is left in parts by the program that walks the rows, and another one finishes it: a
 * launch that moves less than its own cost. A backward pass has many, a gradient of each gain and bias, which
 * nobody reads before it ends. So programs that finish such statistics, and what maps and casts make of them,
 * are put together, whatever the number of columns: each has a range of the program's columns. They may wait
 * for each other's operands, but not for each other.
 *
 * The parts lie in memory until they are finished. A program has few ranges, so that of a graph of many
 * layers only those of a few are there at once.
 */
#include "fuse.h"

enum {
    MOST_TRIES = 4, /* programs, from the latest on, that one may join */
    MOST_MEMBERS = 64
};

/* ---- Which programs ---- */

/* Is it what is left in parts of the columns of one matrix? */
static bool is_one_row(const struct grouper *gr, int value)
{
    return group_has_column_parts(gr, value) && extent_is_one(type_rows(&gr->g->node[value].type));
}

/* May a member of q read it where columns are finished: that statistic, or what lies in memory? */
static bool suits_operand(const struct grouper *gr, const struct group *q, int value, int64_t elements)
{
    int x = line_value(gr->g, value);
    int64_t own = line_length(&gr->g->node[value].type);
    float ignored;
    if (group_number(gr, value, &ignored) || group_scalar(gr, value) >= 0) return true;
    if (group_holds(gr, q, value)) return true;
    if (group_has_column_parts(gr, x)) return is_one_row(gr, x) && extents_equal(own, elements);
    if (gr->site[x].partial || gr->site[x].role == ROLE_INLINE) return false;
    return gr->view[value].base >= 0 && (extents_equal(own, elements) || extents_equal(own, 1));
}

static bool is_member(const struct grouper *gr, const struct group *q, const struct node *n, int64_t elements)
{
    if ((n->op != OP_MAP && n->op != OP_CAST) || state_is_read(gr->g, n)) return false;
    if (!extents_equal(line_length(&n->type), elements)) return false;
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && !suits_operand(gr, q, n->in[i], elements)) return false;
    return true;
}

static bool finishes(const struct grouper *gr, const struct group *q)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < gr->g->node[m].nin; i++) {
            int value = gr->g->node[m].in[i];
            if (value >= 0 && group_has_column_parts(gr, line_value(gr->g, value))) return true;
        }
    return false;
}

/* The columns of which the program finishes statistics, if it does nothing else; else -1. */
static int64_t finished_columns(const struct grouper *gr, const struct group *q)
{
    if (q->p.kind != PROGRAM_ROWS || q->first < 0 || q->p.prepare || !finishes(gr, q)) return -1;
    int64_t elements = line_length(&q->domain);
    if (!extent_reaches(elements, 2)) return -1;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if (!is_member(gr, q, &gr->g->node[m], elements)) return -1;
    return elements;
}

/* Does the reader of `value` finish it for itself? */
static bool finishes_it(const struct grouper *gr, int reader, int value)
{
    const struct site *s = &gr->site[reader];
    bool here = s->role == ROLE_MEMBER && gr->group[s->group]->finishes;
    return here && group_has_column_parts(gr, line_value(gr->g, value));
}

/* Does no program read it, or a view of it, from memory? */
static bool is_result(const struct grouper *gr, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        bool view = gr->site[reader].role == ROLE_VIEW;
        if (view ? !is_result(gr, reader) : !finishes_it(gr, reader, value)) return false;
    }
    return true;
}

/* ---- Ranges ---- */

static void enlist(struct grouper *gr, struct group *q, int64_t elements)
{
    q->line = q->finishes = true;
    q->domain.rank = q->p.rank = 2;
    q->domain.dim[0] = q->p.dim[0] = 1;
    q->domain.dim[1] = q->p.dim[1] = elements;
    q->next_finishing = gr->finishing;
    gr->finishing = q;
}

/* All that q has so far is its first range. */
static void open_ranges(struct grouper *gr, struct group *q)
{
    if (q->p.ranges) return;
    q->p.range[q->p.ranges++] = (struct column_range){0, q->p.dim[1]};
    for (int i = 0; i < q->p.steps; i++)
        if (q->p.step[i].cls != CLASS_ROW) q->p.step[i].range = 1;
    for (int m = q->first; m >= 0; m = gr->site[m].next) gr->site[m].range = 1;
    for (int v = q->also; v >= 0; v = gr->site[v].also) gr->site[v].finish_range = 1;
    if (q->first < 0) gr->site[q->p.root].finish_range = 1;
}

/* Adds a range of so many columns to q; returns 1 + its index. */
static int add_range(struct grouper *gr, struct group *q, int64_t elements)
{
    open_ranges(gr, q);
    int64_t first = q->p.dim[1];
    q->domain.dim[1] = q->p.dim[1] = first + elements;
    q->p.range[q->p.ranges] = (struct column_range){first, first + elements};
    return ++q->p.ranges;
}

/* ---- Putting them together ---- */

static bool needs(struct grouper *gr, const struct group *q, const struct group *other)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < gr->g->node[m].nin; i++)
            if (gr->g->node[m].in[i] >= 0 && group_depends(gr, gr->g->node[m].in[i], other)) return true;
    return false;
}

static bool may_be_one(struct grouper *gr, const struct group *q, const struct group *other)
{
    return q->p.ranges < MOST_RANGES && q->members + other->members <= MOST_MEMBERS &&
           q->stores + other->stores <= MOST_STORES && !needs(gr, q, other) && !needs(gr, other, q);
}

static void join(struct grouper *gr, struct group *q, struct group *other, int64_t elements)
{
    int range = add_range(gr, q, elements);
    for (int m = other->first; m >= 0; m = gr->site[m].next) gr->site[m].range = range;
    group_absorb(gr, q, other);
}

void fuse_join_finishing(struct grouper *gr)
{
    for (int i = 0; i < gr->groups && gr->opt->fuse; i++) {
        struct group *q = gr->group[i], *to = gr->finishing;
        int64_t elements = finished_columns(gr, q);
        if (!extent_reaches(elements, 2)) continue;
        for (int tries = 1; to && !may_be_one(gr, to, q); tries++)
            to = tries < MOST_TRIES ? to->next_finishing : NULL;
        if (to) join(gr, to, q, elements);
        else enlist(gr, q, elements);
    }
}

/* ---- Statistics that are wanted as they are ---- */

/* A statistic of columns, of several of them, that outputs alone want. */
static bool is_apart(const struct grouper *gr, int value)
{
    return gr->opt->fuse && is_one_row(gr, value) && !gr->site[value].is_const &&
           extent_reaches(type_columns(&gr->g->node[value].type), 2) && is_result(gr, value);
}

void finishing_begin(struct grouper *gr, struct group *q)
{
    if (is_apart(gr, q->p.root)) enlist(gr, q, type_columns(&q->domain));
}

struct group *finishing_of(struct grouper *gr, int value, int *range)
{
    struct group *q = is_apart(gr, value) ? gr->finishing : NULL;
    for (int tries = 1; q; tries++) {
        bool room = q->p.ranges < MOST_RANGES;
        if (room && !group_depends(gr, value, q)) break;
        q = tries < MOST_TRIES ? q->next_finishing : NULL;
    }
    if (q) *range = add_range(gr, q, type_columns(&gr->g->node[value].type));
    return q;
}
