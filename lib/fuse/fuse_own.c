/* fuse_own.c -- a program of an operation with a kernel of its own: its tensors, as ops.def lists them. */
#include "fuse_own.h"

#include <string.h>

/* ORDER own */
static const struct own_fusion *const fusion[OWN_KINDS] = {
#define X(NAME, name) &fuse_##name,
    OWN_KERNELS(X)
#undef X
};

const struct own_kind *own_kind_of(enum op op)
{
    for (int i = 0; i < OWN_KINDS; i++)
        if (fusion[i]->kind->op == op) return fusion[i]->kind;
    return NULL;
}

/* The same call may be written twice: with fusion that is one, too. */
static bool is_result(const struct grouper *gr, const struct node *root, int value)
{
    const struct node *n = &gr->g->node[value];
    bool free = gr->site[value].role == ROLE_FREE && (gr->opt->fuse || n->origin == root->origin);
    return free && node_same_call(root, n);
}

void own_join(struct grouper *gr, struct group *q)
{
    const struct node *root = &gr->g->node[q->p.root];
    unsigned have = 1u << node_result(root);
    int x = root->in[0];
    if (fusion[q->p.own->index]->join) fusion[q->p.own->index]->join(gr, q);
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1]; i++) {
        int value = gr->uses.use[i].node;
        unsigned result = 1u << node_result(&gr->g->node[value]);
        if (have & result || !is_result(gr, root, value)) continue;
        if (gr->site[value].is_const != gr->site[q->p.root].is_const) continue;
        have |= result;
        group_join(gr, q, value);
    }
}

/* Operand i of the root, from memory; absent if it has none, or a product leaves it in parts. */
static struct tensor_use read_operand(struct writer *w, int i)
{
    struct grouper *gr = w->gr;
    const struct node *root = &gr->g->node[w->p->root];
    enum use_role role = i < op_info[root->op].least ? USE_OPERAND : USE_BESIDE;
    int value = w->q->finishes_best ? -1 : root->in[i];
    struct tensor_use u = port_new(role, -1, 0, CODA_I32, -1);
    u.steady = true;
    if (value < 0) return u;
    const struct type *t = &gr->g->node[value].type;
    const struct view v = gr->view[value];
    gr->site[v.base].need = true;
    u = port_new(role, buffer_of(gr, v.base), v.offset, t->dtype, value);
    u.version = gr->site[v.base].version;
    u.steady = base_is_steady(gr, v.base);
    memcpy(u.stride, v.stride, sizeof *u.stride * (size_t)t->rank);
    return u;
}

void own_read(struct writer *w)
{
    const struct op_info *op = &op_info[w->p->own->op];
    struct tensor_use *use = arena_alloc(&w->gr->plan->arena, w->p->own->size);
    if (!(w->p->spec = use)) return; /* the arena remembers */
    for (int i = 0; i < op->named; i++) use[i] = read_operand(w, i);
    for (int i = 0; i < op->results; i++) use[op->named + i] = port_new(USE_RESULT, -1, 0, CODA_F32, -1);
    fusion[w->p->own->index]->read(w);
}

/* Each result has one store: its own buffer, or the output. */
void own_store(struct writer *w)
{
    struct tensor_use *use = w->p->spec;
    for (int m = w->q->first; m >= 0 && use; m = w->gr->site[m].next) {
        const struct node *n = &w->gr->g->node[m];
        int result = op_info[n->op].named + node_result(n);
        bool adds = n->output >= 0 && w->gr->g->output[n->output].add; /* only: insert_copies.c */
        int buffer = adds ? output_buffer(w->gr, n->output) : buffer_of(w->gr, m);
        use[result] = port_new(USE_RESULT, buffer, 0, n->type.dtype, m);
        use[result].effect = adds ? EFFECT_ADD : 0;
        fusion[w->p->own->index]->place(use, &n->type, result, &use[result]);
    }
}
