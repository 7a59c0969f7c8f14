/* sites.c -- what is known of each node before there is a program: its role, if it is fixed, numbers, rows,
 * where its elements lie, and who reads it. */
#include "fuse.h"

/* Constants, and fused what references make of them, in fp32 as kernels would. */
static bool is_number(const struct grouper *gr, const struct node *n, float *out)
{
    double in[PRIM_MAX_INPUTS] = {0}, param[PRIM_MAX_PARAMS];
    float number = n->op == OP_CONSTANT ? n->attr.constant.value : 0;
    bool map = n->op == OP_MAP && n->prim->reference;
    if (n->op != OP_CONSTANT && !(gr->opt->fuse && (map || n->op == OP_CAST))) return false;
    for (int i = 0; i < n->nin; i++) {
        if (!group_number(gr, n->in[i], &number)) return false;
        in[i] = number;
    }
    for (int i = 0; map && i < PRIM_MAX_PARAMS; i++) param[i] = n->attr.map.param[i];
    if (n->op == OP_CAST && (dtype_is_index(n->type.dtype) || dtype_is_f8(n->type.dtype))) {
        int64_t whole;
        dtype_store(n->type.dtype, &whole, 0, number);
        number = (float)dtype_load(n->type.dtype, &whole, 0);
    }
    *out = map ? (float)n->prim->reference(in, param) : number;
    return true;
}

/* As long as no symbols say which: inputs of more than a vector, and integers for each row, have rows. */
static bool is_of_rows(const struct node *n)
{
    return op_is_input(n->op) && (n->type.rank > 1 || dtype_is_index(n->type.dtype));
}

/* Statistics of columns have no rows. */
static unsigned find_rows(const struct grouper *gr, const struct node *n)
{
    unsigned rows = is_of_rows(n) ? OF_INPUTS : 0;
    bool folds = node_folds_columns(n);
    for (int i = 0; i < n->nin && !folds; i++) rows |= n->in[i] < 0 ? 0 : gr->site[n->in[i]].rows;
    return n->rows ? n->rows | (rows & OF_INPUTS) : rows;
}

/* Is it a single element, of the caller's or made of such alone? */
static bool is_given(const struct grouper *gr, int value)
{
    const struct node *n = &gr->g->node[value];
    bool given = group_is_one(gr, value) &&
                 (op_is_leaf(n->op) || n->op == OP_CONSTANT || n->op == OP_MAP || op_is_view(n->op));
    for (int i = 0; i < n->nin && given; i++) given = gr->site[n->in[i]].given;
    return given;
}

static void assign_fixed_roles(struct grouper *gr)
{
    const graph *g = gr->g;
    for (int i = 0; i < g->nodes; i++) {
        struct site *s = &gr->site[i];
        enum op op = g->node[i].op;
        const struct node *n = &g->node[i];
        s->buffer = s->accumulator_buffer = s->group = s->next = s->step = s->again_in = s->row_in = -1;
        bool given = op_is_leaf(op) || op == OP_UNPACK;
        s->role = given ? ROLE_LEAF : op_is_view(op) ? ROLE_VIEW : op == OP_CONCAT ? ROLE_CONCAT : ROLE_FREE;
        s->rows = find_rows(gr, n);
        s->given = is_given(gr, i);
        s->version = op_is_version(op) ? gr->site[n->in[VERSION_OF]].version + 1 : 0;
        if (s->role == ROLE_FREE && is_number(gr, n, &s->number)) s->role = ROLE_NUMBER;
        s->is_const = gr->opt->fold != CODA_FOLD_NONE && !op_is_input(op) && op != OP_IOTA &&
                      !node_is_small(n) && !s->apart;
        for (int j = 0; j < n->nin; j++)
            s->is_const = s->is_const && (n->in[j] < 0 || gr->site[n->in[j]].is_const);
    }
    for (int i = 0; i < g->leaves; i++) gr->site[g->leaf[i]].is_const = false;
    /* What lies in an output, or in a concat that a run computes, is written by each run: insert_copies.c. */
    for (int i = 0; i < g->outputs; i++) gr->site[g->output[i].value].is_const = false;
    for (int i = 0; i < g->nodes; i++)
        for (int j = 0; j < g->node[i].nin && g->node[i].op == OP_CONCAT && !gr->site[i].is_const; j++)
            gr->site[g->node[i].in[j]].is_const = false;
    for (int i = 0; i < g->nodes; i++) /* what depends on a run-time value runs at run time */
        for (int j = 0; j < g->node[i].nin; j++) {
            int v = g->node[i].in[j];
            if (v >= 0 && !op_is_leaf(g->node[v].op) && !gr->site[v].is_const) gr->site[i].is_const = false;
        }
}

static coda_status check_lowered(const graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        enum op op = g->node[i].op;
        if (op_is(op, KIND_LOWERED))
            return fail(CODA_E_UNSUPPORTED, "plan: %%%d is a %s that no rewrite lowered", i,
                        op_info[op].text);
    }
    return CODA_OK;
}

/* Where the parts of concats begin. */
static bool find_parts(struct grouper *gr)
{
    const graph *g = gr->g;
    int parts = 0;
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op == OP_CONCAT) gr->site[i].part = parts, parts += g->node[i].nin;
    gr->part = ARENA_NEW(&gr->plan->arena, int64_t, parts + 1);
    for (int i = 0; i < g->nodes && gr->part; i++) {
        const struct node *n = &g->node[i];
        int64_t start = 0;
        for (int j = 0; j < n->nin && n->op == OP_CONCAT; j++) {
            int64_t extent = g->node[n->in[j]].type.dim[n->attr.concat.axis];
            gr->part[gr->site[i].part + j] = start;
            start += n->attr.concat.interleave ? extent_reaches(extent, 1) : extent;
        }
    }
    return gr->part;
}

static bool find_apart(struct grouper *gr)
{
    bool *parts = ARENA_NEW(&gr->plan->arena, bool, gr->g->nodes + 1);
    if (!parts) return false;
    graph_find_parts(gr->g, parts);
    for (int i = 0; i < gr->g->nodes; i++) gr->site[i].apart = parts[i];
    return true;
}

coda_status sites_find(struct grouper *gr)
{
    const graph *g = gr->g;
    struct arena *arena = &gr->plan->arena;
    gr->site = ARENA_NEW(arena, struct site, g->nodes);
    gr->view = ARENA_NEW(arena, struct view, g->nodes);
    gr->stack = ARENA_NEW(arena, int, g->nodes + 1);
    gr->queue = ARENA_NEW(arena, int, g->nodes + 1);
    bool read = uses_find(&gr->uses, arena, g, OP_COUNT) && uses_find(&gr->statistics, arena, g, OP_REDUCE) &&
                uses_find_ahead(&gr->ahead, arena, g);
    if (arena->failed || !read || !find_parts(gr))
        return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", g->nodes);
    coda_status status = check_lowered(g);
    if (status) return status;
    for (int i = 0; i < g->nodes; i++) view_extend(g, i, gr->view);
    if (gr->opt->fuse && !find_apart(gr)) return fail(CODA_E_MEMORY, "out of memory for %d nodes", g->nodes);
    assign_fixed_roles(gr);
    group_find_horizons(gr);
    return CODA_OK;
}
