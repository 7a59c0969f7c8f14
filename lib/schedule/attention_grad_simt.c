/* attention_grad_simt.c -- any tensors, on any GPU; attention_grad_simt.cuh. */
#include "attention_grad_kernel.h"

enum { WARPS = 4, MOST_ROWS = 4, MOST_WALKED = 4, MOST_SUMS = 16, WIDE_CHUNKS = 8, MOST_WIDE_SUMS = 24 };

/* Lanes of a warp that share a row. */
static int lanes(const struct attention_spec *a) { return a->head_dim <= 256 ? 8 : 16; }

static int64_t shared(const struct attention_grad_spec *s, const struct attention_spec *a,
                      const struct attention_grad_tile *t)
{
    int64_t pitch = 4 * (CEIL_DIV(a->head_dim, 4) | 1);
    return 4 * 2 * (int64_t)(t->bm + t->bn) * pitch + attention_grad_beside(s, t, true);
}

/* Rows of a thread: of each it holds a part of a row of dk and of dv, or, of wide heads, of one, in so many
 * quads. */
static struct attention_grad_tile tile(const struct attention_grad_spec *s, const struct attention_spec *a,
                                       const struct target *target)
{
    int64_t chunks = CEIL_DIV(a->head_dim, 4 * lanes(a));
    int64_t most = chunks > WIDE_CHUNKS ? MOST_WIDE_SUMS : MOST_SUMS;
    struct attention_grad_tile t = {.stages = 1, .threads = 32 * WARPS};
    for (int rows = MOST_ROWS; rows; rows /= 2)
        for (int walked = MOST_WALKED; walked && rows * chunks <= most; walked /= 2) {
            t.bm = rows * WARPS * 32 / lanes(a), t.bn = walked * lanes(a);
            t.shared_bytes = shared(s, a, &t);
            if (t.shared_bytes <= target->shared_bytes) return t;
        }
    return (struct attention_grad_tile){.threads = 32 * WARPS};
}

static bool fits(const struct attention_grad_spec *s, const struct attention_spec *a,
                 const struct target *target)
{
    (void)s, (void)a, (void)target;
    return true;
}

const struct attention_grad_kernel attention_grad_simt = {.index = ATTENTION_GRAD_BY_SIMT,
                                                          .suffix = "simt",
                                                          .unit = "AttentionGradSimt",
                                                          .fits = fits,
                                                          .tile = tile};
