/*
 * util_grad.h -- gradients of a graph beside difference quotients of the same graph.
 *
 * A graph's outputs become one number, the loss: each, flattened, times numbers of its own, added up. Its
 * gradient by every fp32 leaf is appended with coda_grad and evaluated in fp64, and its product with a
 * direction is compared with the derivative along that direction by differences.
 */
#ifndef UTIL_GRAD_H
#define UTIL_GRAD_H

#include "util_differences.h"

struct grad_check {
    double difference, gradient; /* along the direction */
    double error;                /* that the difference may have */
    bool smooth;                 /* else they say nothing */
    double scale;                /* the sum of the gradient's terms, each without its sign */
    int leaves;                  /* that have a gradient */
};

/* A graph of one output of one element, the loss, made of `text`'s outputs; NULL with the message set. */
graph *grad_loss(const char *text);
/* Of such a graph; it stays as it is. False with the message set. */
bool grad_compare(const graph *g, uint64_t seed, struct grad_check *out);

/* Appends to g a cotangent cot.NAME of each float output, and outputs grad.NAME of all float leaves that
 * have a gradient; false, with the message set and the graph poisoned, if the path to one leads through what
 * has none, or if g has no float outputs or leaves. */
bool grad_of_outputs(graph *g);

#endif
