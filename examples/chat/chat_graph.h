/*
 * chat_graph.h -- the model of chat_runner.h as one graph over T rows of B sequences.
 */
#ifndef CHAT_GRAPH_H
#define CHAT_GRAPH_H

#include "chat_runner.h"
#include "coda.h"

/* Symbols T and B, in this order; a new graph, which is poisoned if something is wrong with it. NULL: out of
 * memory. The numbers are those of `dtype`. */
coda_graph *chat_graph(const struct runner_options *opt, coda_dtype dtype);

#endif
