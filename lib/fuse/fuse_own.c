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
    for (int i = 0; i < OWN_KINDS; i++) {
        const struct own_kind *k = fusion[i]->kind;
        if (k->op == op) return k;
        for (int j = 0; j < k->likes; j++)
            if (k->like[j] == op) return k;
    }
    return NULL;
}

/* The same call may be written twice: with fusion that is one, too. */
static bool is_result(const struct grouper *gr, const struct node *root, int value)
{
    const struct node *n = &gr->g->node[value];
    bool free = gr->site[value].role == ROLE_FREE && (gr->opt->fuse || n->origin == root->origin);
    return free && node_same_call(root, n);
}

/* ---- Parts of concats ---- */

static int part_of(const struct grouper *gr, int copy) { return gr->uses.use[gr->uses.at[copy]].node; }

/* The copy of a result that is one part of a concat, and all that is read of the result; -1: none. */
static int part_copy(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    int copy = uses_count(&gr->uses, value) == 1 ? gr->uses.use[gr->uses.at[value]].node : -1;
    if (copy < 0 || g->node[value].output >= 0 || g->node[copy].output >= 0) return -1;
    bool same = g->node[copy].op == OP_CAST && g->node[copy].type.dtype == g->node[value].type.dtype;
    return same && uses_count(&gr->uses, copy) == 1 ? copy : -1;
}

/* Has the concat's part rows whose columns are adjacent, and begin where kernels store 16 bytes at once? */
static bool suits_part(const struct grouper *gr, int copy)
{
    enum { UNIT = 16 };
    const struct node *c = &gr->g->node[part_of(gr, copy)];
    int64_t stride[CODA_MAX_RANK];
    if (c->op != OP_CONCAT || c->type.rank < 2) return false;
    int64_t unit = UNIT / dtype_bytes(c->type.dtype, 1);
    int64_t offset = part_offset(gr, part_of(gr, copy), gr->uses.use[gr->uses.at[copy]].operand);
    view_part(c, stride);
    return extent_is_one(stride[c->type.rank - 1]) && extent_is_multiple(offset, unit) &&
           extent_is_multiple(stride[c->type.rank - 2], unit);
}

/* Results that are copied to where they are read are stored there. */
static void join_parts(struct grouper *gr, struct group *q)
{
    int next;
    for (int m = q->first; m >= 0 && gr->opt->fuse; m = next) {
        const struct node *n = &gr->g->node[m];
        int copy = part_copy(gr, m);
        next = gr->site[m].next;
        bool part = copy >= 0 && node_result(n) < fusion[q->p.own->index]->parts && suits_part(gr, copy);
        bool free = part && gr->site[copy].role == ROLE_FREE;
        if (free && gr->site[copy].is_const == gr->site[m].is_const) group_join(gr, q, copy);
    }
}

/* ---- States ---- */

/* The version of a state that is the result, and all that is read of it; -1: none. */
static int version_of(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    int version = uses_count(&gr->uses, value) == 1 ? gr->uses.use[gr->uses.at[value]].node : -1;
    bool takes = version >= 0 && g->node[version].op == OP_ASSIGN && g->node[value].output < 0;
    return takes && g->node[version].in[ASSIGN_VALUE] == value ? version : -1;
}

/* May q write the version where it is? Who reads the one ahead of it does not wait for q; q itself reads it
 * by the one operand that lies as the result does. */
static bool may_write(struct grouper *gr, const struct group *q, int version)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[version], *root = &g->node[q->p.root];
    int over = n->in[ASSIGN_STATE], own = fusion[q->p.own->index]->state;
    int64_t dense[CODA_MAX_RANK];
    dense_strides(&n->type, dense);
    if (gr->site[version].role != ROLE_FREE || !extents_all_equal(dense, n->stride, n->type.rank))
        return false;
    for (int i = 0; i < root->nin; i++) {
        bool reads = root->in[i] >= 0 && g->node[root->in[i]].state == over;
        if (reads && (i != own || root->in[i] != over)) return false; /* a view may turn it */
    }
    for (int i = 0; i < n->nin; i++)
        if (i != ASSIGN_VALUE && n->in[i] >= 0 && !group_holds(gr, q, n->in[i]) &&
            group_depends(gr, n->in[i], q))
            return false;
    return true;
}

/* Results that states become are stored there. */
static void join_states(struct grouper *gr, struct group *q)
{
    int next;
    for (int m = q->first; m >= 0 && gr->opt->fuse; m = next) {
        unsigned result = 1u << node_result(&gr->g->node[m]);
        next = gr->site[m].next;
        int version = fusion[q->p.own->index]->states & result ? version_of(gr, m) : -1;
        if (version >= 0 && may_write(gr, q, version)) group_join(gr, q, version);
    }
}

/* ---- Maps ---- */

/* A map of the first result alone, which is all that is read of it; -1: none. A state that a result becomes
 * is a member, too, and none of them. */
static int mapped_by(const struct grouper *gr, int value)
{
    const struct node *of = &gr->g->node[value];
    int reader = uses_count(&gr->uses, value) == 1 ? gr->uses.use[gr->uses.at[value]].node : -1;
    if (reader < 0 || of->output >= 0 || node_result(of) || !own_kind_of(of->op)) return -1;
    const struct node *n = &gr->g->node[reader];
    bool known = n->op == OP_MAP && n->nin == 1 && n->prim->header && n->prim->reference;
    bool same = n->type.dtype == of->type.dtype;
    return known && same && group_has_one_place(gr, reader) ? reader : -1;
}

static void join_map(struct grouper *gr, struct group *q)
{
    for (int m = q->first; m >= 0 && gr->opt->fuse && fusion[q->p.own->index]->maps; m = gr->site[m].next) {
        int map = mapped_by(gr, m);
        if (map < 0 || gr->site[map].role != ROLE_FREE) continue;
        if (gr->site[map].is_const == gr->site[m].is_const) group_join(gr, q, map);
        return;
    }
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
    join_parts(gr, q);
    join_states(gr, q);
    join_map(gr, q);
}

/* Operand i of the root; absent if it has none, a product leaves it in parts, or the kernel makes it. */
static struct tensor_use read_operand(struct writer *w, int i)
{
    const struct node *root = &w->gr->g->node[w->p->root];
    bool made = root->in[i] >= 0 && w->gr->site[root->in[i]].role == ROLE_WITHIN;
    made = made || (w->q->conv1d_rows && i == CONV1D_X);
    enum use_role role = i < op_info[root->op].least ? USE_OPERAND : USE_BESIDE;
    return port_of(w, role, w->q->finishes_best || made ? -1 : root->in[i]);
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

/* Where a result lies: in its own buffer, in the output, in a concat, or in a state. */
static struct tensor_use result_use(struct writer *w, int value)
{
    struct grouper *gr = w->gr;
    bool maps = fusion[w->p->own->index]->maps;
    int map = maps ? mapped_by(gr, value) : -1;
    int last = fusion[w->p->own->index]->last ? fusion[w->p->own->index]->last(gr, w->q, value) : -1;
    if (map >= 0 && group_holds(gr, w->q, map)) value = map;
    if (last >= 0) value = last;
    const struct node *n = &gr->g->node[value];
    bool adds = n->output >= 0 && gr->g->output[n->output].add; /* only: insert_copies.c */
    int copy = part_copy(gr, value), part = copy >= 0 && group_holds(gr, w->q, copy) ? part_of(gr, copy) : -1;
    int version = version_of(gr, value);
    if (version >= 0 && group_holds(gr, w->q, version)) {
        struct tensor_use u = port_new(USE_RESULT, buffer_of(gr, version), 0, n->type.dtype, version);
        u.version = gr->site[version].version;
        return u;
    }
    int buffer = part >= 0 ? buffer_of(gr, part) : adds ? output_buffer(gr, n->output) : buffer_of(gr, value);
    struct tensor_use u = port_new(USE_RESULT, buffer, 0, n->type.dtype, part >= 0 ? copy : value);
    u.version = gr->site[value].version;
    u.effect = adds ? EFFECT_ADD : 0;
    if (part >= 0) u.offset = part_offset(gr, part, gr->uses.use[gr->uses.at[copy]].operand);
    if (part >= 0) view_part(&gr->g->node[part], u.stride);
    else if (node_result(n) < fusion[w->p->own->index]->parts) dense_strides(&n->type, u.stride);
    return u;
}

/* Each result has one store. */
void own_store(struct writer *w)
{
    struct tensor_use *use = w->p->spec;
    for (int m = w->q->first; m >= 0 && use; m = w->gr->site[m].next) {
        const struct node *n = &w->gr->g->node[m];
        bool member = n->op == OP_CAST || n->op == OP_ASSIGN || n->op == OP_MAP || n->op == OP_REDUCE;
        if (member) continue; /* it is stored as what it is made of */
        int result = op_info[n->op].named + node_result(n);
        use[result] = result_use(w, m);
        fusion[w->p->own->index]->place(use, &n->type, result, &use[result]);
    }
}
