/* uses.c -- who reads each value: two passes over the operands, whatever the graph. */
#include "graph.h"

struct span {
    int from, to;
};

static struct span operands(const struct node *n, enum op only, bool ahead)
{
    int read = state_operands(n);
    if (only != OP_COUNT && n->op != only) return (struct span){0, 0};
    return ahead ? (struct span){read, n->nin} : (struct span){0, read};
}

static void count(struct uses *u, const graph *g, enum op only, bool ahead)
{
    for (int n = 0; n < g->nodes; n++) {
        struct span s = operands(&g->node[n], only, ahead);
        for (int i = s.from; i < s.to; i++)
            if (g->node[n].in[i] >= 0) u->at[g->node[n].in[i] + 1]++;
    }
    for (int v = 0; v < g->nodes; v++) u->at[v + 1] += u->at[v];
}

static bool find(struct uses *u, struct arena *a, const graph *g, enum op only, bool ahead)
{
    u->at = ARENA_NEW(a, int, g->nodes + 1);
    if (!u->at) return false;
    count(u, g, only, ahead);
    u->use = ARENA_NEW(a, struct use, u->at[g->nodes] + 1);
    int *next = ARENA_NEW(a, int, g->nodes + 1);
    if (!u->use || !next) return false;
    for (int v = 0; v < g->nodes; v++) next[v] = u->at[v];
    for (int n = 0; n < g->nodes; n++) {
        struct span s = operands(&g->node[n], only, ahead);
        for (int i = s.from; i < s.to; i++)
            if (g->node[n].in[i] >= 0) u->use[next[g->node[n].in[i]]++] = (struct use){n, i};
    }
    return true;
}

bool uses_find(struct uses *u, struct arena *a, const graph *g, enum op only)
{
    return find(u, a, g, only, false);
}

bool uses_find_ahead(struct uses *u, struct arena *a, const graph *g)
{
    return find(u, a, g, OP_COUNT, true);
}
