/* attention_grad.h -- what a program of attention's gradients computes, beside its tensors. */
#ifndef ATTENTION_GRAD_H
#define ATTENTION_GRAD_H

#include "attention.h"

/*
 * What each use is; others are as in attention.h.
 *
 *     q, k, v, o, do, dq, dk, dv   by the strides batch, time and head
 *     lse, dlse                    batch, time and head: from a sequence, a query, a head to the next
 *     dbias                        as bias, of the elements that bias has; dense
 *     dsinks, dslopes              dense
 */

/* The attention, with the uses that both have: of its results it has o, as an operand. */
struct attention_spec attention_grad_of(const struct attention_grad_spec *s);

/* Is the operand there, or the result wanted? */
static inline bool attention_grad_has(const struct attention_grad_spec *s, int use)
{
    return s->use[use].buffer >= 0;
}

/* Is a result wanted that sums over pairs of query and key, other than dq, dk and dv? */
static inline bool attention_grad_has_sums(const struct attention_grad_spec *s)
{
    return attention_grad_has(s, ATTENTION_GRAD_DBIAS) || attention_grad_has(s, ATTENTION_GRAD_DSLOPES);
}

#endif
