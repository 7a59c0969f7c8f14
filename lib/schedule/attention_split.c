/* attention_split.c -- few queries: TMA and mma.sync, the keys split over a cluster;
 * attention_split_sm90.cuh. */
#include "attention_kernel.h"

enum {
    SPLIT_ROWS = 16, /* queries of a group's heads: the rows of an mma */
    SPLIT_WARPS = 8,
    SPLIT_KEYS = 128,    /* of a block of keys: 16 for each warp; twice as many short ones */
    SPLIT_COLUMNS = 128, /* of a head: a warp has all of Q and of O in registers */
    MOST_SPLITS = 8,     /* blocks of a portable cluster */
    LEAST_STAGES = 2,    /* of the ring: keys and values of one block */
    LONG_SHARE = 2048    /* keys of a block: of more, a deep ring's pace weighs more than what runs beside */
};

/* Blocks that share an item's keys: as many as leave all items' clusters on the SMs at one time, since few
 * items want many SMs. Many items want small clusters, which wait less for each other. */
static int splits(const struct attention_spec *a, const struct attention_terms *on)
{
    int64_t items = a->batch * a->kv_heads, most = attention_clustered_sms(on->target);
    int n = MOST_SPLITS;
    while (n > 2 && n * items > most) n /= 2;
    return n;
}

/* An item of packed queries has as many rows as one half of an mma. Keys of 8 bits take both halves, since
 * they leave no registers for their walk if the other half has the next columns. */
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

/* Which sequence packed queries belong to is known only when a kernel runs. Up to two a sequence, on
 * average, are taken for decoding with a chunk of a prompt in between, whose tiles of few rows read their
 * keys from L2. For keys of 8 bits the only other kernel uses no matrix unit. */
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

/* May a cluster have several items, or an item so many keys that it wants all of its SMs? */
static bool walks(const struct attention_spec *a, const struct attention_terms *on, int cluster)
{
    int64_t keys = a->window ? MIN(a->tk, a->window + a->tq) : a->tk;
    return attention_is_packed(a) || cluster * a->batch * a->kv_heads > attention_clustered_sms(on->target) ||
           keys > (int64_t)cluster * LONG_SHARE;
}

/* What a block may take of an SM's shared memory. A kernel of few blocks leaves more than half to one of a
 * product that streams weights (early.c), and 1 KB to each. */
static int64_t split_room(const struct target *target, bool walks)
{
    return walks ? target->shared_bytes : (target->shared_bytes + 1024) / 2 - 2 * 1024;
}

/* Bytes of shared memory beside a ring of slots so large: as many parts' states as are joined at one time,
 * unless the ring is lent to them, those that wait at each level of the tree above, and what blocks send each
 * other. */
static int64_t split_states(int64_t rows, int64_t columns, int cluster, bool walks, int64_t slot)
{
    int64_t peak = 16, state = 4 * (columns + 8) + peak, inbox = 4 * columns + cluster * peak; /* of a row */
    int held = MOST_SPLITS / cluster, kept = rows <= 4 && walks ? 4 : rows <= SPLIT_ROWS / 2 ? 2 : 1;
    int together = MIN(kept, held), inboxes = rows > SPLIT_ROWS / 2 ? 1 : 2, lefts = 0;
    for (int parts = held; parts > together; parts /= 2) lefts++;
    bool lends = !walks && held == 1 && SPLIT_WARPS * rows * state <= LEAST_STAGES * slot;
    return rows * (((lends ? 1 : SPLIT_WARPS) * together + MAX(lefts, 1)) * state + inboxes * inbox) +
           8 * (1 + 2 * inboxes);
}

static struct attention_tile tile(const struct attention_spec *a, const struct attention_terms *on)
{
    int64_t rows = split_rows(a), columns = 64 * CEIL_DIV(a->head_dim, 64);
    bool narrow = attention_is_narrow(a);
    int keys = columns <= 64 || narrow ? 2 * SPLIT_KEYS : SPLIT_KEYS;
    int cluster = splits(a, on);
    int64_t slot = (narrow ? 128 : 2 * columns) * keys;
    bool several = walks(a, on, cluster);
    int64_t barriers = several ? 16 : 8 * (SPLIT_WARPS + 1); /* of a slot: where nothing walks, each warp's */
    int64_t states = split_states(rows, columns, cluster, several, slot),
            room = split_room(on->target, several);
    if ((room - states - 1024) / (slot + barriers) < LEAST_STAGES) room = on->target->shared_bytes;
    struct attention_tile t = {
        .bm = (int)rows, .bn = keys, .threads = 32 * (SPLIT_WARPS + (several ? 2 : 0))};
    t.stages = (int)((room - states - 1024) / (slot + barriers));
    t.shared_bytes = CEIL_DIV(t.stages * (slot + barriers) + states, 1024) * 1024;
    t.cluster = cluster;
    int64_t tiles = attention_is_packed(a) ? attention_tiles(a, rows * a->kv_heads / a->heads) : a->batch;
    t.blocks = tiles * a->kv_heads * t.cluster;
    t.persistent = t.blocks > 0 && several;
    return t;
}

/* A sentence that attends to itself, and is so short that it has few queries: there are no keys to share, and
 * the kernel of prompts does not wait to begin. */
static bool is_short(const struct attention_spec *a) { return a->tq > 1 && a->tq == a->tk && !a->page; }

static bool fits(const struct attention_spec *a, const struct attention_terms *on, struct reason *why)
{
    bool few = has_few(a), wgmma = (on->invariant || is_short(a)) && attention_wgmma.fits(a, on, why);
    if (wgmma) few = has_few_always(a);
    if (!attention_fits_units(a, on, why)) return false;
    if (attention_has(a, ATTENTION_RANGES)) /* ends come in any order */
        return attention_no(why, REASON_ATTENTION_8_BIT_RANGES, -1, 0, 0);
    if (a->head_dim > SPLIT_COLUMNS)
        return attention_no(why, REASON_ATTENTION_8_BIT_HEAD, -1, a->head_dim, SPLIT_COLUMNS);
    if (!few)
        return attention_no(why, REASON_ATTENTION_8_BIT, -1, a->heads / a->kv_heads * a->tq, SPLIT_ROWS);
    bool same = a->use[ATTENTION_K].dtype == a->use[ATTENTION_Q].dtype &&
                a->use[ATTENTION_V].dtype == a->use[ATTENTION_Q].dtype && !attention_is_scaled(a);
    if (!same && !attention_is_narrow(a))
        return attention_no(why, REASON_ATTENTION_DTYPE, a->use[ATTENTION_K].value, a->use[ATTENTION_K].dtype,
                            0);
    struct attention_tile t = tile(a, on);
    if (t.stages < LEAST_STAGES)
        return attention_no(why, REASON_ATTENTION_SHARED, -1, t.shared_bytes, on->target->shared_bytes);
    return t.blocks <= ATTENTION_MOST_BLOCKS ||
           attention_no(why, REASON_ATTENTION_BLOCKS, -1, t.blocks, ATTENTION_MOST_BLOCKS);
}

/* Does nothing of the run write what the producer reads? Or, of keys and values, so few rows that a warp has
 * their slots, where a block has one item. */
static bool reads_early(const struct attention_spec *a, const struct attention_tile *t)
{
    static const int read[] = {ATTENTION_LENGTHS, ATTENTION_TABLE, ATTENTION_STARTS};
    bool steady = true, knows = a->appends && a->written.table_rows <= 32 && !t->persistent;
    for (int i = 0; i < ARRAY_SIZE(read); i++) steady = steady && a->use[read[i]].steady;
    return steady && (knows || (a->use[ATTENTION_K].steady && a->use[ATTENTION_V].steady));
}

const struct attention_kernel attention_split = {.index = ATTENTION_BY_SPLIT,
                                                 .suffix = "_split",
                                                 .units = "sm90",
                                                 .cluster = "splits",
                                                 .fits = fits,
                                                 .tile = tile,
                                                 .reads_early = reads_early};
