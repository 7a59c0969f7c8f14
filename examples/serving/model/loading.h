/*
 * loading.h -- the weights of a model on their way into memory, by a thread of its own, so that the plan is
 * made, and its kernels are compiled or loaded, meanwhile.
 */
#ifndef LOADING_H
#define LOADING_H

#include "model.h"

struct loading;

/* Allocates memory for all weights of the model's graphs, gives each its offset, and begins to fill it. NULL,
 * and a fault, if there is no memory, or no thread. The graphs must stay until the end. */
struct loading *loading_begin(struct model *m, coda_graph *const *graphs, int count, struct fault *f);
/* Waits, and says in m->times how long all took. false, and a fault, if a weight could not be had. */
bool loading_end(struct loading *l, struct fault *f);

#endif
