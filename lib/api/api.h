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

/* api_symbols.c: values of symbols, in order; `given` names the argument that counts them. Failures have the
 * symbols' names. */
coda_status symbols_check(const char *call, const char *what, const char *given, const struct dims *t,
                          const int64_t *values, int count);
/* A failure if there are any; `instead` is the call that takes values. */
coda_status symbols_refuse(const char *call, const char *what, const struct dims *t, const char *instead);
coda_status symbol_info(const char *call, const struct dims *t, int index, coda_symbol_info *out);

#endif
