/* schedule_delta.c -- the kernel of the gated delta rule: a block has some columns of a head's state, a warp
 * some of its rows. */
#include "schedule.h"

enum { LANES = 32, ROWS = 16, TOGETHER = 4, MOST_BLOCKS = 1 << 30 };

void schedule_delta(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct delta_spec *of = q->spec;
    int warps = (int)CEIL_DIV(of->keys, ROWS);
    (void)opt;
    s->tile.groups = warps;
    s->tile.bm = (int)CEIL_DIV(CEIL_DIV(of->keys, warps), TOGETHER) * TOGETHER;
    s->tile.bn = LANES;
    s->threads = LANES * warps;
    bool packed = of->use[DELTA_STARTS].buffer >= 0;
    int64_t columns = mul_counts(of->heads, CEIL_DIV(of->values, LANES));
    s->grid = MIN(mul_counts(columns, add_counts(of->sequences, packed)), MOST_BLOCKS);
}
