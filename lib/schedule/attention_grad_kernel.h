/* attention_grad_kernel.h -- how the blocks of a kernel of attention's gradients share out the work:
 * attention_grad_simt.cuh. */
#ifndef ATTENTION_GRAD_KERNEL_H
#define ATTENTION_GRAD_KERNEL_H

#include "attention_grad.h"
#include "schedule.h"

/* Blocks of each kind, and how many tiles of bm keys, of bn keys and of bm queries there are: the launch has
 * them in this order. */
struct attention_grad_blocks {
    int64_t keys, queries, pairs, heads, key_tiles, walked_tiles, query_tiles;
};
struct attention_grad_blocks attention_grad_blocks(const struct attention_grad_spec *s,
                                                   const struct tile *tile);

#endif
