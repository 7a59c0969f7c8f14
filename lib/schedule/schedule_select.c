/* schedule_select.c -- kernels that select elements of a row. The k largest are looked for by one warp, with
 * other rows beside it in the block, or by all of a block; the least that is kept, always by a block, which
 * has more threads for a longer row. */
#include "schedule.h"
#include "top_k.h"

enum {
    BLOCK_WARPS = 4,      /* each with a row of its own */
    ONE_WARP_MOST = 1024, /* columns, and ... */
    ONE_WARP_MOST_K = 32, /* ... each lane's best is a bound for the k-th */
    FEW_WARPS = 8,
    FEW_WARPS_MOST = 16384, /* columns */
    MANY_WARPS = 16,
    FEW_THREADS = 256,
    FEW_THREADS_MOST = 4096, /* columns */
    MANY_THREADS = 1024,
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

void schedule_nucleus(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct nucleus_spec *of = q->spec;
    (void)opt;
    s->threads = of->columns <= FEW_THREADS_MOST ? FEW_THREADS : MANY_THREADS;
    s->grid = MIN(of->rows, MOST_BLOCKS);
}
