/* eval_attention.h -- between the files of attention and of its gradients. */
#ifndef EVAL_ATTENTION_H
#define EVAL_ATTENTION_H

#include "eval.h"

#include <stdatomic.h>

enum { QUERIES = 64, KEYS = 128 };

struct attention {
    const double *q, *k, *v, *lengths, *ranges, *slopes, *sinks, *table, *k_scale, *v_scale, *starts,
        *bias; /* from lengths on NULL: not there */
    int64_t k_scales, v_scales;
    int64_t bias_stride[4]; /* from a batch, a head, a query, a key to the next; 0: it is for all */
    double *out;
    int64_t batch, tq, tk; /* with starts, tq are the queries of all */
    int64_t heads, kv_heads, head_dim, window, ahead, page, pages;
    int64_t kv_lot, kv_head, kv_row; /* of k and v: from one sequence, or page of a pool, to the next, ... */
    bool causal, lse;                /* lse: the sums are the result */
    coda_attention_align align;
    double scale, softcap;
    double (*map)(const double *in, const double *params); /* of scores; NULL: none */
    double map_param[PRIM_MAX_PARAMS];
    struct piece *piece;
    int64_t pieces;
    atomic_bool failed;
};

/* Up to QUERIES rows of q, from `first` on: of one sequence, which has those from `origin` below `end`. */
struct piece {
    int64_t batch; /* -1: rows of no sequence */
    int64_t origin, end, first;
};

struct key_range {
    int64_t first, end;
};

/* The softmax of a block of queries in the making. */
struct queries {
    int64_t first, count; /* queries of the sequence */
    int64_t shift;        /* query i sits at position i + shift */
    int64_t keys;         /* that exist in this sequence */
    int64_t head;
    const double *ranges, *bias; /* of query 0 of this sequence; bias: of the head */
    bool failed;
    struct matrix q, k, v;
    double *out;
    int64_t pitch; /* between rows of out */
    double most[QUERIES], sum[QUERIES];
    double score[QUERIES * KEYS];
};

/* Reads node n of OP_ATTENTION, whose operands are in[]; false: no memory, or a map without a reference, with
 * the message set. Its pieces are to be freed. */
bool attention_open(struct attention *a, const struct node *n, const struct type *const *type,
                    const double *const *in);
/* The queries of a piece of a head, their rows of q, k and v; but for pages. */
void attention_queries(const struct attention *a, const struct piece *p, int64_t head, struct queries *s);
/* The keys that row i of s sees. */
struct key_range queries_see(const struct attention *a, const struct queries *s, int64_t i);
/* The first row of a head in sums of [batch][heads][tq] or, if sequences are packed, [heads][tq]. */
int64_t attention_row_of_sums(const struct attention *a, const struct piece *p, int64_t head);

#endif
