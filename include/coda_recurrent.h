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
 * Sums are fp32, in the order of j, whatever T is and however a sequence is cut into runs. One launch, which
 * also computes a map of one operand, as coda_silu, that alone reads y; where x is the one row of a product
 * and *after goes to the state that is `before`, it is part of the product, and x is not rounded for it. */
CODA_API coda_value coda_conv1d(coda_graph *g, coda_value x, coda_value w, coda_value bias, coda_value before,
                                coda_value starts, coda_value *after);

/* A selective scan: Mamba's, with a decay for each state, or that of Mamba-2 (SSD), with one for each head.
 * Each column of x has N numbers s of its own, which each token changes and reads:
 *
 *     d = dt + dt_bias, or softplus of it
 *     s[n] = e^(d a[n]) s[n] + d x b[n]
 *     y = (sum over n of  s[n] c[n]  +  skip x) silu(gate)
 *
 * x fp32, bf16 or fp16 [B, T, heads*P] or [T, heads*P]: P columns of each head, 1 in Mamba. dt, of x's dtype
 * or fp32, has a column for each head. a is fp32 [heads, N], or [heads], one number for all of a head's
 * states; in models it is -exp(A_log). b and c, of x's dtype, have N columns for each of `groups` groups of
 * heads: head h reads those of group h / (heads / groups). N is 1 to 256. `state` holds s at the beginning,
 * fp32, or bf16 if rounding it between runs is taken for half its bytes: [B, heads*P, N] or [B, heads, P, N].
 * y is like x. *after is like state, or fp32 [B, heads*P, N] without it; NULL: it is not wanted. All that is
 * computed is fp32. One launch; a state that coda_assign gives *after is written where it lies.
 *
 * Tokens are walked one by one, and how a sequence is cut into runs changes no bit, but where the state is
 * bf16. With one decay for each head a GPU takes 32 tokens of bf16 and more by chunks of 64 on tensor cores,
 * if P is a multiple of 32, N of 32, and rows begin at multiples of 16 bytes: not with CODA_BATCH_INVARIANT.
 * Mamba-3 is of that kind: b and c are turned by the running sum of its angles ahead of the scan, and x is
 * scaled. coda_grad has no derivative of it. */
typedef struct coda_scan_options {
    size_t size;
    int64_t groups;     /* of heads that share b and c, which divides heads; 0 (INIT): 1 */
    int softplus;       /* 1: d is softplus(dt + dt_bias); INIT: 0 */
    coda_value dt_bias; /* fp32 [heads]; INIT: none */
    coda_value skip;    /* fp32 [heads], D of the papers; INIT: none */
    coda_value gate;    /* like x: y is multiplied by silu(gate); INIT: none */
} coda_scan_options;
#define CODA_SCAN_OPTIONS_INIT {sizeof(coda_scan_options), 0, 0, {0}, {0}, {0}}
CODA_API coda_value coda_scan(coda_graph *g, coda_value x, coda_value dt, coda_value a, coda_value b,
                              coda_value c, coda_value state, coda_value starts, const coda_scan_options *opt,
                              coda_value *after);

/* The gated delta rule (Yang, Kautz, Hatamizadeh, arXiv 2412.06464), head by head and token by token:
 *
 *     S = e^decay[t] S                   S [K, V] begins as `before`, or as zeros
 *     e = beta[t] (v[t] - k[t] S)        k[t], q[t] [K] are rows, v[t], e and o[t] [V]
 *     S = S + k[t]^T e
 *     o[t] = scale q[t] S
 *
 * q and k fp32, bf16 or fp16 [B, T, key_heads*K], K up to 256, and v [B, T, heads*V], of one dtype; B may be
 * absent. decay is the natural logarithm of the factor, so 0 keeps all and -inf nothing: [B, T, heads], or
 * [B, T, heads*K], one for each row of S, as Kimi Linear has them. beta [B, T, heads] is the factor itself.
 * Both may have any float dtype; fp32 is best. o is like v. *after, S behind the last token, has before's
 * dtype, or fp32; NULL: it is not wanted. A state in bf16 is rounded once in a run; within it, S is fp32.
 *
 * A run of a token reads and writes each state once. Tokens are walked one by one, so what such runs leave
 * has equal bits however tokens are spread over them, if states are fp32. With one decay for each head a GPU
 * takes 32 tokens of bf16 and more, or so many in the mean of packed sequences, by chunks of 64 on tensor
 * cores, if K is 32, 64 or 128, V is a multiple of 32, and rows begin at multiples of 16 bytes: not with
 * CODA_BATCH_INVARIANT. *after is then, in fp32, within 1e-5 of its rms, or 2^-19 of the terms k[t]^T e that
 * cancel where keys are nearly equal (1e-5 was seen; token by token 1e-6). One launch at any length. */
typedef struct coda_delta_options {
    size_t size;
    int64_t heads;     /* of v, decay, beta and the states; INIT: 1 */
    int64_t key_heads; /* of q and k: head h reads h / (heads / key_heads); INIT: heads */
    float scale;       /* INIT: 1 / sqrt(K) */
    int norm;          /* 1: q and k are divided by sqrt(sum of their squares + eps), head by head; INIT: 0 */
    float eps;         /* of norm; INIT: 0 */
} coda_delta_options;
#define CODA_DELTA_OPTIONS_INIT {sizeof(coda_delta_options), 0, 0, 0.0f, 0, 0.0f}
CODA_API coda_value coda_delta(coda_graph *g, coda_value q, coda_value k, coda_value v, coda_value decay,
                               coda_value beta, coda_value before, coda_value starts,
                               const coda_delta_options *opt, coda_value *after);

#ifdef __cplusplus
}
#endif

#endif
