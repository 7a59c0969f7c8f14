/* attention_short.c -- few keys for each query, many blocks on an SM; attention_short_sm90.cuh. */
#include "attention_kernel.h"

/* Up to where it was measured to be as fast as tiles of 128 queries, whose keys are loaded once, or faster:
 * columns of a head; keys, of which limited queries see half. With ranges keys are sentences one behind the
 * other, of which 64 queries see few. */
enum { MOST_COLUMNS = 64, MOST_KEYS = 256, MOST_LIMITED_KEYS = 512, MOST_RANGED_KEYS = 1 << 14 };

enum { QUERIES = 64, NARROW = 32 /* columns */ };

/* Keys of a block, slots for them and for their values, and blocks that an SM has registers for. */
struct walk {
    int keys, slots, residents;
};

/* Are all keys one block? So they are where tiles are so few that none runs beside another one, or where all
 * keys are seen and two blocks of 64 were measured to be slower. */
static bool is_one_block(const struct attention_spec *a, const struct target *target)
{
    bool bias = attention_has(a, ATTENTION_BIAS);
    if (a->tk <= 64 || attention_has(a, ATTENTION_RANGES)) return false;
    if (attention_blocks(a, QUERIES) <= target->sms && !bias) return a->tk <= 256;
    bool hidden = attention_is_limited(a) || a->window > 0 || attention_has(a, ATTENTION_LENGTHS);
    return !hidden && (a->head_dim > NARROW || bias) && a->tk <= 128;
}

/* Each block waits for its products, so the fewer keys it has the more blocks run beside it. Wider ones go
 * more seldom to L2, which is what many columns wait for; and they have fewer steps, which is what few tiles
 * wait for. A bias and a map of scores take registers. */
static struct walk walk(const struct attention_spec *a, const struct target *target)
{
    bool ranges = attention_has(a, ATTENTION_RANGES), bias = attention_has(a, ATTENTION_BIAS);
    if (is_one_block(a, target)) {
        int keys = (int)CEIL_DIV(a->tk, 64) * 64;
        return (struct walk){keys, 2, bias ? 3 : keys <= 128 ? 4 : keys <= 192 ? 3 : 2};
    }
    if (bias || !attention_is_plain(a)) return (struct walk){64, 3, 4};
    if (ranges && attention_blocks(a, QUERIES) <= 2 * 3 * target->sms) return (struct walk){128, 3, 3};
    if (a->head_dim > NARROW) return ranges ? (struct walk){96, 3, 4} : (struct walk){64, 3, 5};
    return (struct walk){64, 3, ranges ? 5 : 6};
}

static struct attention_tile tile(const struct attention_spec *a, const struct attention_terms *on)
{
    struct walk w = walk(a, on->target);
    struct attention_tile t = {.bm = QUERIES, .bn = w.keys, .stages = w.slots, .threads = 2 * QUERIES};
    int64_t row = 128 * CEIL_DIV(MIN(a->head_dim, FAR_TOO_WIDE), 64);
    int64_t bytes = row * (t.bm + w.slots * t.bn) + 8 * w.slots;
    t.shared_bytes = CEIL_DIV(bytes, 1024) * 1024;
    t.residents = (int)MIN(w.residents, on->target->shared_bytes / t.shared_bytes);
    t.blocks = attention_blocks(a, t.bm);
    return t;
}

static int64_t most_keys(const struct attention_spec *a)
{
    if (attention_has(a, ATTENTION_RANGES)) return MOST_RANGED_KEYS;
    return attention_is_limited(a) ? MOST_LIMITED_KEYS : MOST_KEYS;
}

/* A query's sums are in the order of this kernel then, whatever the length of others: so not where bits must
 * not depend on how many rows there are. */
static bool fits(const struct attention_spec *a, const struct attention_terms *on, struct reason *why)
{
    bool simple = !a->page && !attention_is_packed(a);
    return simple && !on->invariant && !on->base && a->tk <= most_keys(a) && a->head_dim <= MOST_COLUMNS &&
           attention_wgmma.fits(a, on, why) && tile(a, on).residents > 0;
}

/* Does nothing of the run write what a block asks before it loads keys? */
static bool reads_early(const struct attention_spec *a, const struct attention_tile *t)
{
    (void)t;
    return a->use[ATTENTION_RANGES].steady && a->use[ATTENTION_LENGTHS].steady &&
           (attention_has(a, ATTENTION_RANGES) || attention_has(a, ATTENTION_LENGTHS));
}

const struct attention_kernel attention_short = {.index = ATTENTION_BY_SHORT,
                                                 .suffix = "",
                                                 .units = "sm90",
                                                 .fits = fits,
                                                 .tile = tile,
                                                 .reads_early = reads_early};
