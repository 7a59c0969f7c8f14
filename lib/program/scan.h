/* scan.h -- what a scan program computes: its tensors by the names in ops.def. */
#ifndef SCAN_H
#define SCAN_H

#include "program.h"

/*
 * What each use is beside its words in ops.def.
 *
 *     x, dt, b, c, gate, y   by the strides batch and time; the columns of a token are adjacent
 *     a, dt_bias, skip       dense
 *     state, after           dense: [sequence][column of x][states]. If both are one buffer, after lies over
 *                            state: who writes an element has read it, and nobody else reads it
 *     starts                 by stride[0]: where sequences begin among the rows, which have no batch then
 *
 * With a rank dt are no steps but rows of few numbers, and a step is the product of one with a row of
 * weights.
 */

/* States of a column that a kernel has room for: infer_scan.c. */
enum { SCAN_MOST_STATES = 256 };

/* Terms of a product that makes a step, likewise. */
enum { SCAN_MOST_RANK = 256 };

/* Is the operand there, or the result wanted? */
static inline bool scan_has(const struct scan_spec *s, int use) { return s->use[use].buffer >= 0; }

static inline int64_t scan_columns(const struct scan_spec *s) { return mul_counts(s->heads, s->head_dim); }

/* Tokens of all sequences. */
static inline int64_t scan_rows(const struct scan_spec *s)
{
    return scan_has(s, SCAN_STARTS) ? s->tokens : mul_counts(s->batch, s->tokens);
}

#endif
