/*
 * mainloop_stream_mma.c -- up to 16 rows, multiplied at memory's pace, whatever K: stream_mma.cuh of
 * primitives/tile. B streams past, 16 of its rows at a time, which are the rows of mma.sync; of A a block has
 * a chunk of K at a time. Weights of 8 bits, which no other fast main loop takes, have it for any number of
 * rows, in groups of 16.
 *
 * The price of a block is what memory takes for its share of B, or what its warps take to issue what they do
 * with it:
 *     slots = loads + conversions + products   instructions of a warp for 16 bytes a lane, as they are
 *                                              counted in the kernel's machine code
 *     clocks = bytes / 512 * slots / 4   of the four schedulers of an SM
 * No card has timed it yet: where another stream is the cheapest of the others, weights of 16 bits have no
 * KNOWN tile of it. Tuning may choose it for all.
 */
#include "stream.h"

enum {
    MOST_ROWS = 16,
    SURE_ROWS = 8,        /* up to these rows it is KNOWN for weights of 16 bits, ... */
    SURE_BYTES = 1 << 24, /* ... which are so many bytes */
    CHUNK = 512,          /* elements of K that all warps multiply at once */
    LEAST_STAGES = 3,
    PASS_TILES = 12, /* whose sums fit the registers of the warps, beside a second block's */
    MOST_BLOCKS = 1 << 14,
    LOADS = 4, /* instructions for 16 bytes a lane, and what is theirs of a chunk's; conversions: */
    E4M3_TO_F16 = 12,
    E4M3_TO_BF16 = 36,
    E5M2_TO_F16 = 8,
    E5M2_TO_BF16 = 32,
    I8_TO_F16 = 20,
    I8_TO_BF16 = 32,
    END = 700 /* clocks, of sums and epilogue */
};

static int octets(const struct program *p) { return stream_rows(p, &(struct tile){0}) / 8; }
static int64_t groups(const struct program *p) { return CEIL_DIV(p->dim[1], 8 * octets(p)); }

/* Rows of B come as they lie, each a copy. Those of few bytes share a slot. */
static int size_of(const struct program *p) { return (int)dtype_bytes(p->b.data.dtype, 1); }
static bool is_narrow(const struct program *p) { return size_of(p) == 1; }
static int depth(const struct program *p) { return is_narrow(p) ? 2 : 1; }

static int tiles(const struct program *p, const struct tile *t) { return CEIL_DIV(stream_columns(p, t), 16); }
static int passes(const struct program *p, const struct tile *t) { return CEIL_DIV(tiles(p, t), PASS_TILES); }

/* Bytes between rows in a slot, as fragments.cuh has them. */
static int pitch(const struct program *p, const struct tile *t)
{
    return t->bk * size_of(p) + (is_narrow(p) ? 64 : 16);
}
static int right_pitch(const struct tile *t) { return 2 * t->bk + 16; }

/* Chunks of A that are there or on their way: they should come no later than B's, which are short where a
 * block has few tiles. */
static int right_stages(const struct program *p, const struct tile *t)
{
    int chunk = MIN(tiles(p, t), PASS_TILES) * 16 * pitch(p, t);
    return chunk >= STREAM_WINDOW ? 2 : chunk >= STREAM_WINDOW / 2 ? 3 : 4;
}

static struct footprint footprint(const struct program *p, const struct tile *t)
{
    int rows = stream_rows(p, t), all = tiles(p, t), turns = passes(p, t);
    int right = right_stages(p, t) * (rows * right_pitch(t) + 16);
    int parts = 4 * rows * CEIL_DIV(all, turns) * 64, sums = turns > 1 ? rows * all * 64 : 16;
    int fixed = right + parts + sums + values_bytes(p, rows, stream_columns(p, t)) + 16 + 256;
    return (struct footprint){.fixed = fixed, .stage = depth(p) * 16 * pitch(p, t) + 16, .granule = 1024};
}

/* Up to 8 rows leave registers for a second block. */
static bool shares_sm(const struct program *p, const struct tile *t)
{
    (void)t;
    return octets(p) == 1;
}

/* Instructions for 16 bytes a lane, but for loads and products. */
static int conversion_slots(const struct program *p)
{
    bool f16 = p->a.dtype == CODA_F16;
    switch (p->b.data.dtype) {
    case CODA_F8E4M3: return f16 ? E4M3_TO_F16 : E4M3_TO_BF16;
    case CODA_F8E5M2: return f16 ? E5M2_TO_F16 : E5M2_TO_BF16;
    case CODA_I8: return f16 ? I8_TO_F16 : I8_TO_BF16;
    default: return 0;
    }
}

static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    double share = (double)dtype_bytes(p->b.data.dtype, stream_columns(p, t)) * (double)p->k;
    int products = is_narrow(p) ? 2 : 1;
    double issue = share / 512 * (LOADS + conversion_slots(p) + products * octets(p)) / 4;
    double weights = stream_clocks(p, t, target), ends = 2 * BEGINNING + END;
    if (groups(p) == 1) return MAX(weights, issue) + ends;
    return MAX(weights,
               (double)groups(p) * (MAX(share / target->l2_bytes, issue) + ends)); /* L2 has shares */
}

/* ---- Candidates ---- */

/* Copies of 16 bytes reach all of a row, and nothing else. */
static bool narrow_fits(const struct program *p)
{
    const struct tensor_use *b = &p->b.data;
    bool known = b->dtype == CODA_F8E4M3 || b->dtype == CODA_F8E5M2 || b->dtype == CODA_I8;
    return known && operand_is_plain(&p->b) && dtype_is_half(p->a.dtype) && !program_a_obstacle(p) &&
           b->k == 1 && b->row % 16 == 0 && b->offset % 16 == 0 && p->k % 16 == 0;
}

static bool supports(const struct target *target, const struct program *p)
{
    if (!target_has(target, TARGET_PDL | TARGET_TMA | TARGET_WGMMA) || !program_has_work(p)) return false;
    if (!program_pairs_meet(p, target) || program_folds_columns(p) || !stream_takes(p)) return false;
    if (is_narrow(p)) return narrow_fits(p);
    return p->dim[1] <= MOST_ROWS && program_fits_units(p, target) && p->k % 8 == 0 && !p->invariant;
}

/* Where the sums of a share leave no ring, narrow weights have more and smaller shares. */
static void consider(struct search *s, int room)
{
    const struct program *p = s->p;
    struct tile t = {.mainloop = &mainloop_stream_mma, .bk = CHUNK};
    stream_share(s, &t);
    while ((t.stages = tile_stages(p, &t, room)) < LEAST_STAGES && is_narrow(p) && t.blocks < MOST_BLOCKS)
        t.blocks *= 2;
    int slot = depth(p) * 16 * t.bk * size_of(p), window = MAX(STREAM_WINDOW / slot, 2);
    t.window = window < t.stages ? window : 0;
    if (t.stages >= LEAST_STAGES) search_add(s, &t, cost(p, &t, s->target));
}

/* Is this what weights of 16 bits have a KNOWN tile for: bytes that wgmma would wait for? */
static bool is_sure(const struct search *s)
{
    const struct program *p = s->p;
    bool wgmma = s->n && s->tile[0].mainloop == &mainloop_wgmma;
    return wgmma && p->dim[1] <= SURE_ROWS && 2 * p->dim[2] * p->k >= SURE_BYTES;
}

static void candidates(struct search *s, enum tile_class class)
{
    int all = s->target->shared_bytes, half = stream_half_room(s);
    bool shares = shares_sm(s->p, NULL);
    if (s->common) return;
    if (class == TILES_KNOWN && (is_narrow(s->p) || is_sure(s))) consider(s, shares ? half : all);
    if (class == TILES_SKINNY && shares) consider(s, half);
    if (class == TILES_SKINNY) consider(s, all);
}

/* ---- The kernel ---- */

/* Besides the consumers, a warp that produces, one that supplies, one that prepares. */
static void complete(struct schedule *s, const struct program *p, const struct target *target)
{
    (void)target;
    s->threads = 128 * s->tile.groups + 96;
    s->early = stream_is_early(p);
    s->grid = s->tile.blocks * groups(p);
    s->cluster = 1;
}

static void print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    const struct tile *tile = &s->tile;
    stream_print_config(p, s, t);
    text_printf(t, "    static constexpr int depth = %d, passes = %d, right_stages = %d;\n", depth(p),
                passes(p, tile), right_stages(p, tile));
}

const struct mainloop mainloop_stream_mma = {.name = "stream_mma",
                                             .kernel = "stream_mma",
                                             .mixed = true,
                                             .streams = true,
                                             .invariant = true,
                                             .supports = supports,
                                             .candidates = candidates,
                                             .cost = cost,
                                             .footprint = footprint,
                                             .shares_sm = shares_sm,
                                             .complete = complete,
                                             .print_config = print_config};
