/* attention_simt.c -- any tensors, on any GPU; attention_simt.cuh. */
#include "attention_kernel.h"

enum { SIMT_WARPS = 4 };

/* Lanes of a warp that share a query. */
static int lanes(const struct attention_spec *a) { return a->head_dim <= 256 ? 8 : 16; }

/* Queries, keys, values; and weights of some keys, as attention_simt.cuh has them. */
static int64_t shared(const struct attention_spec *a, int64_t bm, int64_t bn)
{
    int64_t quads = CEIL_DIV(a->head_dim, 4), slice = MIN(bn, a->head_dim <= 64 ? 32 : 16);
    return 4 * ((bm + 2 * bn) * 4 * (quads | 1) + bm * (slice + 8));
}

/* Queries of a thread: it holds rows * head_dim / lanes sums, 128 at most. */
static int rows_of(const struct attention_spec *a)
{
    return a->head_dim <= 128 ? 8 : a->head_dim <= 512 ? 4 : a->head_dim <= 1024 ? 2 : a->head_dim <= 2048;
}

/* Keys are as many as leave blocks room beside each other, whatever the queries: the bits of a query's sums
 * depend on it. Queries are fewer where there are fewer, or where SMs had none. */
static struct attention_tile tile(const struct attention_spec *a, const struct attention_terms *on)
{
    if (attention_is_empty(a)) return (struct attention_tile){.bm = 16};
    int step = SIMT_WARPS * 32 / lanes(a), rows = rows_of(a), bm = step * rows;
    int bn = lanes(a) * (a->head_dim <= 32 ? 8 : 4);
    while (rows && bn > lanes(a) && shared(a, bm, bn) > on->target->shared_bytes) bn /= 2;
    while (rows && shared(a, bm, bn) > on->target->shared_bytes) rows /= 2, bm = step * rows;
    while (rows > 1 && (bm / 2 >= a->tq || attention_blocks(a, bm / 2) <= on->target->sms))
        rows /= 2, bm = step * rows;
    struct attention_tile t = {.bm = bm, .bn = bn, .threads = 32 * SIMT_WARPS};
    if (rows) t.shared_bytes = shared(a, bm, bn), t.blocks = attention_blocks(a, bm);
    return t;
}

static bool fits(const struct attention_spec *a, const struct attention_terms *on, struct reason *why)
{
    (void)a, (void)on, (void)why;
    return true;
}

const struct attention_kernel attention_simt = {.index = ATTENTION_BY_SIMT,
                                                .suffix = "_simt",
                                                .units = "simt",
                                                .fallback = true,
                                                .fits = fits,
                                                .tile = tile};
