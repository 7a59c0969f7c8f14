/*
 * short_columns.c -- columns of a few rows, folded in a thread's registers.
 *
 * A window of a causal convolution has four rows, of which maps and a sum make one. Blocks that fold columns
 * leave parts, and another program finishes them. A column so short is a thread's alone: a program walks the
 * rows [.., 1, columns] of what the fold makes, loads each row of the column besides, and computes the maps
 * of all of them. What follows the fold joins as it does elsewhere.
 *
 * The window may be a state whose next version the fold reads: rows of what it was, shifted, and a new one
 * behind. Then the same program writes it, and no copy of the parts is made: a thread has loaded its column
 * before it stores any of it.
 *
 * Nodes whose rows are computed so lie nowhere, and are of no other program: ROLE_WITHIN.
 */
#include "fuse.h"

#include <string.h>

enum { MOST_STEPS = 160 };

struct column {
    struct grouper *gr;
    struct group *q;
    const struct type *tall; /* [.., rows, columns] */
    int fold;
    int within[MOST_COLUMN_NODES], loaded[MOST_COLUMN_NODES];
    int nodes, loads;
    int steps, ports;
    int version; /* the state's that is written; -1 */
};

/* ---- What the fold is of ---- */

/* Has it as many rows as that, and else the dimensions of the tall ones? */
static bool lies_so(const struct column *c, const struct type *t, int height)
{
    if (t->rank != c->tall->rank || short_height(t) != height) return false;
    for (int d = 0; d < t->rank; d++)
        if (d != t->rank - 2 && !extents_equal(t->dim[d], c->tall->dim[d])) return false;
    return true;
}

static bool is_within(const struct column *c, int value)
{
    for (int i = 0; i < c->nodes; i++)
        if (c->within[i] == value) return true;
    return value == c->fold || value == c->version;
}

/* Does it lie in memory, and does no other program of rows walk it? */
static bool add_load(struct column *c, int value, int height)
{
    const struct grouper *gr = c->gr;
    const struct uses *u = &gr->uses;
    int base = value;
    while (op_is_view(gr->g->node[base].op)) base = gr->g->node[base].in[VIEW_OF];
    const struct site *s = &gr->site[base];
    bool made = s->role == ROLE_LEAF || (s->role == ROLE_MEMBER && !s->partial);
    if (!made || gr->view[value].base < 0 || c->loads == MOST_COLUMN_NODES) return false;
    for (int i = u->at[value]; i < u->at[value + 1] && height > 1; i++)
        if (gr->site[u->use[i].node].role == ROLE_FREE && !is_within(c, u->use[i].node)) return false;
    c->loaded[c->loads++] = value;
    c->ports += height;
    return c->ports <= MOST_PASS_LOADS;
}

static bool add(struct column *c, int value, int height);

static bool add_operands(struct column *c, int value, int height)
{
    const struct node *n = &c->gr->g->node[value];
    float ignored;
    for (int i = 0; i < n->nin; i++) {
        if (group_number(c->gr, n->in[i], &ignored) || group_scalar(c->gr, n->in[i]) >= 0) continue;
        int own = short_height(&c->gr->g->node[n->in[i]].type);
        if ((own != 1 && own != height) || !add(c, n->in[i], own)) return false;
    }
    return true;
}

static bool add_parts(struct column *c, int value)
{
    const struct node *n = &c->gr->g->node[value];
    if (n->attr.concat.interleave || n->attr.concat.axis != n->type.rank - 2) return false;
    for (int i = 0; i < n->nin; i++) {
        int height = short_height(&c->gr->g->node[n->in[i]].type);
        if (!height || !add(c, n->in[i], height)) return false;
    }
    return true;
}

/* A version is read by whoever wants it: it is in memory, too. */
static bool add_version(struct column *c, int value, int height)
{
    if (c->version >= 0 || !lies_so(c, &c->gr->g->node[value].type, height) ||
        height != short_height(c->tall))
        return false;
    c->version = value;
    return add(c, c->gr->g->node[value].in[VERSION_VALUE], height);
}

/* Is it a map, a cast or a concat for one reader alone, whose rows are the column's? */
static bool is_own(const struct column *c, int value, int height)
{
    const struct node *n = &c->gr->g->node[value];
    enum role role = c->gr->site[value].role;
    bool computes = (role == ROLE_FREE && (n->op == OP_MAP || n->op == OP_CAST)) || role == ROLE_CONCAT;
    return computes && n->output < 0 && uses_count(&c->gr->uses, value) == 1 &&
           lies_so(c, &n->type, height) && !c->gr->site[value].is_const && c->nodes < MOST_COLUMN_NODES;
}

/* Adds what a value of so many rows takes. */
static bool add(struct column *c, int value, int height)
{
    const struct node *n = &c->gr->g->node[value];
    if (n->op == OP_ASSIGN && c->gr->site[value].role == ROLE_FREE) return add_version(c, value, height);
    if (!is_own(c, value, height)) return add_load(c, value, height);
    c->within[c->nodes++] = value;
    c->steps += height;
    if (c->steps > MOST_STEPS) return false;
    return n->op == OP_CONCAT ? add_parts(c, value) : add_operands(c, value, height);
}

static bool find(struct column *c)
{
    const struct node *n = &c->gr->g->node[c->fold];
    bool folds = node_folds_columns(n) && n->nin == 1 && short_map(n->prim);
    if (!folds || c->gr->site[c->fold].role != ROLE_FREE || c->gr->site[c->fold].is_const) return false;
    c->tall = &c->gr->g->node[n->in[REDUCE_X]].type;
    int height = short_rows(c->tall);
    return height && extent_reaches(type_columns(c->tall), 1) && add(c, n->in[REDUCE_X], height);
}

/* ---- The program ---- */

/* Does nothing that the program needs, or comes after, wait for it? */
static bool is_ahead(struct column *c)
{
    const struct node *n = c->version < 0 ? NULL : &c->gr->g->node[c->version];
    for (int i = 0; i < c->loads; i++)
        if (group_depends(c->gr, c->loaded[i], c->q)) return false;
    for (int i = 0; n && i < n->nin; i++)
        if (n->in[i] >= 0 && i != VERSION_VALUE && !is_within(c, n->in[i]) &&
            group_depends(c->gr, n->in[i], c->q))
            return false;
    return true;
}

static bool describe(struct column *c)
{
    struct short_columns *s = ARENA_NEW(&c->gr->plan->arena, struct short_columns, 1);
    if (!s) return false;
    *s = (struct short_columns){.height = short_rows(c->tall), .loads = c->loads, .version = c->version};
    memcpy(s->loaded, c->loaded, sizeof s->loaded);
    c->q->short_columns = s;
    return true;
}

static void begin(struct column *c)
{
    struct grouper *gr = c->gr;
    struct group *q = c->q = group_new(gr, PROGRAM_ROWS, c->fold);
    if (!q || !describe(c)) return;
    q->domain = gr->g->node[c->fold].type;
    q->p.rank = q->domain.rank;
    memcpy(q->p.dim, q->domain.dim, sizeof q->domain.dim);
    group_join(gr, q, c->fold);
    if (c->version >= 0) group_join(gr, q, c->version);
    if (!short_lies(gr, q) || !is_ahead(c)) {
        group_dissolve(gr, q);
        group_find_horizons(gr);
        return;
    }
    q->loads = c->ports;
    q->stores += c->version >= 0 ? q->short_columns->height : 0;
    for (int i = 0; i < c->nodes; i++) gr->site[c->within[i]].role = ROLE_WITHIN;
    group_grow(gr, q);
}

void fuse_short_columns(struct grouper *gr)
{
    for (int i = 0; i < gr->g->nodes && gr->opt->fuse && !gr->opt->invariant; i++) {
        struct column c = {.gr = gr, .fold = i, .version = -1};
        if (gr->g->node[i].op == OP_REDUCE && find(&c)) begin(&c);
    }
}
