/* schedule_delta.c -- the kernel of the gated delta rule, which goes by chunks on tensor cores or token by
 * token: of this a warp has some columns of a head's state, whose rows are dealt to its lanes so that the
 * order of sums depends on their number alone. By wgmma it has another one ahead of it, which prepares all
 * chunks. */
#include "delta.h"
#include "schedule.h"

enum {
    LANES = 32,
    WIDTH = 4,       /* columns of a lane that goes token by token */
    MOST_ROWS = 16,  /* of it, in registers */
    GROUPS = 8,      /* of lanes that have other rows */
    WIDE_GROUPS = 4, /* ... where lanes have twice the rows, and a warp 128 bytes of each */
    WIDE_SLICE = LANES / WIDE_GROUPS * WIDTH,
    MOST_WARPS = 4,
    RESIDENTS = 16, /* warps of an SM, whose loads of states are under way; half as many wide ones */
    MOST_RESIDENTS = 8,
    MOST_BLOCKS = 1 << 30,
    CHUNK = DELTA_CHUNK,
    MOST_KEYS = 128,              /* whose states fit into registers */
    SLICE = 32,                   /* columns of a block, or twice as many */
    MMA = 16,                     /* columns of a warp */
    MAKERS = 4,                   /* warps besides */
    PIECE = 8,                    /* elements of 16 bytes */
    GROUP = 128,                  /* threads that wgmma takes */
    RING = 3,                     /* chunks whose operands are there, or come, by wgmma */
    PREPARERS = 7,                /* blocks of an SM that prepare a head each, ... */
    P_PREPARERS = 5,              /* ... and P, too, ... */
    PAIR_PREPARERS = 3,           /* ... of two heads */
    FACTORS = 4 * 4 * CHUNK + 16, /* bytes of DeltaFactors, ... */
    NUMBERS = 11 * 4 * CHUNK + 16 /* ... and of DeltaChunk::Numbers */
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
    bool good = t->mma && !q->invariant && !s->by_row && !s->gates && !s->gated &&
                mean_tokens(s) >= DELTA_LEAST_CHUNK;
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

/* Columns of a block: wide ones make T for more columns at once, narrow ones keep more SMs busy. */
static int slice_of(const struct delta_spec *s, const struct target *t)
{
    bool wide = s->values % (2 * SLICE) == 0 && ring_of(s, 2 * SLICE, t) > 1;
    return wide && blocks_of(s, SLICE) > t->sms ? 2 * SLICE : SLICE;
}

static void schedule_chunks(struct schedule *s, const struct delta_spec *of, const struct target *t)
{
    int slice = slice_of(of, t), parts = slice / MMA;
    s->tile.bm = slice;
    s->chunk = CHUNK;
    s->tile.stages = ring_of(of, slice, t);
    s->threads = LANES * (parts + (has(of, DELTA_O) ? parts : 0) + MAKERS);
    s->shared_bytes = chunk_bytes(of, slice, s->tile.stages);
    s->grid = MIN(blocks_of(of, slice), MOST_BLOCKS);
}

/* ---- By wgmma ---- */

/* DeltaChunksSm90::Shared. */
static int prepared_bytes(const struct delta_spec *s, int slice)
{
    int keys = 2 * CHUNK * (int)s->keys, stage = keys + (has(s, DELTA_O) ? keys : 1024);
    stage += 2 * CHUNK * slice + 3 * 2 * CHUNK * CHUNK + (s->with_p ? FACTORS : NUMBERS);
    int bytes = RING * (int)CEIL_DIV(stage, 1024) * 1024 + 3 * RING * 8;
    return (int)CEIL_DIV(bytes, 1024) * 1024;
}

/* Two warpgroups of a block share what is brought, and P, and wait for each other's products: worth while
 * where there is a block for each SM. A block takes as many slices as its SM has to. */
static void schedule_prepared(struct schedule *s, const struct delta_spec *of, const struct target *t)
{
    int slice = of->with_p ? DELTA_SLICE : 2 * DELTA_SLICE;
    s->tile.bm = slice;
    s->chunk = CHUNK;
    s->tile.stages = RING;
    s->threads = GROUP * (slice / DELTA_SLICE + 1);
    s->shared_bytes = prepared_bytes(of, slice);
    s->grid = MIN(blocks_of(of, slice), t->sms);
}

/* Heads of a block: DeltaPrepare::together. */
static int prepared_together(const struct delta_spec *s)
{
    return s->with_p && s->heads / s->key_heads % 2 == 0 ? 2 : 1;
}

/* DeltaPrepare::Shared. */
static int preparing_bytes(const struct delta_spec *s)
{
    int keys = (s->with_p ? 2 : 1) * 2 * CHUNK * (int)s->keys, made = 3 * 2 * CHUNK * CHUNK;
    int diagonal = CHUNK / MMA * 4 * MMA * MMA, factors = s->with_p ? 4 * CHUNK : MMA,
        together = prepared_together(s);
    int bytes = MAX(keys, together * made) + together * (diagonal + NUMBERS + factors);
    return (int)CEIL_DIV(bytes, 1024) * 1024;
}

void schedule_delta_prepare(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct delta_spec of = delta_of_prepare(q->spec);
    int together = prepared_together(&of);
    bool packed = has(&of, DELTA_STARTS);
    int64_t parts = packed ? add_counts(of.time / CHUNK, of.sequences)
                           : mul_counts(of.sequences, CEIL_DIV(of.time, CHUNK));
    (void)opt;
    s->tile.bm = DELTA_SLICE;
    s->chunk = CHUNK;
    s->tile.stages = 1;
    s->threads = GROUP * together;
    s->residents = together == 2 ? PAIR_PREPARERS : of.with_p ? P_PREPARERS : PREPARERS;
    s->shared_bytes = preparing_bytes(&of);
    s->grid = MIN(mul_counts(parts, of.heads / together), MOST_BLOCKS);
}

/* ---- Token by token ---- */

/* Lines of memory are read whole, but by half as many warps: worth while where these fill all SMs. Beside
 * twice the rows registers have room for keys of 16 bits, and for one decay. Sums have the same bits. */
static bool is_wide(const struct delta_spec *s, int64_t heads, const struct target *t)
{
    bool good = s->keys == GROUPS * MOST_ROWS && s->values % (MOST_WARPS * WIDE_SLICE) == 0;
    good = good && !s->by_row && dtype_bytes(s->use[DELTA_K].dtype, 1) == 2;
    return good && mul_counts(heads, s->values / WIDE_SLICE) >= RESIDENTS / 2 * t->sms;
}

static void schedule_steps(struct schedule *s, const struct delta_spec *of, const struct target *t)
{
    int64_t heads = mul_counts(add_counts(of->sequences, has(of, DELTA_STARTS)), of->heads);
    bool wide = is_wide(of, heads, t);
    int groups = wide ? WIDE_GROUPS : of->keys > GROUPS * MOST_ROWS ? 2 * GROUPS : GROUPS, warps = MOST_WARPS;
    int64_t slices = CEIL_DIV(of->values, LANES / groups * WIDTH);
    while (warps > 1 && mul_counts(heads, CEIL_DIV(slices, warps)) < t->sms) warps /= 2;
    if (of->gated) warps = (int)slices; /* a block has a head */
    s->tile.groups = warps;
    s->tile.bk = groups;
    s->tile.bm = (int)CEIL_DIV(CEIL_DIV(of->keys, groups), 2) * 2;
    s->tile.bn = LANES / groups * WIDTH * warps;
    s->threads = LANES * warps;
    s->residents = MIN((wide ? RESIDENTS / 2 : RESIDENTS) / warps, MOST_RESIDENTS);
    if (of->gated && !wide) s->residents = 1; /* beside eight warps' states registers would spill */
    s->grid = MIN(mul_counts(heads, CEIL_DIV(slices, warps)), MOST_BLOCKS);
}

void schedule_delta(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct delta_spec *of = q->spec;
    if (of->prepared) schedule_prepared(s, of, &opt->target);
    else if (takes_chunks(of, q, &opt->target)) schedule_chunks(s, of, &opt->target);
    else schedule_steps(s, of, &opt->target);
}
