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
                         * CODA_BF16 or CODA_F16; 0 (INIT): CODA_F32, in which products leave them at once,
                         * so that nothing rounds on the way; 16 bits are those of the operands, then cast */
} coda_grad_options;
#define CODA_GRAD_OPTIONS_INIT {sizeof(coda_grad_options), (coda_dtype)0}

/* Appends to g what makes dx[i] = the sum over j of (dy[j])^T d y[j] / d x[i], for ny >= 1 values y and
 * nx values x, leaves or any others. dy[j] has the type of y[j]; dy NULL, or dy[j] CODA_NONE, is 1, for
 * a y of one element. dx[i] has the shape of x[i], dense, and its dtype but for weights; it is CODA_NONE
 * where no y depends on x[i]. The same x may stand twice, a y may be an x, an x may lie on the way to
 * another.
 *
 * At a kink a derivative is one of those at its sides: 0 for relu; of equal operands minimum and
 * maximum give all to the first; elements that are equally the largest of a row share it evenly. A path
 * ends at integers, comparisons, logic, rounding and coda_nucleus. A row of a cross-entropy whose target
 * is ignored gets exactly 0.
 *
 * Poisons the graph. CODA_E_INVALID: no y, a y of integers, a dy of another type than its y, CODA_NONE
 * among x. CODA_E_UNSUPPORTED, where a path from an x leads through it: attention of pages, of fp8 or
 * with scales; what coda_append or coda_assign has written; a map of the caller's without a derivative
 * (coda_map_def.grad), or the noise of coda_sample; rope by its frequencies; a product by a w of 8 bits; a
 * sum that ran along a dimension of more than 2^24 elements if that is no product of numbers up to 2^24, or
 * may be so large by symbols. Cost: linear in the nodes of g. Rows may be symbolic: the gradient of a
 * product's w then adds up as many as a run has, and a GPU's kernels know that number: for each value of the
 * symbol they are compiled anew. */
CODA_API void coda_grad(coda_graph *g, const coda_value *y, const coda_value *dy, int ny, const coda_value *x,
                        int nx, coda_value *dx, const coda_grad_options *opt);

/* The value of the leaf or output of this name, as of a graph that coda_graph_parse has read. CODA_NONE, and
 * coda_error() says so (CODA_E_INVALID), if there is none, if it is a symbol's, or if an argument is NULL;
 * the graph stays as it is. */
CODA_API coda_value coda_graph_find(const coda_graph *g, const char *name);

/* ---- A loss whose logits are never all there ---- */

/* coda_cross_entropy(g, coda_matmul(g, x, w), targets, ..), x [.., D], w [V, D], targets [..], by chunks
 * of rows: operations of coda.h, whose gradients coda_grad has. A plan of the loss and its gradients in
 * one graph keeps the logits of one chunk, in x's dtype, and their gradient takes their place; what chunks
 * add to w's gradient, in fp32, is added where that ends. So its workspace is 2 rows V bytes, and the
 * partial sums of a softmax; capped logits keep the cap's derivative, too. An ignored row is 0 whatever
 * its logits are, and so is its gradient, exactly. Of a symbolic number of rows, and of a chunk's or
 * fewer, it is that one loss. Mistakes are those of these calls, and CODA_E_INVALID: a softcap below 0 or
 * not finite, rows below 0, more than 1024 chunks. opt may be NULL. */
typedef struct coda_linear_cross_entropy_options {
    size_t size;
    int32_t ignore_index;     /* as of coda_cross_entropy_options, as the next two */
    coda_reduction reduction;
    int ignore_zero;
    float softcap; /* logits z are softcap tanh(z / softcap) (Gemma 2); 0 (INIT): as they are */
    int64_t rows;  /* of a chunk, a multiple of 128 at best; 0 (INIT): 4096. Each chunk reads and writes w's
                    * gradient once, so small chunks are slow */
} coda_linear_cross_entropy_options;
#define CODA_LINEAR_CROSS_ENTROPY_OPTIONS_INIT \
    {sizeof(coda_linear_cross_entropy_options), 0, CODA_REDUCE_MEAN, 0, 0, 0}
CODA_API coda_value coda_linear_cross_entropy(coda_graph *g, coda_value x, coda_value w, coda_value targets,
                                              const coda_linear_cross_entropy_options *opt);

/* ---- Two plans: forward, and backward ---- */

typedef enum coda_keep {
    CODA_KEEP_PRODUCTS = 0, /* results of products and attention, with the residual or bias added to them and
                             * the turn of rope; row values, f32 [.., 1]. Maps and norms are computed again,
                             * which costs no traffic: they are epilogues of backward's products */
    CODA_KEEP_MORE = 1,     /* also operands of products that forward stores anyway, a SwiGLU's result */
    CODA_KEEP_LEAST = 2     /* leaves alone: backward computes the forward again */
} coda_keep;
typedef struct coda_split_options {
    size_t size;
    coda_keep keep;         /* INIT: CODA_KEEP_PRODUCTS */
    const coda_value *also; /* values of joint that are kept whatever `keep` says, if backward needs them */
    int also_count;
    int consume; /* 1: backward may write over kept.0, kept.1, ..: see coda_consume. INIT: 0 */
} coda_split_options;
#define CODA_SPLIT_OPTIONS_INIT {sizeof(coda_split_options), CODA_KEEP_PRODUCTS, NULL, 0, 0}

/* Lets a run write over the argument of x, a coda_input: a result of the same size that is made of it,
 * element by element, by the program that reads it last may take its memory, as a SwiGLU's gradient that
 * of what the SwiGLU read, or a cotangent's that of the cotangent. The memory stays yours. What it holds
 * behind a run is undefined, whether it was written or not: fill it anew before the next one, also between
 * replays of a captured graph. Its kind is CODA_ARG_CONSUMED; it shares no byte with another argument
 * (coda_run says CODA_E_INVALID). coda_evaluate does not write to it. coda_split leaves inputs of forward
 * as they are if backward reads them, too. Poisons the graph, CODA_E_INVALID, if x is no input. */
CODA_API void coda_consume(coda_graph *g, coda_value x);

/* Cuts a joint graph, as coda_grad has made it, in two. *forward has the first `outputs` outputs of joint
 * and then what is kept beside them: outputs kept.0, kept.1, ... *backward has the other outputs, and
 * inputs of the names of what it reads of forward: kept.0, ..., and outputs of forward that are kept as
 * they are. Both have those leaves of joint that they need, in their order. What is kept depends on no
 * leaf that backward alone needs, as a cotangent is. Where backward can have a norm's dot product, or its
 * factor, from what forward's products leave, it is rewritten to, before the cut; so norms come out as
 * formulas. You free both; joint stays as it is. CODA_E_INVALID: a pointer is NULL, `outputs` is not
 * below the number of joint's outputs, a value of `also` is of another graph, joint has a mistake.
 * CODA_E_UNSUPPORTED: joint writes to states. */
CODA_API coda_status coda_split(const coda_graph *joint, int outputs, const coda_split_options *opt,
                                coda_graph **forward, coda_graph **backward);

/* ---- Optimisers: a step as nodes, which a caller could append, too. One launch of AdamW or SGD ---- */

/* A step on one tensor, or on a flat one of all parameters, which are pointers into it. grad: f32, bf16 or
 * f16; all is computed in fp32. p, m, v: fp32 states of its shape. w: the weight that products read, a state
 * of 16 bits: p rounded; or CODA_NONE. A run writes to the states, behind all that reads them so far. What
 * changes from step to step is an f32 of one element, as coda_scalar makes it, or CODA_NONE (INIT):
 *
 *     lr_value    takes lr's place
 *     clip        the gradient is multiplied by it first
 *     update      where it is 0 no state changes by a bit, whatever the gradient holds
 *
 * Clipped to a norm of 1, and without a step where the norm is inf or NaN:
 *
 *     coda_value n2 = coda_norm_squared(g, grads, n), one = coda_constant(g, CODA_F32, 1);
 *     opt.clip = coda_minimum(g, one, coda_rsqrt(g, n2));
 *     opt.update = coda_equal(g, coda_sub(g, n2, n2), coda_constant(g, CODA_F32, 0));
 *
 * CODA_E_INVALID, as the graph's mistake: other shapes and dtypes, what is no state, one state twice, options
 * below 0, a beta or a momentum of 1 or more. opt may be NULL. */

/* m += (1 - beta1) (g - m);  v += (1 - beta2) (g^2 - v);
 * p -= lr (correction1 m / (sqrt(correction2 v) + eps) + weight_decay p)
 * Loshchilov & Hutter, arXiv 1711.05101. In step t = 1, 2, .. the corrections are 1 / (1 - beta1^t) and
 * 1 / (1 - beta2^t), values as those above; CODA_NONE (INIT): 1. */
typedef struct coda_adamw_options {
    size_t size;
    float lr;           /* 0 (INIT): 1e-3 */
    float beta1, beta2; /* 0 (INIT): 0.9, 0.999 */
    float eps;          /* 0 (INIT): 1e-8 */
    float weight_decay;
    coda_value lr_value, clip, update, correction1, correction2;
} coda_adamw_options;
#define CODA_ADAMW_OPTIONS_INIT {sizeof(coda_adamw_options), 0, 0, 0, 0, 0, {0}, {0}, {0}, {0}, {0}}
CODA_API void coda_adamw(coda_graph *g, coda_value grad, coda_value p, coda_value m, coda_value v,
                         coda_value w, const coda_adamw_options *opt);

/* g += weight_decay p;  m = momentum m + g;  p -= lr m, with nesterov lr (g + momentum m): as torch.optim.SGD
 * has it. m may be CODA_NONE if momentum is 0. */
typedef struct coda_sgd_options {
    size_t size;
    float lr; /* 0 (INIT): 1e-3 */
    float momentum, weight_decay;
    int nesterov;
    coda_value lr_value, clip, update;
} coda_sgd_options;
#define CODA_SGD_OPTIONS_INIT {sizeof(coda_sgd_options), 0, 0, 0, 0, {0}, {0}, {0}}
CODA_API void coda_sgd(coda_graph *g, coda_value grad, coda_value p, coda_value m, coda_value w,
                       const coda_sgd_options *opt);

/* Of matrices [.., N, K]: m = momentum m + g;  u = g + momentum m, Nesterov's, with heavy_ball m;
 * p -= lr (sqrt(max(1, N / K)) orthogonal(u) + weight_decay p)
 * orthogonal(u) is u / |u| after `steps` steps X = 3.4445 X - 4.775 A X + 2.0315 A^2 X, A = X X^T: Jordan et
 * al., "Muon: an optimizer for hidden layers in neural networks", 2024. */
typedef struct coda_muon_options {
    size_t size;
    float lr;       /* 0 (INIT): 0.02 */
    float momentum; /* 0 (INIT): 0.95 */
    float weight_decay;
    int heavy_ball;
    int steps;           /* 0 (INIT): 5 */
    coda_dtype products; /* of orthogonal(u). 0 (INIT): CODA_BF16 */
    coda_value lr_value, clip, update;
} coda_muon_options;
#define CODA_MUON_OPTIONS_INIT \
    {sizeof(coda_muon_options), 0, 0, 0, 0, 0, (coda_dtype)0, {0}, {0}, {0}}
CODA_API void coda_muon(coda_graph *g, coda_value grad, coda_value p, coda_value m, coda_value w,
                        const coda_muon_options *opt);

/* f32 [1]: the sum of the squares of all elements of n >= 1 values, floats of any shape. */
CODA_API coda_value coda_norm_squared(coda_graph *g, const coda_value *x, int n);

#ifdef __cplusplus
}
#endif

#endif
