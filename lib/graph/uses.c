/* uses.c -- who reads each value: two passes over the operands, whatever the graph. */
#include "graph.h"

static int operands(const struct node *n, enum op only)
{
    return only == OP_COUNT || n->op == only ? n->nin : 0;
}

static void count(struct uses *u, const graph *g, enum op only)
{
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < operands(&g->node[n], only); i++)
            if (g->node[n].in[i] >= 0) u->at[g->node[n].in[i] + 1]++;
    for (int v = 0; v < g->nodes; v++) u->at[v + 1] += u->at[v];
}

bool uses_find(struct uses *u, struct arena *a, const graph *g, enum op only)
{
    u->at = ARENA_NEW(a, int, g->nodes + 1);
    if (!u->at) return false;
    count(u, g, only);
    u->use = ARENA_NEW(a, struct use, u->at[g->nodes] + 1);
    int *next = ARENA_NEW(a, int, g->nodes + 1);
    if (!u->use || !next) return false;
    for (int v = 0; v < g->nodes; v++) next[v] = u->at[v];
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < operands(&g->node[n], only); i++)
            if (g->node[n].in[i] >= 0) u->use[next[g->node[n].in[i]]++] = (struct use){n, i};
    return true;
}
