/* attention.c -- attention as a program: its tensors, its work, its text. */
#include "fuse.h"
#include "own.h"

#include <string.h>

static struct tensor_use *use(void *spec, int i)
{
    struct attention_spec *s = spec;
    struct tensor_use *of[] = {&s->q,       &s->k,       &s->v,      &s->o,     &s->lse,
                               &s->lengths, &s->ranges,  &s->slopes, &s->sinks, &s->table,
                               &s->k_scale, &s->v_scale, &s->starts, &s->bias};
    for (int k = 0; k < ARRAY_SIZE(of); k++)
        if ((k < 3 || of[k]->buffer >= 0) && i-- == 0) return of[k];
    return NULL;
}

/* ---- From the graph ---- */

static void heads(struct grouper *gr, int value, int64_t head_dim, struct tensor_use *out)
{
    const struct type *t = &gr->g->node[value].type;
    const struct view v = gr->view[value];
    gr->site[v.base].need = true;
    *out = (struct tensor_use){.role = USE_OPERAND,
                               .buffer = buffer_of(gr, v.base),
                               .offset = v.offset,
                               .dtype = t->dtype,
                               .value = value,
                               .version = gr->site[v.base].version,
                               .steady = base_is_steady(gr, v.base),
                               .batch = t->rank == 3 ? v.stride[0] : 0,
                               .time = v.stride[t->rank - 2],
                               .head = head_dim};
}

/* Keys, or values: the pages of a pool are as sequences are. */
static void keys(struct grouper *gr, const struct node *n, int value, struct tensor_use *out)
{
    const struct attr_attention *a = &n->attr.attention;
    const int64_t *stride = gr->view[value].stride;
    heads(gr, value, out->head, out);
    if (a->layout == CODA_LAYOUT_HND) out->batch = stride[0], out->head = stride[1], out->time = stride[2];
    else if (a->page) out->batch = a->page * out->time;
}

static void beside(struct grouper *gr, const struct node *n, int i, struct tensor_use *out)
{
    int value = i < n->nin ? n->in[i] : -1;
    *out =
        (struct tensor_use){.role = USE_BESIDE, .buffer = -1, .dtype = CODA_I32, .value = -1, .steady = true};
    if (value < 0) return;
    const struct view v = gr->view[value];
    gr->site[v.base].need = true;
    out->dtype = gr->g->node[value].type.dtype;
    out->buffer = buffer_of(gr, v.base);
    out->value = value;
    out->version = gr->site[v.base].version;
    out->steady = base_is_steady(gr, v.base);
    out->offset = v.offset;
    memcpy(out->stride, v.stride, sizeof out->stride);
}

/* One for all heads is there for each. */
static void scale(struct grouper *gr, const struct node *n, int i, struct tensor_use *out)
{
    beside(gr, n, i, out);
    if (out->value < 0) return;
    if (extent_is_one(gr->g->node[out->value].type.dim[0])) out->stride[0] = 0;
}

/* Its strides as if it had all four dimensions. */
static void bias(struct grouper *gr, const struct node *n, int i, struct tensor_use *out)
{
    beside(gr, n, i, out);
    if (out->value < 0) return;
    const struct type *t = &gr->g->node[out->value].type;
    int64_t stride[CODA_MAX_RANK] = {0};
    for (int d = 0; d < t->rank; d++)
        if (!extent_is_one(t->dim[d])) stride[4 - t->rank + d] = out->stride[d];
    memcpy(out->stride, stride, sizeof stride);
}

/* One sequence without the dimension of the batch: its strides as if it had one. */
static void add_batch(struct tensor_use *ranges, const struct type *q)
{
    if (q->rank == 3 || ranges->buffer < 0) return;
    memmove(&ranges->stride[1], &ranges->stride[0], 2 * sizeof ranges->stride[0]);
    ranges->stride[0] = 0;
}

static void read_operands(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->q->p.root];
    const struct attr_attention *of = &n->attr.attention;
    struct attention_spec *a = ARENA_NEW(&w->gr->plan->arena, struct attention_spec, 1);
    const struct type *q = &g->node[n->in[0]].type, *k = &g->node[n->in[1]].type;
    if (!(w->p->spec = a)) return; /* the arena remembers */
    a->o = a->lse = (struct tensor_use){.role = USE_RESULT, .buffer = -1, .dtype = q->dtype, .value = -1};
    a->heads = MAX(of->heads, 1);
    a->kv_heads = of->kv_heads ? of->kv_heads : a->heads;
    a->head_dim = type_columns(q) / a->heads;
    a->batch = q->rank == 3 ? q->dim[0] : 1;
    a->tq = q->dim[q->rank - 2];
    a->page = of->page;
    a->slots = (of->layout == CODA_LAYOUT_HND && of->page ? k->dim[0] : 1) * k->dim[k->rank - 2];
    a->tk = a->page ? type_columns(&g->node[n->in[7]].type) * a->page : a->slots;
    a->window = of->window;
    a->ahead = of->ahead;
    a->softcap = of->softcap;
    a->score = n->prim;
    memcpy(a->score_param, of->score, sizeof a->score_param);
    a->causal = of->causal != 0;
    a->align = (coda_attention_align)of->align;
    a->scale = of->scale;
    heads(w->gr, n->in[0], a->head_dim, &a->q);
    a->k.head = a->v.head = a->head_dim;
    keys(w->gr, n, n->in[1], &a->k);
    keys(w->gr, n, n->in[2], &a->v);
    beside(w->gr, n, 3, &a->lengths);
    beside(w->gr, n, 4, &a->ranges);
    beside(w->gr, n, 5, &a->slopes);
    beside(w->gr, n, 6, &a->sinks);
    beside(w->gr, n, 7, &a->table);
    scale(w->gr, n, 8, &a->k_scale);
    scale(w->gr, n, 9, &a->v_scale);
    beside(w->gr, n, 10, &a->starts);
    bias(w->gr, n, 11, &a->bias);
    if (attention_is_packed(a)) a->batch = type_columns(&g->node[n->in[10]].type) - 1;
    add_batch(&a->ranges, q);
}

/* Does n say what the root does not, of the same attention? */
static bool is_sibling(const struct node *root, const struct node *n)
{
    struct node same = *n;
    if (n->op != OP_ATTENTION || n->origin != root->origin || n->nin != root->nin) return false;
    same.attr.attention.lse = root->attr.attention.lse;
    return n->attr.attention.lse != root->attr.attention.lse && attr_equal(&same, root) &&
           !memcmp(n->in, root->in, sizeof *n->in * (size_t)n->nin);
}

/* The result and the sums of one call are one launch. */
static void join(struct grouper *gr, struct group *q)
{
    const graph *g = gr->g;
    const struct node *root = &g->node[q->p.root];
    int x = root->in[0];
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1] && q->members == 1; i++) {
        int value = gr->uses.use[i].node;
        if (is_sibling(root, &g->node[value]) && gr->site[value].role == ROLE_FREE &&
            gr->site[value].is_const == gr->site[q->p.root].is_const)
            group_join(gr, q, value);
    }
}

/* Each result has one store: its own buffer, or the output. */
static void store_results(struct writer *w)
{
    struct attention_spec *a = w->p->spec;
    if (!a) return;
    for (int m = w->q->first; m >= 0; m = w->gr->site[m].next) {
        const struct node *n = &w->gr->g->node[m];
        const struct type *t = &n->type;
        struct tensor_use *to = n->attr.attention.lse ? &a->lse : &a->o;
        int64_t dense[CODA_MAX_RANK];
        dense_strides(t, dense);
        *to = port_new(USE_RESULT, buffer_of(w->gr, m), 0, t->dtype, m);
        if (to == &a->lse) continue;
        to->batch = t->rank == 3 ? dense[0] : 0;
        to->time = dense[t->rank - 2];
        to->head = a->head_dim;
    }
}

/* ---- Work ---- */

static int64_t bias_bytes(const struct attention_spec *a)
{
    int64_t extent[] = {attention_batches(a), a->heads, a->tq, a->tk}, elements = 1;
    for (int i = 0; i < ARRAY_SIZE(extent); i++)
        if (a->bias.stride[i]) elements = mul_counts(elements, extent[i]);
    return a->bias.buffer < 0 ? 0 : dtype_bytes(a->bias.dtype, elements);
}

static int64_t bytes(const void *spec)
{
    const struct attention_spec *a = spec;
    int64_t keys = mul_counts(mul_counts(a->batch, a->head_dim), mul_counts(a->tk, a->kv_heads));
    int64_t queries = mul_counts(mul_counts(attention_batches(a), a->head_dim), mul_counts(a->tq, a->heads));
    int64_t read = add_counts(dtype_bytes(a->k.dtype, keys), dtype_bytes(a->v.dtype, keys));
    return add_counts(add_counts(mul_counts(2, dtype_bytes(a->q.dtype, queries)), read), bias_bytes(a));
}

/* The sum of min(max(j, 0), most) for j < n. */
static double ramp(double n, double most)
{
    if (n <= 0) return 0;
    return n <= most ? n * (n - 1) / 2 : most * (most - 1) / 2 + most * (n - most);
}

/* Pairs of query and key that are not masked, if every sequence has all keys and ranges hide none. The query
 * at position p sees the keys below min(max(p + ahead + 1, 0), tk), or, if nothing limits it, below tk; all
 * but those below min(max(p + 1 - window, 0), tk). Packed queries count as shared out evenly. */
static double visible_pairs(const struct attention_spec *a)
{
    double tq = (double)a->tq / (attention_is_packed(a) ? (double)MAX(a->batch, 1) : 1), tk = (double)a->tk;
    double past = (a->align == CODA_ALIGN_START ? 0 : tk - tq) + 1;
    double last = past + (double)a->ahead;
    double below = tq * tk, hidden = 0, window = (double)a->window;
    bool rows = a->align == CODA_ALIGN_LENGTH; /* at positions below 0 are none of the sequence */
    if (attention_is_limited(a))
        below = ramp(last + tq, tk) - ramp(rows ? MAX(last, (double)a->ahead + 1) : last, tk);
    else if (rows && (a->window || attention_is_placed(a))) below = MIN(tq, tk) * tk;
    if (a->window) hidden = ramp(past - window + tq, tk) - ramp(past - window, tk);
    return MAX(below - hidden, 0);
}

static double flops(const void *spec)
{
    const struct attention_spec *a = spec;
    return 4.0 * visible_pairs(a) * (double)a->batch * (double)a->heads * (double)a->head_dim;
}

/* Of caches, as many keys as lengths say. */
static bool by_data(const void *spec)
{
    const struct attention_spec *a = spec;
    return a->lengths.buffer >= 0 || a->ranges.buffer >= 0;
}

/* ---- Text ---- */

static void print_bias(const struct attention_spec *a, struct text *t)
{
    if (a->bias.buffer < 0) return;
    text_printf(t, " bias=%s[", dtype_name(a->bias.dtype));
    for (int i = 0; i < 4; i++) text_printf(t, "%s%lld", i ? "," : "", (long long)a->bias.stride[i]);
    text_append(t, "]");
}

static void print(const void *spec, struct text *t)
{
    const struct attention_spec *a = spec;
    text_printf(t, "attention batch=%lld tq=%lld tk=%lld heads=%lld kv_heads=%lld head_dim=%lld",
                (long long)a->batch, (long long)a->tq, (long long)a->tk, (long long)a->heads,
                (long long)a->kv_heads, (long long)a->head_dim);
    if (a->causal) text_append(t, " causal");
    if (a->window) text_printf(t, " window=%lld", (long long)a->window);
    if (a->align == CODA_ALIGN_START) text_append(t, " from_start");
    if (a->align == CODA_ALIGN_LENGTH) text_append(t, " from_length");
    if (a->ahead) text_printf(t, " ahead=%lld", (long long)a->ahead);
    if (a->softcap != 0) text_printf(t, " softcap=%a", a->softcap);
    if (a->score) text_printf(t, " score=%s", a->score->name);
    for (int i = 0; a->score && i < a->score->params; i++)
        text_printf(t, "%s%s=%a%s", i ? " " : " {", a->score->param_name[i], (double)a->score_param[i],
                    i + 1 < a->score->params ? "" : "}");
    if (a->lengths.buffer >= 0) text_append(t, " lengths");
    if (a->ranges.buffer >= 0) text_append(t, " ranges");
    if (a->slopes.buffer >= 0) text_append(t, " slopes");
    if (a->sinks.buffer >= 0) text_append(t, " sinks");
    if (a->lse.buffer >= 0) text_append(t, a->o.buffer < 0 ? " lse alone" : " lse");
    if (a->page) text_printf(t, " page=%lld", (long long)a->page);
    if (a->k_scale.buffer >= 0) text_append(t, " k_scale");
    if (a->v_scale.buffer >= 0) text_append(t, " v_scale");
    if (attention_is_packed(a)) text_append(t, " starts");
    print_bias(a, t);
}

const struct own_kind plan_attention = {.index = OWN_ATTENTION,
                                        .op = OP_ATTENTION,
                                        .name = "attention",
                                        .size = sizeof(struct attention_spec),
                                        .by_units = true,
                                        .shown = 4,
                                        .use_name = {"q", "k", "v", "o"},
                                        .stride_name = {"batch", "time", "head"},
                                        .use = use,
                                        .bytes = bytes,
                                        .flops = flops,
                                        .by_data = by_data,
                                        .print = print,
                                        .read = read_operands,
                                        .join = join,
                                        .store = store_results};
