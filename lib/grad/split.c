/*
 * split.c -- a joint graph as forward and backward: which values forward keeps for backward, and which
 * backward computes again.
 *
 * Backward is walked from its outputs to its leaves, and stops at each value that is worth keeping. Such are
 * the results of products and attention, as their kernels store them: with the bias or the residual that is
 * added, turned by rope. The others are maps and norms, which backward's products compute in their epilogues
 * without a byte of traffic. Row values, 1/rms or a log-sum-exp, cost next to nothing and are kept always,
 * also those that only backward asks for.
 */
#include "grad.h"

#include <stdio.h>
#include <string.h>

struct split {
    const graph *joint;
    struct arena arena;
    coda_keep keep;
    bool consume;
    int outputs;           /* forward's; backward has the others */
    bool *forward;         /* is it computed for one of forward's outputs? */
    bool *row;             /* is it a value of rows, made of forward's values alone? */
    bool *keepable;        /* worth keeping, by `keep` or because the caller says so */
    bool *kept, *again;    /* what backward reads of forward; what it computes */
    int *reader, *readers; /* the last node that reads it, and how many do */
};

/* ---- What is forward's ---- */

/* What the outputs from `first` to `last` - 1 are computed of. */
static void mark(const graph *g, int first, int last, bool *needed)
{
    for (int i = first; i < last; i++) needed[g->output[i].value] = true;
    for (int v = g->nodes - 1; v >= 0; v--)
        for (int i = 0; needed[v] && i < g->node[v].nin; i++)
            if (g->node[v].in[i] >= 0) needed[g->node[v].in[i]] = true;
}

/* One number for each row, from a row of forward's or from other such numbers. */
static bool is_row_value(const struct split *s, int v)
{
    const struct node *n = &s->joint->node[v];
    bool reduction = n->op == OP_REDUCE && !n->attr.reduce.columns, of_rows = false;
    if (!reduction && (n->op != OP_MAP || !n->type.rank || type_columns(&n->type) != 1)) return false;
    for (int i = 0; i < n->nin; i++) {
        int x = n->in[i];
        if (x < 0) continue;
        if (!s->forward[x] && !s->row[x] && s->joint->node[x].op != OP_CONSTANT) return false;
        of_rows = of_rows || reduction || s->row[x];
    }
    return of_rows;
}

/* A result of an attention on forward's values: coda_grad appends the log-sum-exp that forward has not asked
 * for, and the call that computes the other result leaves it beside. */
static bool is_forward_attention(const struct split *s, const struct node *n)
{
    bool good = n->op == OP_ATTENTION;
    for (int i = 0; i < n->nin && good; i++) good = n->in[i] < 0 || s->forward[n->in[i]];
    return good;
}

/* ---- What is worth keeping ---- */

/* Does a product's epilogue compute n, which reads value x, of the product's result? */
static bool is_epilogue(const struct split *s, const struct node *n, int x)
{
    if (op_is_view(n->op) && n->op != OP_SLICE) return true;
    if (n->op == OP_ROPE) return n->in[ROPE_X] == x;
    if (n->op != OP_MAP || !n->prim->facts.jointly) return false;
    const struct type *whole = &n->type, *own = &s->joint->node[x].type;
    return type_agrees(whole, own);
}

/* The value that the kernel of product v stores: behind what alone reads its result. */
static int stored(const struct split *s, int v)
{
    int best = v;
    while (s->readers[v] == 1 && s->reader[v] >= 0 && s->forward[s->reader[v]]) {
        const struct node *n = &s->joint->node[s->reader[v]];
        if (!is_epilogue(s, n, v)) break;
        v = s->reader[v];
        if (!op_is_view(n->op)) best = v;
    }
    return best;
}

/* The value that a product's operand is a view of. */
static int behind_views(const graph *g, int v)
{
    while (op_is_view(g->node[v].op)) v = g->node[v].in[VIEW_OF];
    return v;
}

/* Is it a value of forward's times numbers of its rows, which a norm is? Products read what is behind it, and
 * nobody stores it. */
static bool is_deferred(const struct split *s, int v)
{
    const struct node *n = &s->joint->node[v];
    while (n->op == OP_MAP && n->prim->facts.linear & 1 && n->nin == 2) {
        if (s->row[n->in[1]]) return true;
        n = &s->joint->node[n->in[0]];
    }
    return false;
}

static void choose(struct split *s)
{
    const graph *g = s->joint;
    for (int v = 0; v < g->nodes && s->keep != CODA_KEEP_LEAST; v++) {
        const struct node *n = &g->node[v];
        s->row[v] = is_row_value(s, v);
        if (s->row[v] || is_forward_attention(s, n)) s->keepable[v] = true;
        if (!s->forward[v]) continue;
        if (n->op == OP_MATMUL || op_is_exchange(n->op)) s->keepable[stored(s, v)] = true;
        if (n->op != OP_MATMUL || s->keep != CODA_KEEP_MORE) continue;
        int x = behind_views(g, n->in[MATMUL_X]);
        if (g->node[x].op == OP_MAP && !is_deferred(s, x)) s->keepable[x] = true;
    }
}

static void count_readers(struct split *s)
{
    const graph *g = s->joint;
    for (int v = 0; v < g->nodes; v++) s->reader[v] = -1;
    for (int v = 0; v < g->nodes; v++)
        for (int i = 0; i < g->node[v].nin; i++) {
            int x = g->node[v].in[i];
            if (x >= 0) s->reader[x] = v, s->readers[x]++;
        }
    for (int i = 0; i < s->joint->outputs; i++) s->readers[g->output[i].value]++;
}

/* ---- The two graphs ---- */

/* Operands that make the node's value: what an exchange comes behind does not. */
static int operands(const struct node *n) { return op_is_exchange(n->op) ? EXCHANGE_BEFORE : n->nin; }

/* From backward's outputs to what is kept, and to leaves. */
static void cut(struct split *s)
{
    const graph *g = s->joint;
    bool *wanted = s->again;
    for (int i = s->outputs; i < s->joint->outputs; i++) wanted[g->output[i].value] = true;
    for (int v = g->nodes - 1; v >= 0; v--) {
        if (!wanted[v] || op_is_leaf(g->node[v].op)) continue;
        if (s->keepable[v]) {
            s->kept[v] = true;
            wanted[v] = false;
            continue;
        }
        for (int i = 0; i < operands(&g->node[v]); i++)
            if (g->node[v].in[i] >= 0) wanted[g->node[v].in[i]] = true;
    }
}

/* The row value that v, which is kept, is a map of, beside constants; -1: of several, or v is an output. */
static int row_below(const struct split *s, int v)
{
    const struct node *n = &s->joint->node[v];
    int below = -1;
    if (!s->kept[v] || !s->row[v] || n->op != OP_MAP || n->output >= 0) return -1;
    for (int i = 0; i < n->nin; i++) {
        if (s->joint->node[n->in[i]].op == OP_CONSTANT) continue;
        if (below >= 0 || !s->row[n->in[i]]) return -1;
        below = n->in[i];
    }
    return below;
}

/* Where several row values are maps of one, as 1/rms and its derivative are of a mean of squares, keeps that
 * one; backward computes them where it reads them. */
static void keep_below(struct split *s)
{
    int nodes = s->joint->nodes, *maps = ARENA_NEW(&s->arena, int, nodes + 1);
    for (int v = 0; v < nodes && maps; v++)
        if (row_below(s, v) >= 0) maps[row_below(s, v)]++;
    for (int v = nodes - 1; v >= 0 && maps; v--) {
        int below = row_below(s, v);
        if (below < 0 || (maps[below] < 2 && !s->kept[below])) continue;
        s->kept[v] = false;
        s->again[v] = s->kept[below] = true;
        for (int i = 0; i < s->joint->node[v].nin; i++)
            if (s->joint->node[v].in[i] != below) s->again[s->joint->node[v].in[i]] = true;
    }
}

static graph *begin(const struct split *s)
{
    graph *g = graph_like(s->joint);
    if (!g) return NULL;
    g->rewritten = false;
    g->origins = s->joint->origins; /* those of inputs are new */
    if (dims_copy(g->dims, s->joint->dims)) return g;
    fail(CODA_E_MEMORY, "split: out of memory for %d nodes", s->joint->nodes);
    graph_free(g);
    return NULL;
}

/* The output of forward that value v is anyway, or NULL. */
static const struct output *given_out(const struct split *s, int v)
{
    for (int i = s->joint->node[v].output; i >= 0 && i < s->outputs; i = s->joint->output[i].next)
        if (!s->joint->output[i].add) return &s->joint->output[i];
    return NULL;
}

static void kept_name(char *name, size_t size, int k) { snprintf(name, size, "kept.%d", k); }

/* The input of backward that value v of forward is: by the name of an output, or as the k-th that is kept. */
static int kept_input(const struct split *s, graph *g, int v, int *k)
{
    char name[32];
    const struct output *o = given_out(s, v);
    struct node leaf = {
        .op = OP_INPUT, .type = s->joint->node[v].type, .name = o ? o->name : name, .origin = -1};
    if (!o) kept_name(name, sizeof name, (*k)++);
    if (!o) leaf.attr.input.consumed = s->consume;
    leaf.type.dims = g->dims;
    dense_strides(&leaf.type, leaf.stride);
    if (o) memcpy(leaf.stride, o->stride, sizeof leaf.stride);
    return graph_append(g, &leaf);
}

/* The nodes that are wanted, and inputs for those that forward keeps; outputs from `first` to `last` - 1. */
static bool copy(const struct split *s, graph *to, const bool *wanted, const bool *kept, int first, int last,
                 int *map)
{
    const graph *g = s->joint;
    for (int v = 0, k = 0; v < g->nodes && to->status == CODA_OK; v++) {
        map[v] = -1;
        if (kept && kept[v]) map[v] = kept_input(s, to, v, &k);
        else if (wanted[v]) map[v] = graph_copy_node(to, g, v, map);
    }
    for (int i = first; i < last && to->status == CODA_OK; i++) {
        const struct output *o = &g->output[i];
        (o->add ? graph_append_sum : graph_append_output)(to, o->name, map[o->value], o->stride);
    }
    return to->status == CODA_OK;
}

/* Forward's outputs behind those of joint: what is kept and none of them. */
static bool put_out_kept(const struct split *s, graph *to, const int *map)
{
    int k = 0;
    for (int v = 0; v < s->joint->nodes; v++) {
        char name[32];
        if (!s->kept[v] || given_out(s, v)) continue;
        kept_name(name, sizeof name, k++);
        if (graph_append_output(to, name, map[v], NULL) < 0) return false;
    }
    return true;
}

static bool build(struct split *s, graph *forward, graph *backward)
{
    const graph *g = s->joint;
    int *map = ARENA_NEW(&s->arena, int, g->nodes + 1);
    if (!map) return fail(CODA_E_MEMORY, "split: out of memory for %d nodes", g->nodes), false;
    if (!copy(s, backward, s->again, s->kept, s->outputs, s->joint->outputs, map))
        return fail(backward->status, "split: %s", backward->error), false;
    for (int v = g->nodes - 1; v >= 0; v--) { /* row values are asked for by backward alone */
        s->forward[v] = s->forward[v] || s->kept[v];
        for (int i = 0; s->forward[v] && i < g->node[v].nin; i++)
            if (g->node[v].in[i] >= 0) s->forward[g->node[v].in[i]] = true;
    }
    bool good = copy(s, forward, s->forward, NULL, 0, s->outputs, map);
    for (int v = 0; v < g->nodes && good; v++) /* backward reads them, too */
        if (g->node[v].op == OP_INPUT && s->again[v] && map[v] >= 0)
            forward->node[map[v]].attr.input.consumed = 0;
    if (!good || !put_out_kept(s, forward, map))
        return fail(forward->status, "split: %s", forward->error), false;
    return true;
}

static bool allocate(struct split *s)
{
    bool **flags[] = {&s->forward, &s->row, &s->keepable, &s->kept, &s->again};
    int nodes = s->joint->nodes + 1;
    for (int i = 0; i < ARRAY_SIZE(flags); i++) *flags[i] = ARENA_NEW(&s->arena, bool, nodes);
    s->reader = ARENA_NEW(&s->arena, int, nodes);
    s->readers = ARENA_NEW(&s->arena, int, nodes);
    if (!s->arena.failed) return true;
    return fail(CODA_E_MEMORY, "split: out of memory for %d nodes", s->joint->nodes), false;
}

coda_status graph_split(const graph *joint, int outputs, const struct split_policy *policy, graph **forward,
                        graph **backward)
{
    struct split s = {.joint = joint, .keep = policy->keep, .outputs = outputs, .consume = policy->consume};
    bool good = allocate(&s);
    if (good) {
        mark(joint, 0, outputs, s.forward);
        count_readers(&s);
        choose(&s);
        for (int i = 0; i < policy->also_count; i++) s.keepable[policy->also[i]] = s.forward[policy->also[i]];
        cut(&s);
        keep_below(&s);
        *forward = begin(&s);
        *backward = *forward ? begin(&s) : NULL;
        good = *backward && build(&s, *forward, *backward);
    }
    arena_free(&s.arena);
    if (good) return CODA_OK;
    graph_free(*forward);
    graph_free(*backward);
    *forward = *backward = NULL;
    return fail_status();
}
