/*
 * mainloop_stream_mma.c -- up to 16 rows, multiplied at memory's pace, whatever K: stream_mma.cuh of
 * primitives/tile. B streams past, 16 of its rows at a time, which are the rows of mma.sync; of A a block has
 * a chunk of K at a time. Weights of 8 bits and packed ones may have it for any number
 * of rows, in groups of 16: where it is cheaper than wgmma (mainloop_wgmma_mixed.c), or wgmma does not take
 * them, or a row is to have the same bits among any others.
 *
 * The price of a block is what memory takes for its share of B, or what its warps take to issue what they do
 * with it:
 *     slots = loads + conversions + products   instructions of a warp for 16 bytes a lane, as they are
 *                                              counted in the kernel's machine code
 *     clocks = bytes / 512 * slots / 4 / 0.55   of the four schedulers of an SM, whose two warps leave others
 * That share is of kernels without loads of weights: 22016 x 4096, 1 to 16 rows, int4, Q4_K, MXFP4 and f8e4m3
 * took an H200 1.6 to 2.6 times what the instructions alone would.
 * Weights of 16 bits have no KNOWN tile of it, though tuning may choose it: on an H200, 8 rows of
 * 4096 x 14336 take it 35.8 us, and wgmma 31.3.
 */
#include "stream.h"

enum {
    MOST_ROWS = 16,
    RUN = 128,            /* elements of K that a warp multiplies at once; ... */
    CHUNK = 4 * RUN,      /* ... all warps, half of them the same ones of other tiles, ... */
    LONG_CHUNK = 8 * RUN, /* ... or each others */
    LONG_K = 2048,        /* from which on that is worth it */
    LEAST_STAGES = 3,
    MORE_GROUPS = 3,          /* of warps, where decoding binds: each of three parts of the tiles has one */
    NARROW_WINDOW = 96 << 10, /* bytes on their way of less than 16 bits; of others STREAM_WINDOW; ... */
    LEVEL_WINDOW = 64 << 10,  /* ... of scales of two levels beside another block */
    STEP_TILES = 4,  /* that all warps multiply at once, of packed weights; half as many of long chunks */
    PASS_TILES = 12, /* whose sums fit the registers of the warps; ... */
    PASS_FEW = 8,    /* ... and where K ends within a chunk beside zero points */
    MOST_BLOCKS = 1 << 14,
    LOADS = 4, /* instructions for 16 bytes a lane, and what is theirs of a chunk's; conversions: */
    E4M3_TO_F16 = 12,
    E4M3_TO_BF16 = 19, /* by f16, as the others below */
    E5M2_TO_F16 = 8,
    E5M2_TO_BF16 = 15,
    I8_TO_F16 = 20,
    I8_TO_BF16 = 32,
    INT4_SLOTS = 44,
    INT5_SLOTS = 100,
    INT6_SLOTS = 90,
    E2M1_SLOTS = 80,
    GROUP_SLOTS = 4,   /* for each scale of a run but the first, ... */
    LEVEL_SLOTS = 30,  /* ... and where these have a scale themselves */
    END = 700,         /* clocks, of sums and epilogue */
    RUN_BYTES = 1072,  /* of a run of A as digits */
    DIGITS_GROUP = 32, /* elements that a product of digits has: groups of fewer have none */
    DIGITS = 1200      /* clocks until the first of them are there */
};

#define ISSUED 0.55       /* of a scheduler's clocks */
#define DIGIT_CLOCKS 1.15 /* to make digits of an element of a row of A; behind a kernel that ends, 2 */
#define DIGIT_GAIN 0.25   /* clocks, of a tile's products with one */

static int octets(const struct program *p)
{
    return stream_rows(p, &(struct tile){.mainloop = &mainloop_stream_mma}) / 8;
}

static int64_t groups(const struct program *p) { return CEIL_DIV(p->dim[1], 8 * octets(p)); }

/* ---- What a slot holds ---- */

static bool is_packed(const struct program *p) { return use_is_packed(&p->b.data); }
static struct pack_format format_of(const struct program *p)
{
    return graph_format_of(p->b.data.packing.format);
}
static int size_of(const struct program *p) { return (int)dtype_bytes(p->b.data.dtype, 1); }
static bool is_plain_narrow(const struct program *p) { return !is_packed(p) && size_of(p) == 1; }

/* Bytes of 16 rows in a chunk: rows as they lie, each a copy, as far apart as fragments.cuh has them; or
 * records. */
static int tile_bytes(const struct program *p, const struct tile *t)
{
    if (!is_packed(p)) return 16 * (t->bk * size_of(p) + (program_has_narrow_b(p) ? 64 : 16));
    struct pack_format f = format_of(p);
    struct pack_record r = pack_record(&f);
    return t->bk / r.step * r.bytes;
}

/* Do the warps that copy lend registers to those that multiply? Two tiles of 16 rows of A and weights whose
 * scales have two levels take more than all threads could have. */
static bool lends(const struct program *p)
{
    if (!is_packed(p) || octets(p) == 1) return false;
    struct pack_format f = format_of(p);
    return pack_two_levels(&f) && pack_record(&f).bits == 4;
}

/* Tiles of a slot: what has few bytes shares one, where a warp multiplies two at a time (packed_rows.cuh). */
static int depth(const struct program *p, const struct tile *t)
{
    if (!is_packed(p)) return program_has_narrow_b(p) ? 2 : 1;
    if (t->groups == MORE_GROUPS) return 2 * MORE_GROUPS;
    if (t->bk == LONG_CHUNK) return 2;
    struct pack_format f = format_of(p);
    return pack_record(&f).bits == 4 ? 4 : 2;
}

/* Quads that shares are dealt in: of packed weights those of a block of records, or of the two that a pair of
 * columns comes from. */
static int share_quads(const struct program *p) { return !is_packed(p) ? 1 : p->pair == PAIR_NONE ? 4 : 8; }
static int columns(const struct program *p, const struct tile *t)
{
    return stream_columns(p, t, share_quads(p));
}

static int tiles(const struct program *p, const struct tile *t) { return CEIL_DIV(columns(p, t), 16); }

/* Is each row of A, one or two, four columns of products with codes of 4 bits (digit_rows.cuh), of eight
 * that are there? A block of more tiles gains more of digits that cost it the same: a row times int4 with
 * scales of 128 took an H200, us,
 *     columns x K    tiles of a block   as they are   by digits
 *     4096 x 4096         2                 5.7          7.2
 *     4096 x 11008        2                10.4         13.2
 *     12288 x 4096        6                10.9         10.0
 *     22016 x 4096       11                15.4         14.2
 * (of 4 tiles and K 28672 the warp that makes them takes longer than memory: 35 us behind others, not 30)
 * and two rows, whose digits cost twice as much,
 *     22016 x 4096       11                15.6         14.0 */
static bool has_digits(const struct program *p, const struct tile *t)
{
    if (!is_packed(p) || octets(p) > 1 || p->dim[1] > 2) return false;
    struct pack_format f = format_of(p);
    if (f.codes != CODA_CODES_INT4 || pack_record(&f).group < DIGITS_GROUP) return false;
    double clocks = DIGIT_CLOCKS * (double)(p->dim[1] * p->k) + DIGITS;
    return tiles(p, t) * DIGIT_GAIN * (double)p->k > clocks;
}
/* Bytes of all rows of A in a chunk. */
static int right_bytes(const struct program *p, const struct tile *t)
{
    return has_digits(p, t) ? t->bk / RUN * RUN_BYTES
                            : stream_rows(p, t) * (2 * t->bk + (is_packed(p) ? 32 : 16));
}

/* Has a run of K, a quarter of a chunk, several scales? They take registers. */
static bool has_groups(const struct program *p)
{
    struct pack_format f = format_of(p);
    return is_packed(p) && pack_record(&f).group < RUN;
}
/* What zero points want of A's sums takes registers, too, and so does K that ends within a chunk. */
static bool is_crowded(const struct program *p) { return is_packed(p) && format_of(p).zeros && p->k % CHUNK; }
static int most_pass_tiles(const struct program *p) { return is_crowded(p) ? PASS_FEW : PASS_TILES; }
static int passes(const struct program *p, const struct tile *t)
{
    return CEIL_DIV(tiles(p, t), most_pass_tiles(p));
}
static int pass_tiles(const struct program *p, const struct tile *t)
{
    int all = tiles(p, t), turns = passes(p, t);
    int step = turns > 1 ? 2 : STEP_TILES * CHUNK / t->bk; /* several passes are as equal as pairs can be */
    return is_packed(p) ? CEIL_DIV(all, step * turns) * step : CEIL_DIV(all, turns);
}

/* Chunks of eight runs, one a warp, rather than of four, of which two warps have one each, of every second
 * tile? A block of one or two tiles has half as much to do so: else tiles are multiplied that are not there.
 * Bits depend on it, and it on neither the rows nor the dtype of A. */
static bool wants_long_chunks(const struct program *p, const struct tile *t)
{
    return is_packed(p) && p->k >= LONG_K && tiles(p, t) <= STEP_TILES / 2;
}

/* Twelve warps instead of eight? With 16 rows, or below the upper bits of codes, registers are too few, or
 * nothing is gained. 8 rows of 22016 x 4096 took an H200, us, with eight and with twelve: Q5_K 24.9 and 22.1,
 * Q6_K 25.9 and 24.2, Q4_K 17.6 and 17.6. */
static bool wants_more_warps(const struct program *p, const struct tile *t)
{
    if (!is_packed(p) || octets(p) > 1 || wants_long_chunks(p, t)) return false;
    struct pack_format f = format_of(p);
    return pack_two_levels(&f) && pack_record(&f).bits != 4 && tiles(p, t) > 2 * MORE_GROUPS;
}

/* Chunks of A that are there or on their way: they should come no later than B's, which are short where a
 * block has few tiles. */
static int right_stages(const struct program *p, const struct tile *t)
{
    int chunk = MIN(tiles(p, t), most_pass_tiles(p)) * tile_bytes(p, t);
    if (chunk >= STREAM_WINDOW) return 2;
    return chunk >= STREAM_WINDOW / 2 || t->bk == LONG_CHUNK ? 3 : 4;
}

/* Rows of a block's that may be there, whose sums have room. */
static int live_rows(const struct program *p, const struct tile *t)
{
    return (int)MIN(p->dim[1], stream_rows(p, t));
}

/* Sums of all runs, which come where the ring was when the last slot is empty; behind a first pass of several
 * the ring goes on. */
static int sums_bytes(const struct program *p, const struct tile *t)
{
    return t->bk / RUN * live_rows(p, t) * (pass_tiles(p, t) * 64 + 32);
}
static int least_stages(const struct program *p, const struct tile *t)
{
    int slot = depth(p, t) * tile_bytes(p, t);
    return passes(p, t) > 1 ? LEAST_STAGES : MAX(CEIL_DIV(sums_bytes(p, t), slot), LEAST_STAGES);
}

static struct footprint footprint(const struct program *p, const struct tile *t)
{
    int rows = live_rows(p, t), each = pass_tiles(p, t), turns = passes(p, t);
    int right = right_stages(p, t) * (right_bytes(p, t) + 16);
    int parts = turns > 1 ? sums_bytes(p, t) : 16, sums = turns > 1 ? rows * turns * each * 64 : 16;
    int segments = 4 * stream_segment_floats(p, t, columns(p, t));
    int values = values_bytes(p, stream_rows(p, t), columns(p, t));
    int fixed = right + parts + sums + segments + values + 400;
    return (struct footprint){.fixed = fixed, .stage = depth(p, t) * tile_bytes(p, t) + 16, .granule = 128};
}

/* Is A a row, whose weights of 4 bits have scales of two levels? That of Q4_K. */
static bool is_row_of_levels(const struct program *p)
{
    if (!is_packed(p) || octets(p) > 1 || p->dim[1] > 1) return false;
    struct pack_format f = format_of(p);
    return pack_two_levels(&f) && pack_record(&f).bits == 4;
}

/* Up to 8 rows leave registers for a second block, unless scales take them, of which those of two levels
 * leave some beside a single row. Rows of 8 bits lie in a slot with gaps and come by small copies: half of an
 * SM's memory holds too few of them to keep memory busy. */
static bool shares_sm(const struct program *p, const struct tile *t)
{
    (void)t;
    if (is_row_of_levels(p)) return true;
    return octets(p) == 1 && !has_groups(p) && !is_plain_narrow(p);
}

/* Instructions for 16 bytes a lane, but for loads and products. */
static int packed_slots(const struct program *p)
{
    static const int slots[] = {
        [CODA_CODES_INT4] = INT4_SLOTS,  [CODA_CODES_INT5] = INT5_SLOTS, [CODA_CODES_INT6] = INT6_SLOTS,
        [CODA_CODES_E2M1] = E2M1_SLOTS,  [CODA_CODES_INT8] = I8_TO_BF16, [CODA_CODES_E4M3] = E4M3_TO_BF16,
        [CODA_CODES_E5M2] = E5M2_TO_BF16};
    struct pack_format f = format_of(p);
    int groups = RUN / MIN(pack_record(&f).group, RUN);
    return slots[f.codes] + GROUP_SLOTS * (groups - 1) + (pack_two_levels(&f) ? LEVEL_SLOTS : 0);
}

static int conversion_slots(const struct program *p)
{
    bool f16 = p->a.dtype == CODA_F16;
    if (is_packed(p)) return packed_slots(p);
    switch (p->b.data.dtype) {
    case CODA_F8E4M3: return f16 ? E4M3_TO_F16 : E4M3_TO_BF16;
    case CODA_F8E5M2: return f16 ? E5M2_TO_F16 : E5M2_TO_BF16;
    case CODA_I8: return f16 ? I8_TO_F16 : I8_TO_BF16;
    default: return 0;
    }
}

/* Blocks that an SM has one after another, of all batches. */
static double waves(const struct program *p, const struct tile *t, const struct target *target)
{
    return p->dim[0] == 1 ? 1 : (double)CEIL_DIV(p->dim[0] * t->blocks, target->sms);
}

/* Groups of rows take longer than so many single ones: for 64 rows of 4096 x 14336 an H200 took 72.8 us
 * instead of 33, in int4. */
static const double AGAIN = 0.3; /* of a group's clocks, for each one ahead of it, of three at most */

static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    double share = (double)use_bytes(p, &p->b.data) / (double)p->dim[0] * columns(p, t) / (double)p->dim[2];
    int products = is_packed(p) ? 4 : program_has_narrow_b(p) ? 2 : 1;
    double issue = share / 512 * (LOADS + conversion_slots(p) + products * octets(p)) / 4 / ISSUED;
    double weights = stream_clocks(p, t, target), ends = 2 * BEGINNING + END, turns = waves(p, t, target);
    if (groups(p) == 1) return MAX(weights, turns * issue) + turns * ends;
    double each = MAX(share / target->l2_bytes, issue) + ends; /* L2 has shares */
    return MAX(weights, turns * (double)groups(p) * each * (1 + AGAIN * MIN((double)groups(p) - 1, 3)));
}

/* ---- Candidates ---- */

/* Patches of what is paired come in pairs that share two blocks of records. */
static bool packed_fits(const struct program *p)
{
    const struct pack_format f = format_of(p);
    bool pairs = p->pair != PAIR_GLU_STACKED || p->dim[2] % (4 * PACK_ROWS / 2) == 0;
    if (p->pair == PAIR_HEADS && p->pairing.half)
        pairs = p->pairing.head_dim % (2 * PACK_ROWS) == 0 && p->pairing.rotary % (2 * PACK_ROWS) == 0;
    bool codes = f.codes != CODA_CODES_INT8 || f.zeros != CODA_ZEROS_MINIMUM;
    return packed_has_whole_records(&p->b.data, p->k) && pairs && codes && dtype_is_half(p->a.dtype) &&
           !program_a_obstacle(p) && p->k % 8 == 0;
}

/* Blocks of a cluster share the columns of the same rows of A: of one group, which would have other bits than
 * more rows, that another main loop multiplies. */
static bool segments_fit(const struct program *p)
{
    bool shared = groups(p) == 1 && !p->invariant && p->segment / 4 % share_quads(p) == 0;
    return stream_takes_segments(p) && (shared || !stream_folds_segments(p));
}

static bool supports(const struct target *target, const struct program *p)
{
    if (!target_has(target, TARGET_PDL | TARGET_TMA | TARGET_WGMMA) || !program_has_work(p)) return false;
    if (!program_pairs_meet(p, target) || program_folds_columns(p) || !segments_fit(p)) return false;
    if (program_has_narrow_b(p)) return is_packed(p) ? packed_fits(p) : stream_takes_bytes(p);
    return p->dim[0] == 1 && p->dim[1] <= MOST_ROWS && program_fits_units(p, target) && p->k % 8 == 0 &&
           !p->invariant;
}

/* Where the sums of a share leave no ring, narrow weights have more and smaller shares. */
static void consider(struct search *s, int room)
{
    const struct program *p = s->p;
    struct tile t = {.mainloop = &mainloop_stream_mma, .bk = CHUNK};
    stream_share(s, &t, share_quads(p));
    if (wants_long_chunks(p, &t)) t.bk = LONG_CHUNK;
    if (wants_more_warps(p, &t)) t.groups = MORE_GROUPS;
    int64_t most = stream_folds_segments(p) ? p->dim[2] / p->segment * tile_cluster(&t) : 2 * MOST_BLOCKS;
    while ((t.stages = tile_stages(p, &t, room)) < least_stages(p, &t) && program_has_narrow_b(p) &&
           2 * t.blocks <= most)
        t.blocks *= 2;
    int bytes = program_has_narrow_b(p) ? NARROW_WINDOW : STREAM_WINDOW;
    if (is_row_of_levels(p)) bytes = LEVEL_WINDOW;
    int slot = depth(p, &t) * tile_bytes(p, &t), window = MAX((bytes + slot / 2) / slot, 2);
    t.window = window < t.stages ? window : 0;
    if (t.stages >= least_stages(p, &t)) search_add(s, &t, cost(p, &t, s->target));
}

static void candidates(struct search *s, enum tile_class class)
{
    int all = s->target->shared_bytes, half = stream_half_room(s);
    bool shares = shares_sm(s->p, NULL);
    if (s->common) return;
    if (class == TILES_KNOWN && program_has_narrow_b(s->p)) consider(s, shares ? half : all);
    if (class == TILES_SKINNY && shares) consider(s, half);
    if (class == TILES_SKINNY) consider(s, all);
}

/* ---- The kernel ---- */

/* Warps that supply A. One makes digits more slowly than a block of a few tiles could multiply. Two leave 80
 * registers a thread, which int4 with a scale for a run has enough of, beside blocks that have as few. */
static int suppliers(const struct program *p, const struct tile *t)
{
    if (!has_digits(p, t) || has_groups(p) || tiles(p, t) > PASS_TILES / 2) return 1;
    struct pack_format f = format_of(p);
    return pack_two_levels(&f) ? 1 : 2;
}

/* Besides the consumers there are a warp that produces and those that supply: two blocks of ten warps fit an
 * SM, with 96 registers a thread. */
static void complete(struct schedule *s, const struct program *p, const struct target *target)
{
    (void)target;
    s->threads = 128 * s->tile.groups + (lends(p) ? 128 : 32 + 32 * suppliers(p, &s->tile));
    s->early = stream_is_early(p);
    s->grid = p->dim[0] * s->tile.blocks * groups(p);
    s->cluster = 1;
}

static void print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    const struct tile *tile = &s->tile;
    stream_print_config(p, s, t);
    stream_print_segments(p, s, t);
    text_printf(t, "    using Fragments = %s, %d",
                has_digits(p, tile)       ? "DigitRows<Weights, A"
                : is_packed(p)            ? "PackedRows<Weights, A"
                : program_has_narrow_b(p) ? "ByteRows<B, A"
                                          : "HalfRows<A",
                tile->bk);
    if (has_digits(p, tile)) text_printf(t, ", %d", (int)p->dim[1]);
    text_printf(t, ">;\n    static constexpr bool turns = %s, lends = %s;\n",
                truth(p->dim[1] > 1 || p->invariant), truth(lends(p)));
    text_printf(t, "    static constexpr int share_quads = %d, depth = %d, passes = %d, right_stages = %d;\n",
                share_quads(p), depth(p, tile), passes(p, tile), right_stages(p, tile));
    text_printf(t, "    static constexpr int live_rows = %d, suppliers = %d;\n", live_rows(p, tile),
                suppliers(p, tile));
}

const struct mainloop mainloop_stream_mma = {.name = "stream_mma",
                                             .kernel = "stream_mma",
                                             .mixed = true,
                                             .weights = true,
                                             .streams = true,
                                             .invariant = true,
                                             .supports = supports,
                                             .candidates = candidates,
                                             .cost = cost,
                                             .footprint = footprint,
                                             .shares_sm = shares_sm,
                                             .complete = complete,
                                             .print_config = print_config};
