/* api.h -- what the builder calls of api_graph.c and api_ops.c share. */
#ifndef API_H
#define API_H

#include "graph.h"
#include "sized.h"

#define OPERANDS(...)                                                                                        \
    (coda_value[]){__VA_ARGS__}, (int)(sizeof((coda_value[]){__VA_ARGS__}) / sizeof(coda_value))

/* True if calls on the graph have an effect: it exists and made no mistake yet. */
bool build_ready(graph *g, const char *what);
/* The node of a value: -1 for CODA_NONE, -2 with the graph poisoned for a value of another graph. */
int build_index(graph *g, const char *what, coda_value v);
/* Appends `n` with these operands, as a new origin. */
coda_value build_node(graph *g, const char *what, struct node n, const coda_value *in, int nin);
coda_value build_value(int index);

#endif
