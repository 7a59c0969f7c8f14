/* group.c -- programs to be, as groups of nodes: what a group holds, and what a value is to it. */
#include "fuse.h"

#include <string.h>

struct group *group_new(struct grouper *gr, enum program_kind kind, int root)
{
    struct arena *arena = &gr->plan->arena;
    struct group **group = arena_grow(arena, gr->group, gr->groups, &gr->group_capacity, sizeof *group);
    if (!group) return NULL;
    gr->group = group;
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
