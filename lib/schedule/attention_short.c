/* attention_short.c -- short sequences: TMA and wgmma, all keys at once; attention_short_sm90.cuh. */
#include "attention_kernel.h"

/* Heads of at most 64 columns: with more, a tile of 128 queries, whose keys are loaded once, was measured
 * to be as fast or faster. */
enum { SHORT_QUERIES = 64, SHORT_KEYS = 256, SHORT_COLUMNS = 64 };

/* Blocks of so many keys that an SM has registers for; addresses of a bias take some, too. */
static int residents(const struct attention_spec *a, int keys)
{
    int n = keys <= 128 ? 4 : keys <= 192 ? 3 : 2;
    return !attention_has(a, ATTENTION_BIAS) ? n : keys <= 192 ? n - 1 : 0;
}

static struct attention_tile tile(const struct attention_spec *a, const struct attention_terms *on)
{
    struct attention_tile t = {.bm = SHORT_QUERIES, .threads = 2 * SHORT_QUERIES};
    t.bn = (int)CEIL_DIV(MAX(a->tk, 1), 64) * 64;
    int64_t row = 128 * CEIL_DIV(MIN(a->head_dim, FAR_TOO_WIDE), 64), bytes = row * (t.bm + 2 * t.bn) + 16;
    t.shared_bytes = CEIL_DIV(bytes, 1024) * 1024;
    t.residents = (int)MIN(residents(a, t.bn), on->target->shared_bytes / t.shared_bytes);
    t.blocks = attention_blocks(a, t.bm);
    return t;
}

/* A query's sums are in the order of this kernel then, whatever the length of others: so not where bits must
 * not depend on how many rows there are. */
static bool fits(const struct attention_spec *a, const struct attention_terms *on, struct reason *why)
{
    bool simple = !a->page && !attention_has(a, ATTENTION_RANGES) && !attention_is_packed(a);
    return simple && !on->invariant && !on->base && a->tk <= SHORT_KEYS && a->head_dim <= SHORT_COLUMNS &&
           attention_wgmma.fits(a, on, why) && tile(a, on).residents > 0;
}

const struct attention_kernel attention_short = {
    .index = ATTENTION_BY_SHORT, .suffix = "", .units = "sm90", .fits = fits, .tile = tile};
