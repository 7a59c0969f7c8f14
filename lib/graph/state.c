/*
 * state.c -- versions of states: a leaf that a run reads and writes is the first one, and each node that
 * writes to it is the next. All lie in one memory.
 *
 * A version is written over once. From then on nothing new may read it, so that the order of the nodes is
 * one in which every reader comes before its version is gone.
 */
#include "graph.h"

int state_leaf(const graph *g, int version)
{
    while (op_is_version(g->node[version].op)) version = g->node[version].in[VERSION_OF];
    return version;
}

int node_state(const graph *g, const struct node *n, int index)
{
    if (n->op == OP_STATE || op_is_version(n->op)) return index;
    return op_is_view(n->op) ? g->node[n->in[VIEW_OF]].state : -1;
}

int state_operands(const struct node *n) { return op_is_version(n->op) ? op_info[n->op].named : n->nin; }

bool state_is_written(const graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        if (op_is_version(g->node[i].op)) return true;
    return false;
}

bool state_is_read(const graph *g, const struct node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && g->node[n->in[i]].state >= 0) return true;
    return false;
}

int state_stale(const graph *g, const struct node *n, int index)
{
    int operands =
        MIN(n->nin, state_operands(n)); /* what is ahead of a version is no operand that it reads */
    for (int i = 0; i < operands; i++) {
        int version = n->in[i] >= 0 && n->in[i] < g->nodes ? g->node[n->in[i]].state : -1;
        int next = version >= 0 ? g->node[version].next : -1;
        if (next >= 0 && next < index) return i;
    }
    return -1;
}

coda_status state_check(const graph *g, const struct node *n, int index)
{
    int i = state_stale(g, n, index);
    if (i < 0) return CODA_OK;
    int version = g->node[n->in[i]].state, next = g->node[version].next;
    const char *word = node_text(n);
    const char *name = g->node[state_leaf(g, version)].name;
    return fail(
        CODA_E_INVALID,
        "%s: operand %d is state %.40s as it was before %%%d, an %s, wrote to it; use it ahead of that,"
        " or use the result",
        word, i, name, next, op_info[g->node[next].op].text);
}
