/* schedule_top_k.c -- how many warps look for the k largest of a row: one, with other rows beside it in the
 * block, or all of a block. */
#include "top_k.h"
#include "schedule.h"

enum {
    BLOCK_WARPS = 4,      /* each with a row of its own */
    ONE_WARP_MOST = 1024, /* columns, and ... */
    ONE_WARP_MOST_K = 32, /* ... each lane's best is a bound for the k-th */
    FEW_WARPS = 8,
    FEW_WARPS_MOST = 16384, /* columns */
    MANY_WARPS = 16,
    MOST_BLOCKS = 1 << 30
};

/* Warps of a row. */
static int warps(const struct top_k_spec *s)
{
    int64_t candidates = top_k_candidates(s);
    if (candidates <= ONE_WARP_MOST && s->k <= ONE_WARP_MOST_K) return 1;
    return candidates <= FEW_WARPS_MOST ? FEW_WARPS : MANY_WARPS;
}

void schedule_top_k(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct top_k_spec *of = q->spec;
    (void)opt;
    s->tile.bm = warps(of) == 1 ? BLOCK_WARPS : 1;
    s->tile.groups = warps(of);
    s->threads = 32 * s->tile.bm * s->tile.groups;
    s->grid = MIN(of->rows / s->tile.bm + (of->rows % s->tile.bm != 0), MOST_BLOCKS);
}
