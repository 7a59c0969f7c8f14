/* attention_grad.h -- what the two programs of attention's gradients compute, beside their tensors. */
#ifndef ATTENTION_GRAD_H
#define ATTENTION_GRAD_H

#include "attention.h"

/*
 * What each use is; others are as in attention.h.
 *
 *     q, k, v, do, dq, dk, dv      by the strides batch, time and head
 *     lse                          batch, time and head: from a sequence, a query, a head to the next
 *     o                            what the other program, attention_delta, has made of o, do, lse and dlse:
 *                                  f32 [batch][heads][2][pitch]. The first row of a head has log2(e) lse of
 *                                  each query, and inf where lse is -inf and behind the last query: 2^-inf
 *                                  is the weight of a key that nobody sees. The second one has
 *                                  delta = sum(do o) - dlse, and 0 behind the last query
 *     dbias                        as bias, of the elements that bias has; dense
 *     dsinks, dslopes              dense
 */

enum { DELTA_STEP = 128 }; /* the most queries of such a tile */

/* Numbers in a row: so many that a kernel reads whole tiles of queries. A plan for other shapes is written
 * down from that of one, whose numbers are polynomials of its extents: so a program's use says nothing of it,
 * and has neither place nor strides; its buffer has DELTA_STEP more numbers for each row than there are
 * queries. */
static inline int64_t attention_delta_pitch(int64_t tq)
{
    enum { ALIGNED = 4 }; /* numbers of 16 bytes, which a copy moves */
    return (tq + DELTA_STEP - 1) / ALIGNED * ALIGNED;
}
/* The deltas by batch, time and head. */
struct tensor_use attention_delta_use(const struct attention_grad_spec *s);

/* The attention, with the uses that both have: of its results it has none. */
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
