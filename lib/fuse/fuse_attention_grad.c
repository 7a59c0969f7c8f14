/* fuse_attention_grad.c -- the two programs of attention's gradients from their nodes: one leaves what the
 * other reads of each query. */
#include "attention_grad.h"
#include "fuse_attention.h"

#include <string.h>

/* Strides of f32 [B, heads, Tq], as if it had all three dimensions. */
static void by_sums(struct tensor_use *u, const struct type *t)
{
    int64_t batch = t && t->rank == 3 ? u->stride[0] : 0;
    int64_t time = t ? u->stride[t->rank - 1] : 0, head = t ? u->stride[t->rank - 2] : 0;
    memset(u->stride, 0, sizeof u->stride);
    u->batch = batch, u->time = time, u->head = head;
}

/* What attention_delta leaves of each query, whose layout attention_grad.h has. */
static struct tensor_use of_queries(struct writer *w, enum use_role role, int64_t batch, int64_t heads,
                                    int64_t tq)
{
    int root = w->q->p.root, buffer = accumulator_buffer(w->gr, root);
    int64_t rows = mul_counts(mul_counts(2, batch), heads);
    w->gr->plan->buffer[buffer].bytes = mul_counts(4, mul_counts(rows, add_counts(tq, DELTA_STEP)));
    return port_new(role, buffer, 0, CODA_F32, w->gr->g->node[root].in[ATTENTION_GRAD_O]);
}

/* The other program is of the same node. It is written when those that are there have been. */
static void add_delta(struct writer *w)
{
    int root = w->q->p.root, o = w->gr->g->node[root].in[ATTENTION_GRAD_O];
    struct group *delta = group_new(w->gr, PROGRAM_OWN, root);
    if (!delta) return;
    delta->p.own = &own_attention_delta;
    refuse_note(w->gr, delta, o, REASON_OWN_READS, root, 0, 0);
}

static const struct tensor_use absent = {.role = USE_BESIDE, .buffer = -1, .dtype = CODA_I32, .value = -1};

static void read_node(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->q->p.root];
    struct attention_grad_spec *s = w->p->spec;
    int in[ATTENTION_OPERANDS];
    const struct node of = attention_of_grad(n, in);
    for (int i = 0; i < ATTENTION_USES; i++) s->of.use[i] = absent;
    struct attention_spec a = attention_grad_of(s);
    attention_read(g, &of, &a);
    for (int i = 0; i < ATTENTION_OPERANDS; i++)
        if (attention_grad_operand(i) >= 0) s->use[attention_grad_operand(i)] = a.use[i];
    for (int i = 0; i < ATTENTION_USES; i++) a.use[i] = absent;
    s->of = a;
    attention_by_heads(&s->use[ATTENTION_GRAD_DO], &g->node[n->in[ATTENTION_GRAD_DO]].type, s->of.head_dim);
    by_sums(&s->use[ATTENTION_GRAD_LSE], &g->node[n->in[ATTENTION_GRAD_LSE]].type);
    a = attention_grad_of(s);
    s->use[ATTENTION_GRAD_O] = of_queries(w, USE_OPERAND, attention_batches(&a), a.heads, a.tq);
    s->use[ATTENTION_GRAD_DLSE] = absent;
    add_delta(w);
}

/* As bias has it: as if it had all four dimensions. */
static void by_pairs(struct tensor_use *u, const struct type *t)
{
    int64_t stride[CODA_MAX_RANK] = {0};
    for (int d = 0; d < t->rank; d++)
        if (!extent_is_one(t->dim[d])) stride[4 - t->rank + d] = u->stride[d];
    memcpy(u->stride, stride, sizeof stride);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    const struct attention_grad_spec *s = spec;
    if (result > ATTENTION_GRAD_DV) dense_strides(t, to->stride);
    if (result <= ATTENTION_GRAD_DV) attention_by_heads(to, t, s->of.head_dim);
    else if (result == ATTENTION_GRAD_DBIAS) by_pairs(to, t);
    else to->batch = 0, to->head = 1;
}

const struct own_fusion fuse_attention_grad = {
    .kind = &own_attention_grad, .read = read_node, .place = place, .parts = 3};

/* ---- What they read of each query ---- */

static void read_delta(struct writer *w)
{
    static const int by_head[] = {ATTENTION_GRAD_O, ATTENTION_GRAD_DO};
    static const int by_query[] = {ATTENTION_GRAD_LSE, ATTENTION_GRAD_DLSE};
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->q->p.root];
    const struct type *q = &g->node[n->in[ATTENTION_GRAD_Q]].type;
    struct attention_delta_spec *s = w->p->spec;
    s->batch = q->rank == 3 ? q->dim[0] : 1;
    s->tq = q->dim[q->rank - 2];
    s->heads = n->attr.attention_grad.heads;
    s->head_dim = q->dim[q->rank - 1] / s->heads;
    for (int i = 0; i < ATTENTION_GRAD_OPERANDS; i++)
        if (i != by_head[0] && i != by_head[1] && i != by_query[0] && i != by_query[1]) s->use[i] = absent;
    for (int i = 0; i < ARRAY_SIZE(by_head); i++)
        attention_by_heads(&s->use[by_head[i]], &g->node[n->in[by_head[i]]].type, s->head_dim);
    for (int i = 0; i < ARRAY_SIZE(by_query); i++)
        by_sums(&s->use[by_query[i]],
                s->use[by_query[i]].buffer < 0 ? NULL : &g->node[n->in[by_query[i]]].type);
    s->use[ATTENTION_GRAD_DQ] = of_queries(w, USE_RESULT, s->batch, s->heads, s->tq);
}

const struct own_fusion fuse_attention_delta = {
    .kind = &own_attention_delta, .read = read_delta, .place = place};
