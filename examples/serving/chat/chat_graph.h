/*
 * chat_graph.h -- the graph of chat_runner.h: that of the model's family over T rows of B sequences.
 */
#ifndef CHAT_GRAPH_H
#define CHAT_GRAPH_H

#include "chat_runner.h"

/* Symbols T and B, in this order. `c` is the config of what is served, or of a rank's part. The weights are
 * added to the list. NULL, and the fault, if it cannot be made. Threads that share what is served take
 * turns. */
coda_graph *chat_graph(const struct runner_options *opt, const struct config *c, struct weights *weights,
                       struct fault *f);

#endif
