/*
 * coda_recurrent.h -- operations that carry a state along a sequence: causal convolution, the gated delta
 * rule, selective scans. A part of coda.h, which includes it: programs include coda.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_RECURRENT_H
#define CODA_RECURRENT_H

#include "coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * Sequences and their states
 *
 * Tokens lie as attention has them: [B, T, columns] are B sequences of T tokens, [T, columns] is one. With
 * `starts`, int32 or int64 [B + 1], [T, columns] packs B sequences that have some tokens each, none, one or
 * many: rows starts[b] below starts[b + 1] are those of sequence b. A start below 0 counts as 0, one above
 * T as T, and one below an earlier one as that one. The results of rows of no sequence are 0. T and B may be
 * expressions over symbols; columns are numbers.
 *
 * What an operation has to know of the tokens before, it reads as an operand, and leaves as a second result
 * of the same shape: [B, ...], without B if there is one sequence and no starts. Without that operand
 * sequences begin with zeros. A sequence without tokens leaves what it read. So a prompt in pieces and steps
 * of some tokens are one graph, whose states are read and assigned:
 *
 *     before = coda_state(g, "conv", CODA_BF16, 3, (int64_t[]){B, 3, N});
 *     y = coda_conv1d(g, x, w, CODA_NONE, before, CODA_NONE, &after);
 *     coda_assign(g, before, after);
 * ---------------------------------------------------------------------------------------------- */

/* Causal convolution of each column by itself (depthwise), of k = 2 to 16 tokens:
 *
 *     y[t, n] = bias[n] + sum over j = 0 .. k - 1 of  w[n, j] x[t - (k - 1) + j, n]
 *
 * x fp32, bf16 or fp16 [B, T, N] or [T, N]; w [N, k], as conv1d.weight [N, 1, k] of PyTorch lies in memory;
 * bias [N], or CODA_NONE. Rows of x before a sequence's first are those of `before`, [B, k - 1, N], the last
 * row the nearest one; of CODA_NONE zeros. y is like x. *after, the last k - 1 rows of `before` and x
 * together, has before's dtype, or x's; NULL: it is not wanted. w, bias and before may have any float dtype.
 * Sums are fp32, in the order of j, whatever T is and however a sequence is cut into runs. One launch. */
CODA_API coda_value coda_conv1d(coda_graph *g, coda_value x, coda_value w, coda_value bias, coda_value before,
                                coda_value starts, coda_value *after);

#ifdef __cplusplus
}
#endif

#endif
