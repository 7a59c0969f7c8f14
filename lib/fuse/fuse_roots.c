/*
 * fuse_roots.c -- cut a graph into programs: which nodes root one, and what becomes of the others.
 *
 * Each matmul roots a program, which takes in what it can (fuse.c), and so does each operation that has a
 * kernel of its own. What is left roots rows programs that grow the same way. Leaves and views need none; a
 * cheap map of vectors is left to those that read it.
 */
#include "fuse_own.h"

#include <string.h>

static struct group *root_new(struct grouper *gr, enum program_kind kind, int root)
{
    struct group *q = group_new(gr, kind, root);
    if (q) group_join(gr, q, root);
    return q;
}

static struct operand operand(const graph *g, int value, const struct matrix_view *v)
{
    return operand_of((struct tensor_use){.role = USE_OPERAND,
                                          .buffer = -1,
                                          .offset = v->offset,
                                          .dtype = g->node[value].type.dtype,
                                          .packing = {v->packed.format, v->packed.columns},
                                          .batch = v->batch,
                                          .row = v->row,
                                          .k = v->k,
                                          .value = value});
}

/* Where a single row says nothing of how far rows are apart: what others of its tensor would say. */
static int64_t pitch_of_one(const struct grouper *gr, int x, int64_t k)
{
    const struct view *v = &gr->view[x];
    int rank = gr->g->node[x].type.rank;
    int64_t stride = rank > 1 ? v->stride[rank - 2] : 0;
    return extents_equal(stride, 0) ? k : stride;
}

static struct group *grow_gemm(struct grouper *gr, int root, const struct matmul_view *v)
{
    const struct node *n = &gr->g->node[root];
    struct group *q = root_new(gr, PROGRAM_GEMM, root);
    if (!q) return NULL;
    struct program *p = &q->p;
    p->rank = 3;
    p->dim[0] = v->batch;
    p->dim[1] = v->m;
    p->dim[2] = v->n;
    p->k = v->k;
    p->a = operand(gr->g, n->in[MATMUL_X], &v->a);
    p->b = operand(gr->g, n->in[MATMUL_W], &v->b);
    if (p->invariant && extent_is_one(v->m) && extents_equal(v->a.row, 0))
        p->a.data.row = pitch_of_one(gr, n->in[MATMUL_X], v->k);
    group_grow(gr, q);
    return q;
}

static void root_gemm(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct matmul_view v, samples;
    view_matmul(gr->g, n, gr->view, &v);
    bool split = samples_split(gr, root, &v, &samples);
    struct group *q = grow_gemm(gr, root, split ? &samples : &v);
    if (q && split && !samples_pay(gr, q)) {
        group_take_back(gr, q);
        q = grow_gemm(gr, root, &v);
    }
    if (!q) return;
    for (int i = 0; i < n->nin; i++) refuse_note(gr, q, n->in[i], REASON_OPERAND, -1, v.k, 0);
    give_back(gr, q);
}

/* A kernel of its own loads its operands, and stores its results. */
static void note_own(const struct grouper *gr, const struct group *q)
{
    const struct node *root = &gr->g->node[q->p.root];
    for (int i = 0; i < root->nin && !q->finishes_best; i++)
        if (root->in[i] >= 0) refuse_note(gr, q, root->in[i], REASON_OWN_READS, q->p.root, 0, 0);
    for (int m = q->first; m >= 0; m = gr->site[m].next) refuse_note(gr, q, m, REASON_OWN_WRITES, -1, 0, 0);
}

static void root_own(struct grouper *gr, int root)
{
    const struct own_kind *kind = own_kind_of(gr->g->node[root].op);
    bool roots = kind && gr->site[root].role == ROLE_FREE;
    struct group *q = roots ? root_new(gr, PROGRAM_OWN, root) : NULL;
    if (!q) return;
    q->p.own = kind;
    own_join(gr, q);
    note_own(gr, q);
}

/* Does it read the value, or what is made of it in a step or two? */
static bool comes_of(const struct grouper *gr, int reader, int value, int steps)
{
    const struct node *n = &gr->g->node[reader];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] == value || (steps && n->in[i] > value && comes_of(gr, n->in[i], value, steps - 1)))
            return true;
    return false;
}

/* Is it a statistic of columns of what a program further on may walk, which can then fold it, too? */
static bool is_walked_later(const struct grouper *gr, int value)
{
    const struct node *n = &gr->g->node[value];
    const struct uses *u = &gr->uses;
    if (!gr->opt->fuse || !node_folds_columns(n)) return false;
    for (int i = u->at[n->in[REDUCE_X]]; i < u->at[n->in[REDUCE_X] + 1]; i++) {
        int reader = u->use[i].node;
        bool rows = reader > value && gr->site[reader].role == ROLE_FREE;
        if (rows && gr->g->node[reader].op != OP_REDUCE && !comes_of(gr, reader, value, 2)) return true;
    }
    return false;
}

static void root_rows(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct group *q = root_new(gr, PROGRAM_ROWS, root);
    if (!q) return;
    q->domain = *domain_walked(gr->g, n);
    if (q->domain.rank == 0) q->domain = type_as_rows(&q->domain);
    q->p.rank = q->domain.rank;
    memcpy(q->p.dim, q->domain.dim, sizeof q->domain.dim);
    pair_read(&q->p, gr->g, n);
    group_grow(gr, q);
    give_back(gr, q);
}

coda_status fuse_graph(struct grouper *gr, struct plan *p, const struct plan_options *opt)
{
    const graph *g = p->graph;
    *gr = (struct grouper){.g = g, .opt = opt, .plan = p};
    coda_status status = sites_find(gr);
    if (status) return status;
    fuse_scan_steps(gr);
    fuse_delta_gates(gr);
    for (int i = g->nodes - 1; i >= 0; i--) /* the last product takes a value that two could take */
        if (op_is_product(g->node[i].op) && gr->site[i].role == ROLE_FREE) root_gemm(gr, i);
    fuse_take_in(gr);
    for (int i = 0; i < g->nodes; i++) {
        root_own(gr, i);
        inline_find(gr, i);
    }
    fuse_short_columns(gr);
    for (int i = 0; i < g->nodes; i++)
        if (gr->site[i].role == ROLE_FREE && !is_walked_later(gr, i) && !is_taken_later(gr, i))
            root_rows(gr, i);
    for (int i = 0; i < g->nodes; i++)
        if (gr->site[i].role == ROLE_FREE) root_rows(gr, i);
    fuse_merge_rows(gr);
    fuse_rows_again(gr);
    fuse_join_finishing(gr);
    fuse_join_lines(gr);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", g->nodes);
    return CODA_OK;
}
