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

/* ---- Rows that this run appends ---- */

/* The append that has made the value of a state that nothing wrote before it in this run, if slots count the
 * keys of all sequences, or of the pool. */
static const struct node *append_of(const graph *g, int value, const struct attr_attention *of)
{
    const struct node *n = &g->node[value];
    bool by_heads = of->layout == CODA_LAYOUT_HND;
    int64_t columns = type_columns(&n->type);
    while (n->op == OP_RESHAPE && !by_heads) n = &g->node[n->in[VIEW_OF]];
    if (n->op != OP_APPEND || n->attr.append.layout != of->layout) return NULL;
    bool counts = by_heads || extents_equal(type_columns(&n->type), columns);
    return counts && g->node[n->in[APPEND_STATE]].op == OP_STATE ? n : NULL;
}

/* All that this run writes of keys and values, if no run writes the slots: then a kernel may read other rows
 * while the programs ahead of it still run. */
static void find_written(const struct writer *w, const struct node *n, struct attention_spec *a)
{
    struct grouper *gr = w->gr;
    const struct attr_attention *of = &n->attr.attention;
    const struct node *k = append_of(gr->g, n->in[ATTENTION_K], of);
    const struct node *v = append_of(gr->g, n->in[ATTENTION_V], of);
    if (!k || !v || k->in[APPEND_SLOTS] != v->in[APPEND_SLOTS]) return;
    int slots = k->in[APPEND_SLOTS];
    const struct type *t = &gr->g->node[slots].type;
    const struct view *at = &gr->view[slots];
    int64_t stride, count = type_elements(t);
    if (gr->site[at->base].role != ROLE_LEAF || !base_is_steady(gr, at->base)) return;
    if (count < 1 || !view_collapse(t, at->stride, 0, t->rank, &stride) || (count > 1 && stride != 1)) return;
    a->appends = true;
    a->written = port_new(USE_BESIDE, buffer_of(gr, at->base), at->offset, t->dtype, slots);
    a->written.steady = true, a->written.table_rows = count;
}

static void read_node(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->q->p.root];
    attention_read(g, n, w->p->spec);
    find_written(w, n, w->p->spec);
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
