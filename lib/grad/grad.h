/* grad.h -- reverse mode: what appends the gradient of a graph's values to the graph, as ordinary nodes. */
#ifndef GRAD_H
#define GRAD_H

#include "graph.h"

/* Appends to g what makes dx[i] = the sum over j of (dy[j])^T d y[j] / d x[i]. y and x are values of g; dy[j]
 * is a value of y[j]'s type, or -1, which is 1, for a y of one element. dx[i] is -1 where no y depends on
 * x[i]. `weights` is the dtype of gradients of weights and states. False with the graph poisoned. */
bool graph_grad(graph *g, const int *y, const int *dy, int ny, const int *x, int nx, int *dx,
                coda_dtype weights);

/* split.c -- a joint graph as two: its first `outputs` outputs and what the others need of them, and the
 * others. */
struct split_policy {
    coda_keep keep;
    const int *also; /* values of joint */
    int also_count;
    bool consume; /* may backward write over what is kept? */
};
coda_status graph_split(const graph *joint, int outputs, const struct split_policy *policy, graph **forward,
                        graph **backward);

#endif
