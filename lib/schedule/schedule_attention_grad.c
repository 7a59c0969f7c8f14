/* schedule_attention_grad.c -- the tile of attention's gradients, and which blocks there are. */
#include "attention_grad_kernel.h"

enum { WARPS = 4, MOST_ROWS = 4, MOST_WALKED = 4, MOST_SUMS = 16, WIDE_CHUNKS = 8, MOST_WIDE_SUMS = 24 };

/* Lanes of a warp that share a row. */
static int lanes(const struct attention_spec *a) { return a->head_dim <= 256 ? 8 : 16; }

/* Own rows and walked ones of two tensors each, weights and statistics: attention_grad_simt.cuh. */
static int64_t shared(const struct attention_spec *a, int64_t bm, int64_t bn)
{
    int64_t pitch = 4 * (CEIL_DIV(a->head_dim, 4) | 1);
    return 4 * (2 * (bm + bn) * pitch + bm * (bn + 8) + 2 * MAX(bm, bn));
}

/* Rows of a thread: of each it holds a part of a row of dk and of dv, or, of wide heads, of one, in so many
 * quads. The bits of a result do not depend on the tile, but for those of what is summed over rows. */
static bool find_tile(struct schedule *s, const struct attention_spec *a, const struct target *target)
{
    int64_t chunks = CEIL_DIV(a->head_dim, 4 * lanes(a));
    int64_t most = chunks > WIDE_CHUNKS ? MOST_WIDE_SUMS : MOST_SUMS;
    for (int rows = MOST_ROWS; rows; rows /= 2)
        for (int walked = MOST_WALKED; walked && rows * chunks <= most; walked /= 2) {
            int64_t bm = (int64_t)rows * WARPS * 32 / lanes(a), bn = (int64_t)walked * lanes(a);
            if (shared(a, bm, bn) > target->shared_bytes) continue;
            s->tile.bm = (int)bm, s->tile.bn = (int)bn;
            s->shared_bytes = (int)shared(a, bm, bn);
            return true;
        }
    return false;
}

/* Of a gradient that is summed over what the bias was broadcast over. */
static int64_t blocks_of_pairs(const struct attention_grad_spec *s, const struct attention_grad_blocks *b,
                               const struct attention_spec *a)
{
    const struct tensor_use *u = &s->use[ATTENTION_GRAD_DBIAS];
    bool batch = u->stride[0] != 0, head = u->stride[1] != 0, time = u->stride[2] != 0,
         key = u->stride[3] != 0;
    bool apart = batch || attention_is_packed(a);
    int64_t tiles = time    ? (apart ? b->query_tiles : b->query_tiles / MAX(a->batch, 1))
                    : batch ? a->batch
                            : 1;
    return mul_counts(tiles, mul_counts(head ? a->heads : 1, key ? b->walked_tiles : 1));
}

struct attention_grad_blocks attention_grad_blocks(const struct attention_grad_spec *s,
                                                   const struct tile *tile)
{
    const struct attention_spec a = attention_grad_of(s);
    bool dk = attention_grad_has(s, ATTENTION_GRAD_DK), dv = attention_grad_has(s, ATTENTION_GRAD_DV);
    bool of_heads =
        attention_grad_has(s, ATTENTION_GRAD_DSINKS) || attention_grad_has(s, ATTENTION_GRAD_DSLOPES);
    struct attention_grad_blocks b = {.key_tiles = CEIL_DIV(a.tk, tile->bm),
                                      .walked_tiles = CEIL_DIV(a.tk, tile->bn),
                                      .query_tiles = attention_tiles(&a, tile->bm)};
    if (dk || dv) b.keys = mul_counts(mul_counts(a.batch, a.kv_heads), b.key_tiles);
    if (attention_grad_has(s, ATTENTION_GRAD_DQ)) b.queries = mul_counts(b.query_tiles, a.heads);
    if (attention_grad_has(s, ATTENTION_GRAD_DBIAS)) b.pairs = blocks_of_pairs(s, &b, &a);
    if (of_heads) b.heads = a.heads;
    return b;
}

void schedule_attention_grad(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct attention_grad_spec *spec = q->spec;
    const struct attention_spec a = attention_grad_of(spec);
    s->threads = 32 * WARPS;
    if (!find_tile(s, &a, &opt->target)) return;
    const struct attention_grad_blocks b = attention_grad_blocks(spec, &s->tile);
    s->grid = add_counts(add_counts(b.keys, b.queries), add_counts(b.pairs, b.heads));
    s->early = !q->prepare && s->grid && target_has(&opt->target, TARGET_PDL);
}
