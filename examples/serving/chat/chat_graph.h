/*
 * chat_graph.h -- the graph of chat_runner.h: that of the model's family over T rows of B sequences.
 */
#ifndef CHAT_GRAPH_H
#define CHAT_GRAPH_H

#include "chat_runner.h"

/* Symbols T and B, in this order. Its weights are added to the list. NULL, and the fault, if it cannot be
 * made. */
coda_graph *chat_graph(const struct runner_options *opt, struct weights *weights, struct fault *f);

#endif
