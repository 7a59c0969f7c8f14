/* top_k.c -- the k largest of each row as a program: values and indices of one call are one launch. */
#include "fuse.h"
#include "own.h"

#include <string.h>

static struct tensor_use *use(void *spec, int i)
{
    struct top_k_spec *s = spec;
    if (i == 0) return &s->x;
    return i <= s->outs ? &s->out[i - 1] : NULL;
}

int64_t top_k_candidates(const struct top_k_spec *s)
{
    return s->x.reduce ? (int64_t)s->x.blocks * (s->x.reduce->state / 2) : s->columns;
}

/* ---- From the graph ---- */

/* Is n what else there is to say of the root's rows? Without fusion of the same call alone. */
static bool is_sibling(const struct grouper *gr, const struct node *root, int value)
{
    const struct node *n = &gr->g->node[value];
    bool same = n->op == OP_TOP_K && n->attr.top_k.k == root->attr.top_k.k;
    return same && n->attr.top_k.indices != root->attr.top_k.indices && gr->site[value].role == ROLE_FREE &&
           (gr->opt->fuse || n->origin == root->origin);
}

static void join(struct grouper *gr, struct group *q)
{
    const struct node *root = &gr->g->node[q->p.root];
    int x = root->in[0];
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1] && q->members == 1; i++) {
        int value = gr->uses.use[i].node;
        if (is_sibling(gr, root, value) && gr->site[value].is_const == gr->site[q->p.root].is_const)
            group_join(gr, q, value);
    }
}

static void read_rows(struct writer *w)
{
    const struct node *n = &w->gr->g->node[w->p->root];
    const struct type *t = &w->gr->g->node[n->in[0]].type;
    const struct view v = w->gr->view[n->in[0]];
    struct top_k_spec *s = ARENA_NEW(&w->gr->plan->arena, struct top_k_spec, 1);
    if (!(w->p->spec = s)) return; /* the arena remembers */
    w->p->rank = t->rank;
    memcpy(w->p->dim, t->dim, sizeof w->p->dim);
    s->rows = type_rows(t);
    s->columns = type_columns(t);
    s->k = n->attr.top_k.k;
    w->gr->site[v.base].need = true;
    s->x = port_new(USE_LOAD, buffer_of(w->gr, v.base), v.offset, t->dtype, n->in[0]);
    memcpy(s->x.stride, v.stride, sizeof s->x.stride[0] * (size_t)t->rank);
}

/* Each has one store: its own buffer, or the output. */
static void store_results(struct writer *w)
{
    struct top_k_spec *s = w->p->spec;
    if (!s) return;
    for (int m = w->q->first; m >= 0; m = w->gr->site[m].next) {
        const struct type *t = &w->gr->g->node[m].type;
        struct tensor_use *out = &s->out[s->outs++];
        *out = port_new(USE_RESULT, buffer_of(w->gr, m), 0, t->dtype, m);
        dense_strides(t, out->stride);
    }
}

/* ---- Work, and text ---- */

static int64_t bytes(const void *spec)
{
    const struct top_k_spec *s = spec;
    int64_t row = mul_counts(top_k_candidates(s), s->x.reduce ? 8 : dtype_size(s->x.dtype));
    for (int i = 0; i < s->outs; i++) row = add_counts(row, mul_counts(s->k, dtype_size(s->out[i].dtype)));
    return mul_counts(s->rows, row);
}

static double flops(const void *spec)
{
    (void)spec;
    return 0;
}

static void print(const void *spec, struct text *t)
{
    const struct top_k_spec *s = spec;
    text_printf(t, "top_k k=%lld rows=%lld columns=%lld", (long long)s->k, (long long)s->rows,
                (long long)s->columns);
}

const struct own_kind plan_top_k = {.index = OWN_TOP_K,
                                    .op = OP_TOP_K,
                                    .name = "top_k",
                                    .size = sizeof(struct top_k_spec),
                                    .shown = 3,
                                    .use_name = {"of", "to", "to"},
                                    .use = use,
                                    .bytes = bytes,
                                    .flops = flops,
                                    .print = print,
                                    .join = join,
                                    .read = read_rows,
                                    .store = store_results};
