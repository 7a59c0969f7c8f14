/* fuse_attention.c -- an attention program from its node: sizes, and the strides of operands and results. */
#include "fuse_attention.h"

#include <string.h>

/* Rows of all heads: batch, time and head, from the strides of a tensor of type t. */
void attention_by_heads(struct tensor_use *u, const struct type *t, int64_t head_dim)
{
    int64_t batch = t->rank == 3 ? u->stride[0] : 0, time = u->stride[t->rank - 2];
    memset(u->stride, 0, sizeof u->stride);
    u->batch = batch, u->time = time, u->head = head_dim;
}

/* Keys, or values: the pages of a pool are as sequences are. */
static void keys(const struct attr_attention *a, struct tensor_use *u, const struct type *t, int64_t head_dim)
{
    int64_t batch = u->stride[0], head = u->stride[1], time = u->stride[2];
    attention_by_heads(u, t, head_dim);
    if (a->layout == CODA_LAYOUT_HND) u->batch = batch, u->head = head, u->time = time;
    else if (a->page) u->batch = a->page * u->time;
}

/* A single scale applies to every head (stride 0). */
static void scale(struct tensor_use *u, const struct type *t)
{
    if (t && extent_is_one(t->dim[0])) u->stride[0] = 0;
}

/* Its strides as if it had all four dimensions. */
static void bias(struct tensor_use *u, const struct type *t)
{
    int64_t stride[CODA_MAX_RANK] = {0};
    for (int d = 0; t && d < t->rank; d++)
        if (!extent_is_one(t->dim[d])) stride[4 - t->rank + d] = u->stride[d];
    memcpy(u->stride, stride, sizeof stride);
}

/* One sequence without the dimension of the batch: its strides as if it had one. */
static void add_batch(struct tensor_use *ranges, const struct type *q)
{
    if (q->rank == 3 || ranges->buffer < 0) return;
    memmove(&ranges->stride[1], &ranges->stride[0], 2 * sizeof ranges->stride[0]);
    ranges->stride[0] = 0;
}

static void lay_out(const struct attr_attention *of, const struct type *const *type, struct attention_spec *a)
{
    attention_by_heads(&a->use[ATTENTION_Q], type[ATTENTION_Q], a->head_dim);
    keys(of, &a->use[ATTENTION_K], type[ATTENTION_K], a->head_dim);
    keys(of, &a->use[ATTENTION_V], type[ATTENTION_V], a->head_dim);
    scale(&a->use[ATTENTION_K_SCALE], type[ATTENTION_K_SCALE]);
    scale(&a->use[ATTENTION_V_SCALE], type[ATTENTION_V_SCALE]);
    bias(&a->use[ATTENTION_BIAS], type[ATTENTION_BIAS]);
    add_batch(&a->use[ATTENTION_RANGES], type[ATTENTION_Q]);
    a->use[ATTENTION_O].dtype = type[ATTENTION_Q]->dtype; /* kernels have it even where it is not wanted */
}

void attention_read(const graph *g, const struct node *n, struct attention_spec *a)
{
    const struct attr_attention *of = &n->attr.attention;
    const struct type *type[ATTENTION_OPERANDS];
    for (int i = 0; i < ATTENTION_OPERANDS; i++) type[i] = n->in[i] < 0 ? NULL : &g->node[n->in[i]].type;
    const struct type *q = type[ATTENTION_Q], *k = type[ATTENTION_K];
    a->heads = MAX(of->heads, 1);
    a->kv_heads = of->kv_heads ? of->kv_heads : a->heads;
    a->head_dim = type_columns(q) / a->heads;
    a->batch = q->rank == 3 ? q->dim[0] : 1;
    a->tq = q->dim[q->rank - 2];
    a->page = of->page;
    a->slots = (of->layout == CODA_LAYOUT_HND && of->page ? k->dim[0] : 1) * k->dim[k->rank - 2];
    a->tk = a->page ? type_columns(type[ATTENTION_TABLE]) * a->page : a->slots;
    a->window = of->window;
    a->ahead = of->ahead;
    a->softcap = of->softcap;
    a->score = n->prim;
    memcpy(a->score_param, of->score, sizeof a->score_param);
    a->causal = of->causal != 0;
    a->align = (coda_attention_align)of->align;
    a->scale = of->scale;
    if (attention_is_packed(a)) a->batch = type_columns(type[ATTENTION_STARTS]) - 1;
    lay_out(of, type, a);
}

static void read_node(struct writer *w)
{
    const graph *g = w->gr->g;
    attention_read(g, &g->node[w->q->p.root], w->p->spec);
}

/* The sums lie as the kernels write them, which have no strides for them. */
static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    const struct attention_spec *a = spec;
    if (result != ATTENTION_O) return;
    attention_by_heads(to, t, a->head_dim);
}

const struct own_fusion fuse_attention = {
    .kind = &own_attention, .read = read_node, .place = place, .parts = 1};
