/* attention.h -- what an attention program computes: its sizes, and its tensors by the names in ops.def. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "program.h"

/*
 * What each use is beside its words in ops.def.
 *
 *     q, k, v, o       by the strides batch, time and head; the columns of a head are adjacent. For a pool of
 *                      pages, batch is the stride from page to page
 *     lse              dense: [batch][heads][tq], packed [heads][tq]
 *     ranges           keys from the first number below the second; stride[0] is 0 if q has no batch
 *     k_scale, v_scale stride 0 if one number is for all heads
 *     bias             [batch][heads][tq][tk] by strides, 0 where one is for all; added to scores
 *     starts           queries are packed: where those of each sequence begin among the rows of q, o and
 *                      ranges, which have no batch then
 *     written          no operand of the node: slots of an append, which count the keys of all sequences, or
 *                      of the pool
 */

/* Is the operand there, or the result wanted? */
static inline bool attention_has(const struct attention_spec *a, int use) { return a->use[use].buffer >= 0; }

/* Do queries of sequences that have some each lie one behind the other? */
static inline bool attention_is_packed(const struct attention_spec *a)
{
    return attention_has(a, ATTENTION_STARTS);
}

/* Batches of q, o, ranges and lse. */
static inline int64_t attention_batches(const struct attention_spec *a)
{
    return attention_is_packed(a) ? 1 : a->batch;
}

/* The most tiles of `rows` that the queries of a head have. Packed ones have those of each sequence, of the
 * rows before the first and of those behind the last: each of these pieces may end in the midst of a tile. */
static inline int64_t attention_tiles(const struct attention_spec *a, int64_t rows)
{
    if (!attention_is_packed(a)) return a->batch * CEIL_DIV(a->tq, rows);
    return (a->tq + MIN(a->batch + 2, a->tq) * (rows - 1)) / rows;
}

/* Are keys and values of 8 bits? */
static inline bool attention_is_narrow(const struct attention_spec *a)
{
    return a->use[ATTENTION_K].dtype == CODA_F8E4M3 && a->use[ATTENTION_V].dtype == CODA_F8E4M3;
}

/* k and v are lots of rows: sequences, `batch` apart, or the pages of a pool. */
static inline int64_t attention_lots(const struct attention_spec *a)
{
    return a->page ? a->slots / a->page : a->batch;
}
static inline int64_t attention_lot(const struct attention_spec *a) { return a->page ? a->page : a->tk; }

#define ATTENTION_MOST_TIME ((int64_t)1 << 30) /* positions are 32-bit in the kernels */
#define ATTENTION_MOST_BLOCKS ((int64_t)1 << 30)

/* Do scores come as Q K^T has them, but for the scale? */
static inline bool attention_is_plain(const struct attention_spec *a)
{
    return a->softcap == 0 && !attention_has(a, ATTENTION_SLOPES) && !attention_has(a, ATTENTION_BIAS) &&
           !a->score;
}

/* Do scores depend on where the query sits? */
static inline bool attention_is_placed(const struct attention_spec *a)
{
    return attention_has(a, ATTENTION_SLOPES) || (a->score && a->score->inputs > SCORE_POSITION);
}

/* Is there a last key, counted from the position, that a query sees? */
static inline bool attention_is_limited(const struct attention_spec *a) { return a->causal || a->ahead; }

/* Keys of a tile of `rows` that lie together: the page, or of it what divides the tile. */
static inline int attention_box(const struct attention_spec *a, int rows)
{
    int64_t box = a->page ? a->page : rows;
    while (box > rows || rows % box) box /= 2;
    return (int)box;
}

static inline bool attention_is_empty(const struct attention_spec *a)
{
    return attention_batches(a) <= 0 || a->heads <= 0 || a->head_dim <= 0 || a->tq <= 0;
}

/* The shift of a sequence of so many queries and keys: its query i stands at position i + shift. */
static inline int64_t attention_shift(const struct attention_spec *a, int64_t queries, int64_t keys)
{
    if (a->align == CODA_ALIGN_START) return 0;
    return (a->align == CODA_ALIGN_LENGTH ? keys : a->tk) - queries;
}

/* ---- attention.c ---- */

/* Pairs of query and key of a head that are not masked, of the sequences one with another. */
double attention_pairs(const struct attention_spec *a);
int64_t attention_bias_bytes(const struct attention_spec *a);         /* that are read; 0: it has none */
void attention_print(const struct attention_spec *a, struct text *t); /* behind its name, in its text */

#endif
