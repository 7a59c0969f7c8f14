/*
 * fuse_scan_steps.c -- steps of a selective scan that are a product of few terms.
 *
 *     y = scan(x, cast(r W'), ...)
 *
 * Mamba makes the steps of 5,120 columns of 160 numbers for each token. Of one token that product is a
 * launch of 1.6 MB of weights, which waits for the one ahead of it and is waited for. The scan's blocks
 * multiply the rows of W that belong to their columns instead, and have asked for these before the kernel
 * ahead has ended. Then the product and its cast are of no other program: ROLE_WITHIN. Of more tokens a
 * product of their own is faster, and with CODA_BATCH_INVARIANT a row's bits would tell how many there are.
 */
#include "fuse_own.h"
#include "scan.h"

enum { PIECE = 8 }; /* terms of 16 bytes */

int scan_step_product(const struct grouper *gr, int dt)
{
    if (gr->g->node[dt].op == OP_CAST) dt = gr->g->node[dt].in[CAST_X];
    bool within = gr->g->node[dt].op == OP_MATMUL && gr->site[dt].role == ROLE_WITHIN;
    return within ? dt : -1;
}

/* Do calls of the scan alone read the value, as steps? */
static bool is_of_scan(const struct grouper *gr, int value, const struct node *scan)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++)
        if (u->use[i].operand != SCAN_DT || !node_same_call(scan, &gr->g->node[u->use[i].node])) return false;
    return gr->g->node[value].output < 0 && !gr->site[value].is_const;
}

static bool comes_by_pieces(const struct matrix_view *v)
{
    return !v->packed.format && extent_is_one(v->k) && extent_is_multiple(v->row, PIECE) &&
           extent_is_multiple(v->offset, PIECE);
}

/* Is it one row of few terms by a matrix of the scan's 16 bits? */
static bool is_short(const struct grouper *gr, int product, const struct node *scan)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[product];
    coda_dtype t = g->node[scan->in[SCAN_X]].type.dtype;
    struct matmul_view v;
    bool alike = n->op == OP_MATMUL && gr->site[product].role == ROLE_FREE && dtype_is_half(t) &&
                 !state_is_read(g, n); /* what writes it waits for the product, which no program is */
    for (int i = 0; i < n->nin && alike; i++) alike = g->node[n->in[i]].type.dtype == t;
    if (!alike || !view_matmul(g, n, gr->view, &v)) return false;
    int w = n->in[MATMUL_W];
    bool row = extent_is_one(v.m) && extent_is_one(v.batch) && g->node[w].type.rank == 2 &&
               !gr->site[gr->view[w].base].apart; /* it is in one piece */
    bool few =
        extent_reaches(v.k, 1) && !extent_reaches(v.k, SCAN_MOST_RANK + 1) && extent_is_multiple(v.k, PIECE);
    return row && few && comes_by_pieces(&v.a) && comes_by_pieces(&v.b);
}

static void take(struct grouper *gr, const struct node *scan)
{
    const graph *g = gr->g;
    const struct type *x = &g->node[scan->in[SCAN_X]].type;
    int dt = scan->in[SCAN_DT], product = g->node[dt].op == OP_CAST ? g->node[dt].in[CAST_X] : dt;
    bool own = extents_equal(type_columns(x), type_columns(&g->node[dt].type)) &&
               g->node[scan->in[SCAN_A]].type.rank == 2; /* decays of each column */
    bool alone = product == dt || (uses_count(&gr->uses, product) == 1 && g->node[product].output < 0);
    bool one = extent_is_one(type_rows(x)) && extent_is_one(x->dim[x->rank - 2]);
    if (!own || !alone || !one || !is_of_scan(gr, dt, scan) || !is_short(gr, product, scan)) return;
    gr->site[dt].role = gr->site[product].role = ROLE_WITHIN;
}

void fuse_scan_steps(struct grouper *gr)
{
    for (int i = 0; i < gr->g->nodes && gr->opt->fuse && !gr->opt->invariant; i++)
        if (gr->g->node[i].op == OP_SCAN) take(gr, &gr->g->node[i]);
}
