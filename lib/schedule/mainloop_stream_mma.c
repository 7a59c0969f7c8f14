/*
 * mainloop_stream_mma.c -- up to 16 rows, multiplied at memory's pace, whatever K: stream_mma.cuh of
 * primitives/tile. B streams past, 16 of its rows at a time, which are the rows of mma.sync; of A a block has
 * a chunk of K at a time.
 *
 * The price of a block is what memory takes for its share of B, or what its warps take to issue what they do
 * with it:
 *     slots = SHARED + PRODUCTS octets   instructions of a warp for 16 bytes a lane, as they are counted in
 *                                        the kernel's machine code
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
    PASS_TILES = 12,   /* whose sums fit the registers of the warps, beside a second block's */
    SLOTS = 4,         /* for 16 bytes of 16-bit weights a lane, ... */
    PRODUCT_SLOTS = 1, /* ... and for each octet of rows */
    END = 700          /* clocks, of sums and epilogue */
};

static int octets(const struct program *p) { return p->dim[1] <= 8 ? 1 : 2; }

/* Rows of B come as they lie, each a copy. Those of few bytes share a slot. */
static int size_of(const struct program *p) { return (int)dtype_bytes(p->b.data.dtype, 1); }
static int depth(const struct program *p) { return size_of(p) == 1 ? 2 : 1; }

static int tiles(const struct program *p, const struct tile *t) { return CEIL_DIV(stream_columns(p, t), 16); }
static int passes(const struct program *p, const struct tile *t) { return CEIL_DIV(tiles(p, t), PASS_TILES); }

/* Bytes between rows in a slot, as fragments.cuh has them. */
static int pitch(const struct program *p, const struct tile *t) { return t->bk * size_of(p) + 64; }
static int right_pitch(const struct program *p, const struct tile *t)
{
    return 2 * t->bk + (size_of(p) == 1 ? 16 : 64);
}

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
    int right = right_stages(p, t) * (rows * right_pitch(p, t) + 16);
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

static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    double share = (double)dtype_bytes(p->b.data.dtype, stream_columns(p, t)) * (double)p->k;
    double issue = share / 512 * (SLOTS + PRODUCT_SLOTS * octets(p)) / 4;
    return 2 * BEGINNING + MAX(stream_clocks(p, t, target), issue) + END;
}

/* ---- Candidates ---- */

static bool supports(const struct target *target, const struct program *p)
{
    return target_has(target, TARGET_PDL) && p->dim[1] <= MOST_ROWS && program_fits_units(p, target) &&
           p->k % 8 == 0 && program_pairs_meet(p, target) && !program_folds_columns(p) && stream_takes(p);
}

static void consider(struct search *s, int room)
{
    const struct program *p = s->p;
    struct tile t = {.mainloop = &mainloop_stream_mma, .bk = CHUNK};
    stream_share(s, &t);
    t.stages = tile_stages(p, &t, room);
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
    if (class == TILES_KNOWN && is_sure(s)) consider(s, shares ? half : all);
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
    s->grid = s->tile.blocks;
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
                                             .supports = supports,
                                             .candidates = candidates,
                                             .cost = cost,
                                             .footprint = footprint,
                                             .shares_sm = shares_sm,
                                             .complete = complete,
                                             .print_config = print_config};
