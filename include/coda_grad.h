/*
 * coda_grad.h -- gradients of a graph, as nodes of it. A part of coda.h, which includes it: programs include
 * coda.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_GRAD_H
#define CODA_GRAD_H

#include "coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * Gradients
 *
 *     coda_value loss = coda_cross_entropy(g, logits, targets, NULL), dw[2];
 *     coda_grad(g, &loss, NULL, 1, (coda_value[]){w1, w2}, 2, dw, NULL);
 *     coda_output_add(g, "dw1", dw[0]);                     // += of micro-batches, in fp32
 *
 * Reverse mode (Griewank & Walther, Evaluating Derivatives, 2008, chapter 3): what it appends are operations
 * of coda.h, which are printed, evaluated, rewritten and fused as those that a caller appends.
 * ---------------------------------------------------------------------------------------------- */

typedef struct coda_grad_options {
    size_t size;
    coda_dtype weights; /* of gradients of weights and states, and of views and casts of them: CODA_F32,
                         * CODA_BF16 or CODA_F16; 0 (INIT): CODA_F32. Products that make them have it as
                         * their result's dtype: nothing is rounded to another in between */
} coda_grad_options;
#define CODA_GRAD_OPTIONS_INIT {sizeof(coda_grad_options), (coda_dtype)0}

/* Appends to g what makes dx[i] = the sum over j of (dy[j])^T d y[j] / d x[i], for ny >= 1 values y and
 * nx values x, leaves or any others. dy[j] has the type of y[j]; dy NULL, or dy[j] CODA_NONE, is 1, for
 * a y of one element. dx[i] has the shape of x[i], dense, and its dtype but for weights; it is CODA_NONE
 * where no y depends on x[i]. The same x may stand twice, a y may be an x, an x may lie on the way to
 * another.
 *
 * * At a kink a derivative is one of those at its sides: 0 for relu; of equal operands minimum and
 * maximum give all to the first; of several elements of a row that are its largest each gets all. A path
 * ends at integers, comparisons, logic, rounding and coda_nucleus. A row of a cross-entropy whose target
 * is ignored gets exactly 0.
 *
 * * Poisons the graph. CODA_E_INVALID: no y, a y of integers, a dy of another type than its y, CODA_NONE
 * among x. CODA_E_UNSUPPORTED, where a path from an x leads through it: attention of pages, of fp8 or
 * with scales; what coda_append or coda_assign has written; a map of the caller's without a derivative
 * (coda_map_def.grad), or the noise of coda_sample; rope by its frequencies; the gradient of a product's
 * w, or a mean, over a symbolic number of rows. Cost: linear in the nodes of g. */
CODA_API void coda_grad(coda_graph *g, const coda_value *y, const coda_value *dy, int ny, const coda_value *x,
                        int nx, coda_value *dx, const coda_grad_options *opt);

#ifdef __cplusplus
}
#endif

#endif
