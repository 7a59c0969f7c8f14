/* schedule_delta.c -- the kernel of the gated delta rule, which goes by chunks on tensor cores or token by
 * token: of this a warp has some columns of a head's state, whose rows are dealt to its lanes by their number
 * alone. */
#include "schedule.h"

enum {
    LANES = 32,
    WIDTH = 4,      /* columns of a lane that goes token by token */
    MOST_ROWS = 16, /* of it, in registers */
    GROUPS = 8,     /* of lanes that have other rows, at least */
    MOST_WARPS = 4,
    RESIDENTS = 16, /* warps of an SM, whose loads of states are under way */
    MOST_RESIDENTS = 8,
    MOST_BLOCKS = 1 << 30,
    CHUNK = 64,       /* tokens that tensor cores take together, ... */
    LEAST_CHUNK = 32, /* ... where there are so many */
    MOST_KEYS = 128,  /* whose states fit into registers */
    SLICE = 32,       /* columns of a block, or twice as many */
    MMA = 16,         /* columns of a warp */
    MAKERS = 4,       /* warps besides */
    PIECE = 8         /* elements of 16 bytes */
};

static bool has(const struct delta_spec *s, int use) { return s->use[use].buffer >= 0; }

static int64_t mean_tokens(const struct delta_spec *s)
{
    return has(s, DELTA_STARTS) ? CEIL_DIV(s->time, MAX(s->sequences, 1)) : s->time;
}

/* Do rows come by 16 bytes? */
static bool comes_by_pieces(const struct tensor_use *u)
{
    return u->buffer < 0 || (u->dtype == CODA_BF16 && u->offset % PIECE == 0 && u->stride[0] % PIECE == 0 &&
                             u->stride[1] % PIECE == 0);
}

/* DeltaChunks::Shared. */
static int chunk_bytes(const struct delta_spec *s, int slice, int ring)
{
    int keys = (int)s->keys, stages = ring > 1 ? ring + 1 : 1;
    int stage = 2 * CHUNK * (2 * keys + slice), inverse = 2 * 2 * CHUNK * CHUNK;
    int weights = 2 * CHUNK * CHUNK + 4 * CHUNK;
    int left = keys / MMA * 512 + CHUNK / MMA * 512, diagonal = CHUNK / MMA * 4 * MMA * MMA;
    int warps = has(s, DELTA_O) ? slice / MMA : 1, numbers = 11 * 4 * CHUNK + 16;
    int bytes = stages * stage + ring * (inverse + weights + warps * left + numbers) + diagonal;
    return (int)CEIL_DIV(bytes, 1024) * 1024;
}

/* Chunks of a block at work at a time, 0: there is no room for one. Kernels without features run on GPUs
 * with less memory than the target's, too. */
static int ring_of(const struct delta_spec *s, int slice, const struct target *t)
{
    int most = target_has(t, TARGET_WGMMA) ? t->shared_bytes : MIN(t->shared_bytes, t->portable_bytes);
    for (int ring = 2; ring; ring--)
        if (chunk_bytes(s, slice, ring) <= most) return ring;
    return 0;
}

static bool takes_chunks(const struct delta_spec *s, const struct program *q, const struct target *t)
{
    bool good = t->mma && !q->invariant && !s->by_row && mean_tokens(s) >= LEAST_CHUNK;
    good = good && s->keys <= MOST_KEYS && s->keys % 32 == 0 && (s->keys & (s->keys - 1)) == 0;
    good = good && s->values % SLICE == 0;
    static const int use[] = {DELTA_Q, DELTA_K, DELTA_V, DELTA_O};
    for (int i = 0; i < ARRAY_SIZE(use); i++) good = good && comes_by_pieces(&s->use[use[i]]);
    return good && ring_of(s, SLICE, t);
}

static int64_t blocks_of(const struct delta_spec *s, int columns)
{
    return mul_counts(mul_counts(s->heads, CEIL_DIV(s->values, columns)), MAX(s->sequences, 1));
}

/* Four warps carry 64 columns by wgmma, where operands have rows of 128 bytes. */
static bool has_wgmma(const struct delta_spec *s, int slice, const struct target *t)
{
    return slice == 2 * SLICE && s->keys >= 64 && target_has(t, TARGET_WGMMA);
}

/* Columns of a block: wide ones make T for more columns at once, narrow ones keep more SMs busy. */
static int slice_of(const struct delta_spec *s, const struct target *t)
{
    bool wide = s->values % (2 * SLICE) == 0 && ring_of(s, 2 * SLICE, t) > 1;
    return wide && (has_wgmma(s, 2 * SLICE, t) || blocks_of(s, SLICE) > t->sms) ? 2 * SLICE : SLICE;
}

static void schedule_chunks(struct schedule *s, const struct delta_spec *of, const struct target *t)
{
    int slice = slice_of(of, t), parts = slice / MMA;
    s->tile.bm = slice;
    s->tile.bn = has_wgmma(of, slice, t);
    s->chunk = CHUNK;
    s->tile.stages = ring_of(of, slice, t);
    s->threads = LANES * (parts + (has(of, DELTA_O) ? parts : 0) + MAKERS);
    s->shared_bytes = chunk_bytes(of, slice, s->tile.stages);
    s->grid = MIN(blocks_of(of, slice), MOST_BLOCKS);
}

static void schedule_steps(struct schedule *s, const struct delta_spec *of, const struct target *t)
{
    int groups = of->keys > GROUPS * MOST_ROWS ? 2 * GROUPS : GROUPS, warps = MOST_WARPS;
    int64_t slices = CEIL_DIV(of->values, LANES / groups * WIDTH);
    int64_t heads = mul_counts(add_counts(of->sequences, has(of, DELTA_STARTS)), of->heads);
    while (warps > 1 && mul_counts(heads, CEIL_DIV(slices, warps)) < t->sms) warps /= 2;
    s->tile.groups = warps;
    s->tile.bk = groups;
    s->tile.bm = (int)CEIL_DIV(CEIL_DIV(of->keys, groups), 2) * 2;
    s->tile.bn = LANES / groups * WIDTH * warps;
    s->threads = LANES * warps;
    s->residents = MIN(RESIDENTS / warps, MOST_RESIDENTS);
    s->grid = MIN(mul_counts(heads, CEIL_DIV(slices, warps)), MOST_BLOCKS);
}

void schedule_delta(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct delta_spec *of = q->spec;
    if (takes_chunks(of, q, &opt->target)) schedule_chunks(s, of, &opt->target);
    else schedule_steps(s, of, &opt->target);
}
