/*
 * eval.c -- evaluates a graph in fp64 without any rounding, the yardstick of every test.
 *
 * Each value that an output needs is computed once, in order, as dense doubles, and freed after its
 * last reader; leaves are converted when their first reader comes. What states are left as is stored at the
 * end. coda_evaluate() checks pointers.
 */
#include "eval.h"

#include <stdlib.h>
#include <string.h>

struct eval {
    const graph *g;
    struct arena *scratch;
    void *const *args;
    double **value;
    int *readers; /* still to come; 0: nobody needs it */
    int *arg;     /* of a leaf */
};

static coda_status allocate(struct eval *e, int v)
{
    int64_t count = type_elements(&e->g->node[v].type);
    if ((uint64_t)count < SIZE_MAX / sizeof(double))
        e->value[v] = malloc(MAX((size_t)count * sizeof(double), 1));
    if (e->value[v]) return CODA_OK;
    return fail(CODA_E_MEMORY, "evaluate: out of memory for %lld doubles", (long long)count);
}

static void release(struct eval *e, int v)
{
    if (--e->readers[v] > 0) return;
    free(e->value[v]);
    e->value[v] = NULL;
}

static coda_status (*const rule[OP_COUNT])(const struct eval_call *c) = {
#define OP(NAME, name, ...) eval_##name,
#include "ops.def"
};

/* Allocates and computes a value by its operation's rule. */
static coda_status apply(struct eval *e, int v, struct eval_call *c)
{
    coda_status s = allocate(e, v);
    if (s != CODA_OK) return s;
    c->g = e->g;
    c->n = &e->g->node[v];
    c->out = e->value[v];
    return type_elements(&c->n->type) ? rule[c->n->op](c) : CODA_OK;
}

static coda_status load(struct eval *e, int v)
{
    if (e->value[v] || !op_is_leaf(e->g->node[v].op)) return CODA_OK;
    return apply(e, v, &(struct eval_call){.data = e->args[e->arg[v]]});
}

static coda_status compute(struct eval *e, int v)
{
    const struct node *n = &e->g->node[v];
    const struct type **type = ARENA_NEW(e->scratch, const struct type *, MAX(n->nin, NODE_READABLE));
    const double **in = ARENA_NEW(e->scratch, const double *, MAX(n->nin, NODE_READABLE));
    if (!type || !in) return fail(CODA_E_MEMORY, "evaluate: out of memory");
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        coda_status s = load(e, n->in[i]);
        if (s != CODA_OK) return s;
        in[i] = e->value[n->in[i]];
        type[i] = &e->g->node[n->in[i]].type;
    }
    return apply(e, v, &(struct eval_call){.type = type, .in = in});
}

/* Is it what a state is left as? */
static bool is_left(const graph *g, int v) { return op_is_version(g->node[v].op) && g->node[v].next < 0; }

/* Counts readers, of needed nodes only, and numbers the arguments. */
static void count_readers(struct eval *e)
{
    int args = 0;
    for (int i = 0; i < e->g->outputs; i++) e->readers[e->g->output[i].value]++;
    for (int v = 0; v < e->g->nodes; v++) e->readers[v] += is_left(e->g, v);
    for (int v = e->g->nodes - 1; v >= 0; v--) {
        const struct node *n = &e->g->node[v];
        for (int i = 0; i < n->nin && e->readers[v]; i++)
            if (n->in[i] >= 0) e->readers[n->in[i]]++;
    }
    for (int v = 0; v < e->g->nodes; v++)
        if (op_is_leaf(e->g->node[v].op)) e->arg[v] = args++;
}

static coda_status write_output(struct eval *e, int i, int arg)
{
    int v = e->g->output[i].value;
    int64_t count = type_elements(&e->g->node[v].type);
    coda_status s = load(e, v);
    if (s != CODA_OK) return s;
    double *out = e->args[arg];
    for (int64_t j = 0; j < count; j++) out[j] = e->value[v][j] + (e->g->output[i].add ? out[j] : 0);
    release(e, v);
    return CODA_OK;
}

/* All has been read by then. */
static void write_states(struct eval *e)
{
    for (int v = 0; v < e->g->nodes; v++) {
        const struct node *n = &e->g->node[v];
        if (!is_left(e->g, v)) continue;
        if (type_elements(&n->type)) eval_scatter(n, e->value[v], e->args[e->arg[state_leaf(e->g, v)]]);
        release(e, v);
    }
}

static coda_status evaluate(struct eval *e)
{
    int leaves = 0;
    count_readers(e);
    for (int v = 0; v < e->g->nodes; v++) {
        const struct node *n = &e->g->node[v];
        if (op_is_leaf(n->op)) leaves++;
        if (op_is_leaf(n->op) || e->readers[v] == 0) continue;
        coda_status s = compute(e, v);
        if (s != CODA_OK) return s;
        for (int i = 0; i < n->nin; i++)
            if (n->in[i] >= 0) release(e, n->in[i]);
    }
    for (int i = 0; i < e->g->outputs; i++) {
        coda_status s = write_output(e, i, leaves + i);
        if (s != CODA_OK) return s;
    }
    write_states(e);
    return CODA_OK;
}

coda_status graph_evaluate(const graph *g, void *const *args)
{
    struct arena scratch = {0};
    size_t n = (size_t)g->nodes + 1;
    if (!graph_is_bound(g))
        return fail(CODA_E_INVALID, "evaluate: the graph has %d symbols; bind them first", g->dims->symbols);
    struct eval e = {g,
                     &scratch,
                     args,
                     ARENA_NEW(&scratch, double *, n),
                     ARENA_NEW(&scratch, int, n),
                     ARENA_NEW(&scratch, int, n)};
    coda_status s = scratch.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory") : evaluate(&e);
    for (int v = 0; v < g->nodes && e.value; v++) free(e.value[v]);
    arena_free(&scratch);
    return s;
}
