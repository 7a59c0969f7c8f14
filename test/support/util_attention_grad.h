/* util_attention_grad.h -- graphs of an attention and its gradients, for tests on any device. */
#ifndef UTIL_ATTENTION_GRAD_H
#define UTIL_ATTENTION_GRAD_H

#include "util_random.h"

enum {
    GRAD_CAUSAL = 1,
    GRAD_LENGTHS = 2,
    GRAD_RANGES = 4,
    GRAD_STARTS = 8, /* tq queries of all sequences, packed */
    GRAD_SOFTCAP = 16,
    GRAD_SLOPES = 32,
    GRAD_SINKS = 64,
    GRAD_DLSE = 128,
    GRAD_PADDED = 256 /* rows of q, k, v and do are longer than their columns */
};

/* Of which dimensions of [batch, heads, tq, tk] the bias has more than one element. */
enum { BIAS_OF_BATCH = 1, BIAS_OF_HEADS = 2, BIAS_OF_QUERIES = 4, BIAS_OF_KEYS = 8, BIAS_OF_ALL = 15 };

/* Maps of scores: by a map, by itself at 1, alone and with another operand, by 1. */
enum { GRAD_SCORE_NONE, GRAD_SCORE_SOFTCAP, GRAD_SCORE_MUL, GRAD_SCORE_SUB, GRAD_SCORE_SILU, GRAD_SCORES };

struct attention_grad_case {
    const char *name;
    coda_dtype dtype;
    int64_t batch, tq, tk, heads, kv_heads, head_dim; /* batch 0: there is no such dimension */
    int options;
    int64_t window, ahead;
    int align;
    int bias_rank, bias; /* rank 0: there is none */
    bool bias16;         /* it has the dtype of q */
    int score;           /* a SCORE */
    int results;         /* bit i: result i is an output; 0: all that there are */
};

extern const struct attention_grad_case attention_grad_cases[];
extern const int attention_grad_case_count;

/* Small, and of any options. */
struct attention_grad_case attention_grad_draw(uint64_t seed, coda_dtype dtype);
void attention_grad_describe(const struct attention_grad_case *c, struct text *t);

/* Leaves are the operands, outputs the gradients. Joint: o and lse come of an attention, and are outputs,
 * too. */
graph *attention_grad_graph(const struct attention_grad_case *c, bool joint);
/* Of the joint graph's leaves: sum(o do) + sum(lse dlse), where lse counts from -1e4 on. */
graph *attention_grad_loss(const struct attention_grad_case *c);

/* As random_args of the joint graph, with ranges that leave something to see, and slopes that do. */
void **attention_grad_joint_args(const struct attention_grad_case *c, const graph *joint, uint64_t seed,
                                 bool evaluate);

/* Runs the graph of the gradients as run_plan() does, of such leaves, and o and lse as attention has them of
 * these, rounded; returns the largest error of an element, in units of what its dtype allows, or -1 with the
 * message set. */
double attention_grad_error(const struct attention_grad_case *c, uint64_t seed,
                            const coda_compile_options *opt);

#endif
