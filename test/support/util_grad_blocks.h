/*
 * util_grad_blocks.h -- blocks of models with the gradients of all their leaves, small: what a plan makes of
 * them beside fp64, fused and one operation after the other.
 */
#ifndef UTIL_GRAD_BLOCKS_H
#define UTIL_GRAD_BLOCKS_H

#include "util_run.h"

struct grad_block {
    const char *name, *path; /* of a graph; NULL: the text is here */
    const char *text;
    double most; /* errors of all outputs, fused, over those of one operation after the other */
};
extern const struct grad_block grad_blocks[];
extern const int grad_block_count;

/* The block, a cotangent d_NAME for each output, and an output g_NAME for each float leaf; NULL with the
 * message set. */
graph *grad_block_graph(const struct grad_block *b);

/* Errors of each output, |got - want| / |want| (Euclidean), as compiled with these flags, of arguments of
 * `seed`. False with the message set. */
bool grad_block_errors(const graph *g, uint64_t seed, unsigned flags, bool on_gpu, double *error);

/* Compares both; what is wrong is written to `why`. */
bool grad_block_good(const struct grad_block *b, uint64_t seed, bool on_gpu, char *why, size_t size);

#endif
