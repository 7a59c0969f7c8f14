/* fuse_attention_grad.c -- a program of attention's gradients from its nodes. */
#include "attention_grad.h"
#include "fuse_attention.h"

#include <string.h>

/* Of f32 [B, heads, Tq], as if it had all three dimensions. */
static void by_sums(struct tensor_use *u, const struct type *t)
{
    int64_t batch = t && t->rank == 3 ? u->stride[0] : 0;
    int64_t time = t ? u->stride[t->rank - 1] : 0, head = t ? u->stride[t->rank - 2] : 0;
    memset(u->stride, 0, sizeof u->stride);
    u->batch = batch, u->time = time, u->head = head;
}

static void read_node(struct writer *w)
{
    static const int rows[] = {ATTENTION_GRAD_O, ATTENTION_GRAD_DO};
    static const int sums[] = {ATTENTION_GRAD_LSE, ATTENTION_GRAD_DLSE};
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->q->p.root];
    struct attention_grad_spec *s = w->p->spec;
    const struct tensor_use absent = {.role = USE_BESIDE, .buffer = -1, .dtype = CODA_I32, .value = -1};
    int in[ATTENTION_OPERANDS];
    const struct node of = attention_of_grad(n, in);
    for (int i = 0; i < ATTENTION_USES; i++) s->of.use[i] = absent;
    struct attention_spec a = attention_grad_of(s);
    attention_read(g, &of, &a);
    for (int i = 0; i < ATTENTION_OPERANDS; i++)
        if (attention_grad_operand(i) >= 0) s->use[attention_grad_operand(i)] = a.use[i];
    for (int i = 0; i < ATTENTION_USES; i++) a.use[i] = absent;
    s->of = a;
    for (int i = 0; i < ARRAY_SIZE(rows); i++)
        attention_by_heads(&s->use[rows[i]], &g->node[n->in[rows[i]]].type, s->of.head_dim);
    for (int i = 0; i < ARRAY_SIZE(sums); i++)
        by_sums(&s->use[sums[i]], s->use[sums[i]].buffer < 0 ? NULL : &g->node[n->in[sums[i]]].type);
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
    dense_strides(t, to->stride);
    if (result <= ATTENTION_GRAD_DV) attention_by_heads(to, t, s->of.head_dim);
    else if (result == ATTENTION_GRAD_DBIAS) by_pairs(to, t);
    else to->batch = 0, to->head = 1;
}

const struct own_fusion fuse_attention_grad = {
    .kind = &own_attention_grad, .read = read_node, .place = place};
