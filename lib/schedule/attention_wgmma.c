/* attention_wgmma.c -- many queries: TMA and wgmma, in tiles of queries that walk the keys;
 * attention_sm90.cuh. */
#include "attention_kernel.h"

/* Stages of narrow heads, whose blocks of keys are small and soon done; memory is as far as for others. With
 * queries in registers shared memory has room for one more of wider heads, or two of 80 keys. */
enum { NARROW_STAGES = 4, HELD_STAGES = 3 };
#define WORTH_THREE 0.98 /* of the time of two warpgroups, as prices err by more */
enum { NARROW = 64, MOST_OF_THREE = 72, MOST_OF_BARE = 96, WIDE_BARE = 80, MOST_HELD = 128 }; /* columns */

/* What tiles of bm queries of narrow heads take, one with another: for a block of 128 keys 192 queries take
 * 4 / 3 of the time of 128, and a tile costs about as much as a block beside them. A limit leaves part of a
 * tile's last blocks unseen. Fitted to an H200's 512, 1024, 2048 and 8192 keys. */
static double time_of_tiles(const struct attention_spec *a, int bm)
{
    double blocks = attention_pairs(a) / (double)a->tq / 128 + (attention_is_limited(a) ? bm / 256.0 : 0);
    return (double)CEIL_DIV(a->tq, bm) * (1 + blocks) * (bm > 128 ? 4 : 3);
}

/* Have three warpgroups registers for softcap? Beside a limit, or slopes and sinks, of few columns. */
static bool three_cap(const struct attention_spec *a)
{
    bool beside =
        attention_is_limited(a) || attention_has(a, ATTENTION_SLOPES) || attention_has(a, ATTENTION_SINKS);
    return a->softcap == 0 || a->head_dim <= NARROW / 2 || !beside;
}

/* Have three warpgroups registers for more columns, and for their queries, with 96 keys, or 80? Where all
 * queries see all keys, and nothing more is wanted. (Two then have as many, where bits must not tell the
 * number of queries.) */
static bool is_bare(const struct attention_spec *a)
{
    static const int more[] = {ATTENTION_LENGTHS, ATTENTION_RANGES, ATTENTION_SINKS, ATTENTION_LSE};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (attention_has(a, more[i])) return false;
    return a->head_dim > NARROW && a->head_dim <= MOST_OF_BARE && attention_is_plain(a) && !a->page &&
           !attention_is_limited(a) && !a->window && !attention_is_packed(a);
}

/* Then of a block; 96 columns leave registers for fewer. */
static int keys_of_bare(const struct attention_spec *a) { return a->head_dim <= WIDE_BARE ? 96 : 80; }

/* What all tiles of bm queries take where is_bare(), in blocks of 128 keys of an SM's two warpgroups. Joining
 * what SMs share costs as much however long tiles are. Fitted to 17 shapes, an H200's 1,024 to 8,192 tokens
 * of 16 and 24 heads, all but one within 9 %. */
static double time_of_rounds(const struct attention_spec *a, int bm, int sms)
{
    enum { JOINING = 4 };
    double blocks = (double)a->tk / 128, of_three = a->head_dim <= MOST_OF_THREE ? 1.15 : 1.37;
    int bn = bm > 128 ? keys_of_bare(a) : 128, joining = attention_may_share(a, bm, bn, sms) ? JOINING : 0;
    double rounds = attention_rounds(a, bm, bn, sms);
    return bm > 128 ? of_three * (rounds * (blocks + 2) + joining) : rounds * (blocks + 1) + joining;
}

/* Do three warpgroups share an SM? They have no registers for a map of scores or a bias, or for a window and
 * more than scaled scores, nor with 72 columns for what is seen in part. */
static bool has_three_groups(const struct attention_spec *a, int sms)
{
    bool limited = attention_is_limited(a) || a->window > 0 || !attention_is_plain(a) ||
                   attention_has(a, ATTENTION_RANGES);
    bool more = a->score || attention_has(a, ATTENTION_BIAS) || attention_is_packed(a) ||
                (a->window > 0 && !attention_is_plain(a)) || !three_cap(a);
    int most = limited ? NARROW : is_bare(a) ? MOST_OF_BARE : MOST_OF_THREE;
    if (a->head_dim > most || a->tq <= 128 || more) return false;
    if (is_bare(a)) return time_of_rounds(a, 192, sms) < WORTH_THREE * time_of_rounds(a, 128, sms);
    return attention_has(a, ATTENTION_RANGES) || time_of_tiles(a, 192) < time_of_tiles(a, 128);
}

/* The tile of a kernel that has one block for each tile of queries, and room for those of so many. */
static struct attention_tile tile_alone(const struct attention_spec *a, const struct attention_terms *on,
                                        int query_slots, bool held)
{
    bool three = has_three_groups(a, on->target->sms);
    struct attention_tile t = {.bm = 128, .bn = 128, .stages = 2, .threads = 128 * 3};
    int64_t row = 128 * CEIL_DIV(MIN(a->head_dim, FAR_TOO_WIDE), 64), bytes;
    /* Registers bound bn: a thread holds bn / 2 scores, bn / 4 weights and head_dim / 2 sums; ranges; what a
     * map of scores or a bias needs. Of packed queries each sequence has a last tile, which is the emptier
     * the larger tiles are. */
    if (three) t.bm = 192, t.threads = 128 * 4, t.bn = !attention_has(a, ATTENTION_RANGES) ? 128 : 112;
    else if (a->head_dim > 128) t.bn = a->head_dim <= 192 ? 112 : 80;
    if (is_bare(a) && (three || on->invariant)) t.bn = keys_of_bare(a);
    if (attention_has(a, ATTENTION_BIAS))
        t.bn -= 16 * ((a->head_dim > 64) + (a->score || attention_has(a, ATTENTION_RANGES)));
    if (a->head_dim <= NARROW) t.stages = NARROW_STAGES;
    else if (held) t.stages = t.bn < 96 ? NARROW_STAGES : HELD_STAGES;
    bytes = row * (query_slots * t.bm + 2 * t.stages * t.bn) + 8 * (2 * query_slots + 4 * t.stages);
    t.shared_bytes = CEIL_DIV(bytes, 1024) * 1024;
    t.blocks = attention_blocks(a, t.bm);
    return t;
}

enum {
    LEAST_PART = 512, /* keys, for whose sake a cluster meets in the end */
    MOST_PARTS = 8    /* blocks of a portable cluster */
};

/* Blocks that share the keys of a tile, where tiles are so few that half of the SMs had none. All SMs take
 * clusters of 2, fewer larger ones. They share what the tile's queries see together, so
 * a query's sums have other parts in other company. */
static int tile_parts(const struct attention_spec *a, int64_t tiles, const struct attention_terms *on)
{
    int n = 1;
    if (attention_has(a, ATTENTION_RANGES) || attention_is_packed(a)) return 0; /* registers */
    while (n < MOST_PARTS &&
           2 * n * tiles <= (n == 1 ? on->target->sms : attention_clustered_sms(on->target)) &&
           a->tk / (2 * n) >= LEAST_PART)
        n *= 2;
    return n > 1 ? n : 0;
}

static bool fits(const struct attention_spec *a, const struct attention_terms *on, struct reason *why)
{
    const struct tensor_use *odd =
        a->use[ATTENTION_K].dtype != a->use[ATTENTION_Q].dtype ? &a->use[ATTENTION_K] : &a->use[ATTENTION_V];
    struct attention_tile t = tile_alone(a, on, 1, false);
    if (!attention_fits_units(a, on, why)) return false;
    if (odd->dtype != a->use[ATTENTION_Q].dtype)
        return attention_no(why, REASON_ATTENTION_DTYPE, odd->value, odd->dtype, 0);
    if (attention_is_scaled(a)) return attention_no(why, REASON_ATTENTION_SCALES, -1, 0, 0);
    if (t.blocks > ATTENTION_MOST_BLOCKS)
        return attention_no(why, REASON_ATTENTION_BLOCKS, -1, t.blocks, ATTENTION_MOST_BLOCKS);
    return t.shared_bytes <= on->target->shared_bytes ||
           attention_no(why, REASON_ATTENTION_SHARED, -1, t.shared_bytes, on->target->shared_bytes);
}

/* Does a block go from tile to tile without a pause? That wants room for the next one's queries, and
 * registers for what they see, which ranges, sequences to look up, a bias and a map of scores do not leave.
 * The blocks of a cluster have one tile each. */
static bool is_carried(const struct attention_spec *a, int cluster)
{
    bool more = attention_has(a, ATTENTION_RANGES) || attention_is_packed(a) || a->score ||
                attention_has(a, ATTENTION_BIAS);
    return a->head_dim <= MOST_HELD && !more && !cluster;
}

/* Three warpgroups seldom have registers for queries, nor have two where scores are more than scaled. */
bool attention_holds_queries(const struct attention_spec *a, int cluster, int bm)
{
    return is_carried(a, cluster) && a->head_dim > NARROW && attention_is_plain(a) &&
           (bm <= 128 || is_bare(a));
}

bool attention_may_end_small(const struct attention_spec *a, int cluster)
{
    bool all = !attention_is_limited(a) && !a->window && !attention_has(a, ATTENTION_LENGTHS);
    return is_carried(a, cluster) && all;
}

int attention_query_slots(const struct attention_spec *a, int cluster, int bm)
{
    return is_carried(a, cluster) && !attention_holds_queries(a, cluster, bm) ? 2 : 1;
}

/* Each warpgroup of each SM leaves the sums of 128 threads, four numbers of two rows, and a flag. */
static int64_t parts_bytes(const struct attention_spec *a, int bm, int sms)
{
    int64_t columns = CEIL_DIV(a->head_dim, 16) * 16;
    return (int64_t)sms * (bm / 64) * (128 * 4 * (columns / 2 + 4) + 16);
}

static struct attention_tile tile(const struct attention_spec *a, const struct attention_terms *on)
{
    const struct attention_tile alone = tile_alone(a, on, 1, false);
    int cluster = on->invariant ? 0 : tile_parts(a, alone.blocks, on);
    bool held = attention_holds_queries(a, cluster, alone.bm);
    struct attention_tile t = tile_alone(a, on, attention_query_slots(a, cluster, alone.bm), held);
    t.cluster = cluster;
    t.blocks *= MAX(t.cluster, 1);
    t.persistent = t.blocks && !t.cluster;
    if (!on->invariant && !on->base && !cluster && attention_may_end_small(a, 0) &&
        attention_may_share(a, t.bm, t.bn, on->target->sms))
        t.parts_bytes = parts_bytes(a, t.bm, on->target->sms);
    return t;
}

const struct attention_kernel attention_wgmma = {.index = ATTENTION_BY_WGMMA,
                                                 .suffix = "",
                                                 .units = "sm90",
                                                 .cluster = "cluster",
                                                 .fits = fits,
                                                 .tile = tile};
