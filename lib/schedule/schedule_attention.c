/* schedule_attention.c -- which attention programs run on Hopper's units, and in which tile: many queries by
 * TMA and wgmma, of short sequences all keys at once; few by TMA and mma.sync, the keys split over a
 * cluster. */
#include "attention.h"
#include "schedule.h"

#define MOST_PITCH ((int64_t)1 << 39) /* elements: tensor maps hold strides below 2^40 bytes */

struct launch {
    bool sm90;            /* attention_sm90.cuh, TMA + wgmma; else attention_simt.cuh ... */
    int cluster;          /* wgmma: blocks that share a tile's keys; 0: one has all */
    int splits;           /* ... but over 1: attention_split_sm90.cuh, in clusters of so many blocks */
    int resident;         /* ... but over 0: attention_short_sm90.cuh, so many blocks on an SM */
    int bm, bn;           /* queries and keys of a tile; bm 0: no tile fits */
    int stages;           /* wgmma: of the ring of keys and values */
    int threads;          /* of a block */
    int64_t shared_bytes; /* of a block, which the emitted text asserts */
    int64_t blocks;       /* tiles of queries; 0: nothing to do */
};

static int64_t blocks(const struct attention_spec *a, int64_t bm)
{
    return a->heads * attention_tiles(a, bm);
}

/* ---- Hopper ---- */

/* A GPC whose SMs are no multiple of a cluster leaves some idle. */
static int clustered_sms(const struct target *target) { return (int)(target->sms * target->clustered); }

enum {
    FAR_TOO_WIDE = 1 << 20
}; /* columns of a head that no shared memory holds, whose bytes can be counted */

static struct launch wgmma_tile(const struct attention_spec *a)
{
    struct launch t = {.sm90 = true, .bm = 128, .bn = 128, .stages = 2, .threads = 128 * 3};
    int64_t row = 128 * CEIL_DIV(MIN(a->head_dim, FAR_TOO_WIDE), 64), bytes;
    /* Registers bound bn: a thread holds bn / 2 scores, bn / 4 weights and head_dim / 2 sums; ranges; what a
     * map of scores or a bias needs. Of packed queries each sequence has a last tile, which is the emptier
     * the larger tiles are. */
    bool more = a->score || attention_has(a, ATTENTION_BIAS);
    if (a->head_dim <= 64 && a->tq > 128 && !attention_is_packed(a) && !more)
        t.bm = 192, t.threads = 128 * 4, t.bn = !attention_has(a, ATTENTION_RANGES) ? 128 : 112;
    else if (a->head_dim > 128) t.bn = a->head_dim <= 192 ? 112 : 80;
    if (attention_has(a, ATTENTION_BIAS))
        t.bn -= 16 * ((a->head_dim > 64) + (a->score || attention_has(a, ATTENTION_RANGES)));
    bytes = row * (t.bm + 2 * t.stages * t.bn) + 8 * (2 + 4 * t.stages);
    t.shared_bytes = CEIL_DIV(bytes, 1024) * 1024;
    t.blocks = blocks(a, t.bm);
    return t;
}

enum {
    LEAST_PART = 512, /* keys, for whose sake a cluster meets in the end */
    MOST_PARTS = 8    /* blocks of a portable cluster */
};

/* Blocks that share the keys of a tile, where tiles are so few that half of the SMs had none. All SMs take
 * clusters of 2, fewer larger ones. They share what the tile's queries see together, so
 * a query's sums have other parts in other company. */
static int tile_parts(const struct attention_spec *a, int64_t tiles, const struct target *target)
{
    int n = 1;
    if (attention_has(a, ATTENTION_RANGES) || attention_is_packed(a)) return 0; /* registers */
    while (n < MOST_PARTS && 2 * n * tiles <= (n == 1 ? target->sms : clustered_sms(target)) &&
           a->tk / (2 * n) >= LEAST_PART)
        n *= 2;
    return n > 1 ? n : 0;
}

/* Of a single one the stride does not matter; but it may take no other kernel than several do. */
static bool pitch_fits(int64_t extent, int64_t stride, int unit, bool invariant)
{
    if (extent == 1) return !invariant || stride % unit == 0;
    return stride > 0 && stride % unit == 0 && stride < MOST_PITCH;
}

/* Says no, and why: false. */
static bool no(struct reason *why, enum reason_kind kind, int node, int64_t a, int64_t b)
{
    *why = (struct reason){kind, node, -1, a, b};
    return false;
}

/* Copies of whole swizzled atoms; columns of a head come in 16 bytes, as many as registers hold. */
enum { LEAST_PAGE = 8, HEAD_STEP = 8, MOST_HEAD = 256 };

static bool view_fits(const struct attention_spec *a, const struct tensor_use *v, int64_t batch, int64_t time,
                      int64_t heads, bool invariant, struct reason *why)
{
    bool half = v->dtype == CODA_BF16 || v->dtype == CODA_F16, narrow = v->dtype == CODA_F8E4M3;
    int unit = narrow ? 16 : 8; /* elements of 16 bytes */
    if (!narrow && !(half && v->dtype == a->use[ATTENTION_Q].dtype))
        return no(why, REASON_ATTENTION_DTYPE, v->value, v->dtype, 0);
    if (v->offset % unit) return no(why, REASON_ATTENTION_ALIGN, v->value, v->offset, unit);
    if (!pitch_fits(batch, v->batch, unit, invariant))
        return no(why, REASON_ATTENTION_ALIGN, v->value, v->batch, unit);
    if (!pitch_fits(time, v->time, unit, invariant))
        return no(why, REASON_ATTENTION_ALIGN, v->value, v->time, unit);
    return pitch_fits(heads, v->head, unit, invariant) ||
           no(why, REASON_ATTENTION_ALIGN, v->value, v->head, unit);
}

/* By TMA, for either kernel. */
static bool fits_units(const struct attention_spec *a, const struct target *target, bool invariant,
                       struct reason *why)
{
    bool units = target_has(target, TARGET_TMA | TARGET_WGMMA);
    if (attention_is_empty(a) || a->tk <= 0 || a->batch <= 0)
        return no(why, REASON_ATTENTION_EMPTY, -1, 0, 0);
    if (!units) return no(why, REASON_ATTENTION_ARCH, -1, 0, 0);
    if (a->head_dim > MOST_HEAD) return no(why, REASON_ATTENTION_HEAD_MOST, -1, a->head_dim, MOST_HEAD);
    if (a->head_dim % HEAD_STEP) return no(why, REASON_ATTENTION_HEAD, -1, a->head_dim, HEAD_STEP);
    if (a->tq > ATTENTION_MOST_TIME || a->tk > ATTENTION_MOST_TIME)
        return no(why, REASON_ATTENTION_TIME, -1, MAX(a->tq, a->tk), ATTENTION_MOST_TIME);
    int64_t batch = attention_batches(a), lots = attention_lots(a), keys = attention_lot(a);
    if (a->page && a->slots <= 0) return no(why, REASON_ATTENTION_EMPTY, -1, 0, 0);
    if (a->page && a->page < LEAST_PAGE) return no(why, REASON_ATTENTION_PAGE, -1, a->page, LEAST_PAGE);
    return view_fits(a, &a->use[ATTENTION_Q], batch, a->tq, a->heads, invariant, why) &&
           view_fits(a, &a->use[ATTENTION_K], lots, keys, a->kv_heads, invariant, why) &&
           view_fits(a, &a->use[ATTENTION_V], lots, keys, a->kv_heads, invariant, why) &&
           (!attention_has(a, ATTENTION_O) ||
            view_fits(a, &a->use[ATTENTION_O], batch, a->tq, a->heads, invariant, why));
}

static bool is_scaled(const struct attention_spec *a)
{
    return attention_has(a, ATTENTION_K_SCALE) || attention_has(a, ATTENTION_V_SCALE);
}

static bool fits_wgmma(const struct attention_spec *a, const struct target *target, bool invariant,
                       struct reason *why)
{
    const struct tensor_use *odd =
        a->use[ATTENTION_K].dtype != a->use[ATTENTION_Q].dtype ? &a->use[ATTENTION_K] : &a->use[ATTENTION_V];
    struct launch t = wgmma_tile(a);
    if (!fits_units(a, target, invariant, why)) return false;
    if (odd->dtype != a->use[ATTENTION_Q].dtype)
        return no(why, REASON_ATTENTION_DTYPE, odd->value, odd->dtype, 0);
    if (is_scaled(a)) return no(why, REASON_ATTENTION_SCALES, -1, 0, 0);
    if (t.blocks > ATTENTION_MOST_BLOCKS)
        return no(why, REASON_ATTENTION_BLOCKS, -1, t.blocks, ATTENTION_MOST_BLOCKS);
    return t.shared_bytes <= target->shared_bytes ||
           no(why, REASON_ATTENTION_SHARED, -1, t.shared_bytes, target->shared_bytes);
}

/* ---- Hopper, short sequences ---- */

/* Of more columns than 64 a tile of 128 queries, whose keys are loaded once, was measured to be
 * as fast or faster. */
enum { SHORT_QUERIES = 64, SHORT_KEYS = 256, SHORT_COLUMNS = 64 };

/* Blocks of so many keys that an SM has registers for; addresses of a bias take some, too. */
static int short_residents(const struct attention_spec *a, int keys)
{
    int n = keys <= 128 ? 4 : keys <= 192 ? 3 : 2;
    return !attention_has(a, ATTENTION_BIAS) ? n : keys <= 192 ? n - 1 : 0;
}

static struct launch short_tile(const struct attention_spec *a, const struct target *target)
{
    struct launch t = {.sm90 = true, .bm = SHORT_QUERIES, .threads = 2 * SHORT_QUERIES};
    t.bn = (int)CEIL_DIV(MAX(a->tk, 1), 64) * 64;
    int64_t row = 128 * CEIL_DIV(MIN(a->head_dim, FAR_TOO_WIDE), 64), bytes = row * (t.bm + 2 * t.bn) + 16;
    t.shared_bytes = CEIL_DIV(bytes, 1024) * 1024;
    t.resident = (int)MIN(short_residents(a, t.bn), target->shared_bytes / t.shared_bytes);
    t.blocks = blocks(a, t.bm);
    return t;
}

/* A query's sums are in the order of this kernel then, whatever the length of others: so not where bits must
 * not depend on how many rows there are. */
static bool fits_short(const struct attention_spec *a, const struct target *target, bool invariant)
{
    bool simple = !a->page && !attention_has(a, ATTENTION_RANGES) && !attention_is_packed(a);
    struct reason ignored;
    return simple && !invariant && a->tk <= SHORT_KEYS && a->head_dim <= SHORT_COLUMNS &&
           fits_wgmma(a, target, invariant, &ignored) && short_tile(a, target).resident > 0;
}

/* ---- Hopper, few queries ---- */

enum {
    SPLIT_ROWS = 16, /* queries of a group's heads: the rows of an mma */
    SPLIT_WARPS = 8,
    SPLIT_KEYS = 128,    /* of a block of keys: 16 for each warp; twice as many short ones */
    SPLIT_COLUMNS = 128, /* of a head: a warp has all of Q and of O in registers */
    MOST_SPLITS = 8      /* blocks of a portable cluster */
};

/* Blocks that share an item's keys: as many as leave all items' clusters on the SMs at one time, since few
 * items want many SMs. Many items want small clusters, which wait less for each other. */
static int splits(const struct attention_spec *a, const struct target *target)
{
    int64_t items = a->batch * a->kv_heads, most = clustered_sms(target);
    int n = MOST_SPLITS;
    while (n > 2 && n * items > most) n /= 2;
    return n;
}

/* Of packed queries an item has as many as a half takes. Keys of 8 bits leave no registers for their walk if
 * the other half has the next columns. */
static int64_t split_packed_rows(const struct attention_spec *a)
{
    bool half = a->heads / a->kv_heads <= SPLIT_ROWS / 2 && !attention_is_narrow(a);
    return half ? SPLIT_ROWS / 2 : SPLIT_ROWS;
}

/* Rows of an item's tile: exactly those of one query, which is the usual case; for all counts of more queries
 * one or two halves of an mma, so that they share a kernel. */
static int64_t split_rows(const struct attention_spec *a)
{
    int64_t group = a->heads / a->kv_heads;
    if (attention_is_packed(a)) return split_packed_rows(a);
    if (a->tq == 1) return group;
    return group * a->tq <= SPLIT_ROWS / 2 ? SPLIT_ROWS / 2 : SPLIT_ROWS;
}

/* Of packed queries a kernel learns when it runs whose they are. On average two a sequence are steps of
 * decoding with a chunk of a prompt in between, whose tiles of few rows read their keys from L2. Of keys of 8
 * bits the other choice is no matrix unit at all. */
static bool few_packed(const struct attention_spec *a)
{
    return a->tq <= 2 * a->batch || attention_is_narrow(a);
}

/* Are there so few queries that the rows of an mma hold them? */
static bool has_few(const struct attention_spec *a)
{
    int64_t group = a->heads / a->kv_heads;
    return group <= SPLIT_ROWS && (attention_is_packed(a) ? few_packed(a) : group * a->tq <= SPLIT_ROWS);
}

/* Whatever the others do, and in pieces of whatever length it comes: packed queries go one way, and so do
 * those of a sequence that has several. A single one, of decoding, has this kernel. */
static bool has_few_always(const struct attention_spec *a)
{
    return has_few(a) && !attention_is_packed(a) && a->tq == 1;
}

static struct launch split_tile(const struct attention_spec *a, const struct target *target)
{
    int64_t rows = split_rows(a), columns = 64 * CEIL_DIV(a->head_dim, 64);
    bool narrow = attention_is_narrow(a);
    int keys = columns <= 64 || narrow ? 2 * SPLIT_KEYS : SPLIT_KEYS;
    int64_t slot = (narrow ? 128 : 2 * columns) * keys, peak = 16, state = 4 * columns + peak; /* of a row */
    int64_t states = rows * ((SPLIT_WARPS + 3) * state + 2 * peak) + 40;
    struct launch t = {.sm90 = true, .bm = (int)rows, .bn = keys, .threads = 32 * (SPLIT_WARPS + 2)};
    t.stages = (int)((target->shared_bytes - states - 1024) / (slot + 16));
    t.shared_bytes = CEIL_DIV(t.stages * (slot + 16) + states, 1024) * 1024;
    t.splits = splits(a, target);
    int64_t tiles = attention_is_packed(a) ? attention_tiles(a, rows * a->kv_heads / a->heads) : a->batch;
    t.blocks = tiles * a->kv_heads * t.splits;
    return t;
}

/* A sentence that attends to itself, and is so short that it has few queries: there are no keys to share, and
 * the kernel of prompts does not wait to begin. */
static bool is_short(const struct attention_spec *a) { return a->tq > 1 && a->tq == a->tk && !a->page; }

static bool fits_split(const struct attention_spec *a, const struct target *target, bool invariant,
                       struct reason *why)
{
    bool few = has_few(a), wgmma = (invariant || is_short(a)) && fits_wgmma(a, target, invariant, why);
    if (wgmma) few = has_few_always(a);
    if (!fits_units(a, target, invariant, why)) return false;
    if (attention_has(a, ATTENTION_RANGES)) /* ends come in any order */
        return no(why, REASON_ATTENTION_8_BIT_RANGES, -1, 0, 0);
    if (a->head_dim > SPLIT_COLUMNS)
        return no(why, REASON_ATTENTION_8_BIT_HEAD, -1, a->head_dim, SPLIT_COLUMNS);
    if (!few) return no(why, REASON_ATTENTION_8_BIT, -1, a->heads / a->kv_heads * a->tq, SPLIT_ROWS);
    bool same = a->use[ATTENTION_K].dtype == a->use[ATTENTION_Q].dtype &&
                a->use[ATTENTION_V].dtype == a->use[ATTENTION_Q].dtype && !is_scaled(a);
    if (!same && !attention_is_narrow(a))
        return no(why, REASON_ATTENTION_DTYPE, a->use[ATTENTION_K].value, a->use[ATTENTION_K].dtype, 0);
    struct launch t = split_tile(a, target);
    if (t.stages < 2) return no(why, REASON_ATTENTION_SHARED, -1, t.shared_bytes, target->shared_bytes);
    return t.blocks <= ATTENTION_MOST_BLOCKS ||
           no(why, REASON_ATTENTION_BLOCKS, -1, t.blocks, ATTENTION_MOST_BLOCKS);
}

/* ---- Any GPU ---- */

enum { SIMT_WARPS = 4 };

/* Lanes of a warp that share a query. */
static int simt_lanes(const struct attention_spec *a) { return a->head_dim <= 256 ? 8 : 16; }

/* Queries, keys, values; and weights of some keys, as attention_simt.cuh has them. */
static int64_t simt_shared(const struct attention_spec *a, int64_t bm, int64_t bn)
{
    int64_t quads = CEIL_DIV(a->head_dim, 4), slice = MIN(bn, a->head_dim <= 64 ? 32 : 16);
    return 4 * ((bm + 2 * bn) * 4 * (quads | 1) + bm * (slice + 8));
}

/* Queries of a thread: it holds rows * head_dim / lanes sums, 128 at most. */
static int simt_rows(const struct attention_spec *a)
{
    return a->head_dim <= 128 ? 8 : a->head_dim <= 512 ? 4 : a->head_dim <= 1024 ? 2 : a->head_dim <= 2048;
}

/* Keys are as many as leave blocks room beside each other, whatever the queries: the bits of a query's sums
 * depend on it. Queries are fewer where there are fewer, or where SMs had none. */
static struct launch simt_tile(const struct attention_spec *a, const struct target *target)
{
    int step = SIMT_WARPS * 32 / simt_lanes(a), rows = simt_rows(a), bm = step * rows;
    int bn = simt_lanes(a) * (a->head_dim <= 32 ? 8 : 4);
    while (rows && bn > simt_lanes(a) && simt_shared(a, bm, bn) > target->shared_bytes) bn /= 2;
    while (rows && simt_shared(a, bm, bn) > target->shared_bytes) rows /= 2, bm = step * rows;
    while (rows > 1 && (bm / 2 >= a->tq || blocks(a, bm / 2) <= target->sms)) rows /= 2, bm = step * rows;
    struct launch t = {.bm = bm, .bn = bn, .threads = 32 * SIMT_WARPS};
    if (rows) t.shared_bytes = simt_shared(a, bm, bn), t.blocks = blocks(a, bm);
    return t;
}

/* Of keys of 8 bits, what is in the way of the kernel of few queries, which alone reads such; of others,
 * of that of many, which takes most. */
struct reason attention_reason(const struct program *q, const struct target *target)
{
    const struct attention_spec *a = q->spec;
    struct reason why = {REASON_NONE, -1, -1, 0, 0};
    bool fits = (attention_is_narrow(a) ? fits_split : fits_wgmma)(a, target, q->invariant, &why);
    return fits ? (struct reason){REASON_NONE, -1, -1, 0, 0} : why;
}

void schedule_attention(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct attention_spec *a = q->spec;
    const struct target *target = &opt->target;
    struct launch t = {.bm = 16};
    struct reason ignored;
    if (fits_split(a, target, q->invariant, &ignored)) t = split_tile(a, target);
    else if (!opt->base && fits_short(a, target, q->invariant)) t = short_tile(a, target);
    else if (fits_wgmma(a, target, q->invariant, &ignored)) {
        t = wgmma_tile(a);
        t.cluster = q->invariant ? 0 : tile_parts(a, t.blocks, target);
        t.blocks *= MAX(t.cluster, 1);
    } else if (!attention_is_empty(a)) t = simt_tile(a, target);
    s->tile.bm = t.bm, s->tile.bn = t.bn, s->tile.stages = t.stages;
    s->tile.splits = t.splits;
    s->sm90 = t.sm90, s->resident = t.resident;
    s->cluster = MAX(t.cluster, t.splits);
    bool at_once = !t.splits && t.blocks && target_has(target, TARGET_PDL); /* it waits before it reads */
    s->early =
        !q->prepare && (at_once || (t.splits && a->use[ATTENTION_K].steady && a->use[ATTENTION_V].steady &&
                                    a->use[ATTENTION_LENGTHS].steady && a->use[ATTENTION_TABLE].steady &&
                                    a->use[ATTENTION_STARTS].steady));
    s->grid = t.blocks;
    s->threads = t.threads;
    s->shared_bytes = (int)t.shared_bytes;
    s->persistent = t.sm90 && t.blocks && !t.cluster && !t.resident;
}
