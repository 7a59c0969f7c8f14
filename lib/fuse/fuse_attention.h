/* fuse_attention.h -- between the files that make programs of attention and of its gradients. */
#ifndef FUSE_ATTENTION_H
#define FUSE_ATTENTION_H

#include "attention.h"
#include "fuse_own.h"

/* Completes a of a node of OP_ATTENTION, whose uses have the strides of their views. */
void attention_read(const graph *g, const struct node *n, struct attention_spec *a);
/* Rows of all heads: batch, time and head, from the strides of a tensor of type t. */
void attention_by_heads(struct tensor_use *u, const struct type *t, int64_t head_dim);

#endif
