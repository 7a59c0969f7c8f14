/*
 * roots.c -- cut a graph into programs: which nodes root one, and what becomes of the others.
 *
 * Each matmul and each attention roots a program, and a matmul's takes in what it can (group.c). What is
 * left roots rows programs that grow the same way. Leaves and views need none; a cheap map of vectors is
 * left to those that read it.
 */
#include "group.h"

#include <string.h>

struct group *group_new(struct grouper *gr, enum program_kind kind, int root)
{
    struct group *q = &gr->group[gr->groups++];
    *q = (struct group){.first = -1, .last = -1, .paired = -1};
    q->p.kind = kind;
    q->p.root = root;
    q->p.scratch = -1;
    q->p.prepare = gr->site[root].is_const;
    return q;
}

static struct group *root_new(struct grouper *gr, enum program_kind kind, int root)
{
    struct group *q = group_new(gr, kind, root);
    group_join(gr, q, root);
    return q;
}

static struct operand operand(const graph *g, int value, const struct matrix_view *v)
{
    return (struct operand){.buffer = -1,
                            .offset = v->offset,
                            .dtype = g->node[value].type.dtype,
                            .batch = v->batch,
                            .row = v->row,
                            .k = v->k,
                            .value = value};
}

static void root_gemm(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct matmul_view v;
    struct group *q = root_new(gr, PROGRAM_GEMM, root);
    struct program *p = &q->p;
    view_matmul(gr->g, n, &v);
    p->rank = 3;
    p->dim[0] = v.batch;
    p->dim[1] = v.m;
    p->dim[2] = v.n;
    p->k = v.k;
    p->a = operand(gr->g, n->in[0], &v.a);
    p->b = operand(gr->g, n->in[1], &v.b);
    group_grow(gr, q);
}

static void root_rows(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct group *q = root_new(gr, PROGRAM_ROWS, root);
    q->domain = *domain_walked(gr->g, n);
    if (q->domain.rank == 0) q->domain = type_as_rows(&q->domain);
    q->p.rank = q->domain.rank;
    memcpy(q->p.dim, q->domain.dim, sizeof q->domain.dim);
    if (n->op == OP_ROPE) q->p.rope = group_rope(gr->g, n);
    group_grow(gr, q);
}

static bool is_vector(const struct type *t, const struct type *whole)
{
    int64_t columns = type_columns(t);
    bool row = t->rank == whole->rank && columns == 1, col = type_elements(t) == columns;
    return row || col;
}

/* A map of [.., 1] values, one of which is still in pieces, or of a row vector and a column vector:
 * computed again by each reader. */
static bool is_inline(const struct grouper *gr, const struct node *n)
{
    if (n->op != OP_MAP || n->type.rank == 0) return false;
    bool pieces = false, outer = type_columns(&n->type) > 1 && type_rows(&n->type) > 1;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        const struct type *t = &gr->g->node[n->in[i]].type;
        if (!is_vector(t, &n->type)) return false;
        pieces = pieces || s->partial || s->role == ROLE_INLINE;
    }
    return gr->opt->fuse && (outer || (pieces && type_columns(&n->type) == 1));
}

static void assign_fixed_roles(struct grouper *gr)
{
    const graph *g = gr->g;
    for (int i = 0; i < g->nodes; i++) {
        struct site *s = &gr->site[i];
        enum op op = g->node[i].op;
        s->buffer = s->state_buffer = s->group = s->next = -1;
        s->role = op_is_leaf(op)    ? ROLE_LEAF
                  : op_is_view(op)  ? ROLE_VIEW
                  : op == OP_CONCAT ? ROLE_CONCAT
                                    : ROLE_FREE;
        s->is_const = gr->opt->fold != CODA_FOLD_NONE && !op_is_leaf(op) && graph_is_const(g, i);
    }
    for (int i = 0; i < g->outputs; i++) gr->site[g->output[i].value].is_const = false;
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
        if (op == OP_RMS_NORM || op == OP_LAYER_NORM || op == OP_SOFTMAX || op == OP_CROSS_ENTROPY)
            return fail(CODA_E_UNSUPPORTED, "plan: %%%d is a %s that no rewrite lowered", i,
                        op_info[op].text);
    }
    return CODA_OK;
}

coda_status plan_group(struct plan *p, const graph *g, const struct plan_options *opt)
{
    struct grouper gr = {.g = g, .opt = opt, .plan = p};
    gr.site = ARENA_NEW(&p->arena, struct site, g->nodes);
    gr.group = ARENA_NEW(&p->arena, struct group, g->nodes + 1);
    gr.stack = ARENA_NEW(&p->arena, int, g->nodes + 1);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", g->nodes);
    coda_status status = check_lowered(g);
    if (status) return status;
    assign_fixed_roles(&gr);
    for (int i = g->nodes - 1; i >= 0; i--) /* the last product takes a value that two could take */
        if (g->node[i].op == OP_MATMUL) root_gemm(&gr, i);
    for (int i = 0; i < g->nodes; i++) {
        if (g->node[i].op == OP_ATTENTION) root_new(&gr, PROGRAM_ATTENTION, i);
        if (gr.site[i].role == ROLE_FREE && is_inline(&gr, &g->node[i])) gr.site[i].role = ROLE_INLINE;
    }
    for (int i = 0; i < g->nodes; i++)
        if (gr.site[i].role == ROLE_FREE) root_rows(&gr, i);
    return build_programs(&gr);
}
