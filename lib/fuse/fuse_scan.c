/* fuse_scan.c -- a scan program from its node: sizes, and the strides of rows. */
#include "fuse_own.h"
#include "scan.h"

#include <string.h>

/* Strides of what has a row of adjacent columns for each token. */
static void by_rows(struct tensor_use *u, const struct type *t)
{
    int64_t batch = t->rank == 3 ? u->stride[0] : 0, time = u->stride[t->rank - 2];
    memset(u->stride, 0, sizeof u->stride);
    u->batch = batch, u->time = time, u->stride[2] = 1;
}

/* What is dense has no strides in the program. */
static void dense(struct tensor_use *u) { memset(u->stride, 0, sizeof u->stride); }

/* Steps that the kernel multiplies itself: dt is a row of the product, and weights are beside it. */
static void read_product(struct writer *w, struct scan_spec *s)
{
    const graph *g = w->gr->g;
    int product = scan_step_product(w->gr, g->node[w->p->root].in[SCAN_DT]);
    if (product < 0) return;
    const int *in = g->node[product].in;
    s->rank = type_columns(&g->node[in[MATMUL_X]].type);
    s->use[SCAN_DT] = port_of(w, USE_OPERAND, in[MATMUL_X]);
    s->weights = port_of(w, USE_OPERAND, in[MATMUL_W]);
    if (g->node[product].attr.matmul.kn) /* w is [rank][heads] */
        s->weights.stride[0] = s->weights.stride[1], s->weights.stride[1] = 1;
    by_rows(&s->use[SCAN_DT], &g->node[in[MATMUL_X]].type);
}

/* Is what the kernel has besides a token there before the run, and the state, too, but for what this program
 * makes of it? */
static bool is_early(const struct grouper *gr, const struct scan_spec *s, int state)
{
    static const int beside[] = {SCAN_A, SCAN_DT_BIAS, SCAN_SKIP};
    bool early = !s->rank || s->weights.steady;
    for (int i = 0; i < ARRAY_SIZE(beside); i++)
        early = early && (s->use[beside[i]].buffer < 0 || s->use[beside[i]].steady);
    const struct tensor_use *u = &s->use[SCAN_STATE];
    bool leaf = state < 0 || (gr->site[gr->view[state].base].role == ROLE_LEAF && u->version == 0);
    return early && leaf;
}

static void read_node(struct writer *w)
{
    static const int of_rows[] = {SCAN_X, SCAN_DT, SCAN_B, SCAN_C, SCAN_GATE}; /* dt, if it is in memory */
    static const int whole[] = {SCAN_A, SCAN_STATE, SCAN_DT_BIAS, SCAN_SKIP};
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->p->root];
    struct scan_spec *s = w->p->spec;
    const struct type *type[SCAN_OPERANDS];
    for (int i = 0; i < SCAN_OPERANDS; i++) type[i] = n->in[i] < 0 ? NULL : &g->node[n->in[i]].type;
    const struct type *x = type[SCAN_X];
    s->heads = type_columns(type[SCAN_DT]);
    s->head_dim = type_columns(x) / s->heads;
    s->groups = n->attr.scan.groups;
    s->states = type_columns(type[SCAN_B]) / s->groups;
    s->batch = scan_has(s, SCAN_STARTS) ? type_columns(type[SCAN_STARTS]) - 1 : x->rank == 3 ? x->dim[0] : 1;
    s->tokens = x->dim[x->rank - 2];
    s->each = type[SCAN_A]->rank == 2;
    s->softplus = n->attr.scan.softplus != 0;
    for (int i = 0; i < ARRAY_SIZE(of_rows); i++)
        if (type[of_rows[i]]) by_rows(&s->use[of_rows[i]], type[of_rows[i]]);
    for (int i = 0; i < ARRAY_SIZE(whole); i++) dense(&s->use[whole[i]]);
    read_product(w, s);
    s->early = is_early(w->gr, s, n->in[SCAN_STATE]);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec;
    if (result == SCAN_AFTER) return;
    dense_strides(t, to->stride);
    by_rows(to, t);
}

const struct own_fusion fuse_scan = {.kind = &own_scan,
                                     .read = read_node,
                                     .place = place,
                                     .states = 1u << (SCAN_AFTER - SCAN_OPERANDS),
                                     .state = SCAN_STATE};
