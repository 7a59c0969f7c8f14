/*
 * mainloop_mma.c -- cp.async, ldmatrix, mma.sync: 16-bit operands of one dtype, whatever their strides, on
 * any GPU that the library knows; primitives/tile/gemm_mma.cuh. B may have fewer bits, and be packed.
 *
 * It is chosen where there is no wgmma, or none that takes such B. On Hopper a decision may name its tile.
 * Its cost is made of rates, not fitted:
 *     waves * max(products, fragments, traffic) + epilogue, or what memory takes for all of B
 *     products  = bm bn K / mma                 multiply-adds of an SM in a clock
 *     fragments = 2 (bm + 4 groups bn) K / 128  bytes of ldmatrix: a warp reads 16 rows of 64, and all of B
 *     traffic   = 2 (bm + bn) K / l2_bytes
 */
#include "mainloop.h"

enum {
    STEP = 32, /* of K, in a slot */
    MOST_STAGES = 4,
    LEAST_STAGES = 2,
    MOST_ACCUMULATORS = 128, /* of a thread, which has 255 registers */
    MOST_BESIDE_CODES = 64,  /* the same, where B is packed, or pairs turn behind statistics of segments: */
    MOST_SPAN = 128,         /* ... these want registers, too, but a tile has whole segments, and heads */
    BAND_ROWS = 1024,        /* rows of A in a raster group, which thus stay in L2 */
    FRAGMENT_BYTES = 128,
    DECODE = 10,    /* instructions of an element of B that is not as products have it; ... */
    LANES = 128,    /* ... so many are made in a clock */
    EPILOGUE = 1000 /* clocks, and one for 16 elements of the tile */
};

static bool b_fits(const struct program *p, coda_dtype half)
{
    const struct pack_format f = graph_format_of(p->b.data.packing.format);
    return !use_is_packed(&p->b.data) || pack_fits(&f, half);
}

/* Values of B that bf16 cannot hold exactly are taken as sums of two. */
static int parts_of(const struct program *p) { return b_fits(p, CODA_BF16) ? 1 : 2; }

/* Products of an element of A and one of B: an A of f16 is two of bf16 beside values that f16 cannot hold. */
static int products_of(const struct program *p)
{
    return parts_of(p) + (p->a.dtype == CODA_F16 && !b_fits(p, CODA_F16));
}

static bool decodes(const struct program *p) { return use_is_packed(&p->b.data) || p->a.dtype != p->b.dtype; }

static bool supports(const struct target *target, const struct program *p)
{
    (void)target;
    const struct tensor_use *b = &p->b.data;
    bool small = use_is_packed(b) || dtype_is_storage(b->dtype);
    return program_has_work(p) && dtype_is_half(p->a.dtype) && (small || p->a.dtype == b->dtype);
}

/* ---- Shared memory ---- */

/* Rows of an operand's tile in a slot: MN-major ones come in panels of 64. */
static int slot_rows(const struct tensor_use *o, int rows)
{
    return operand_is_mn_major(o) ? CEIL_DIV(rows, 64) * 64 : rows;
}

static struct footprint footprint(const struct program *p, const struct tile *t)
{
    int slot = 2 * t->bk * (slot_rows(&p->a.data, t->bm) + parts_of(p) * slot_rows(&p->b.data, t->bn));
    int values = t->groups * values_bytes(p, group_rows(t), t->bn);
    return (struct footprint){.fixed = values, .stage = slot, .granule = 1024};
}

static bool shares_sm(const struct program *p, const struct tile *t)
{
    (void)p, (void)t;
    return true;
}

/* Half of an SM's memory, so that two blocks share it; where three slots do not fit there, all of it. */
static int stages_of(const struct program *p, const struct tile *t, const struct target *target)
{
    int shared = target->shared_bytes, most = target->portable_bytes;
    int half = tile_stages(p, t, MIN((shared - 1024) / 2, most));
    int all = tile_stages(p, t, MIN(shared, most));
    return MIN(half > LEAST_STAGES ? half : all, MOST_STAGES);
}

/* ---- Candidates ---- */

static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    double k = (double)CEIL_DIV(p->k, t->bk) * t->bk, blocks = (double)program_blocks(p, t);
    int parts = parts_of(p);
    double products = products_of(p) * t->bm * t->bn * k / target->mma,
           traffic = 2 * (t->bm + t->bn) * k / target->l2_bytes;
    double fragments = 2 * (t->bm + 4 * t->groups * parts * t->bn) * k / FRAGMENT_BYTES;
    if (decodes(p)) fragments += t->bn * k * DECODE / LANES;
    double waves = (double)CEIL_DIV(program_blocks(p, t), target->sms);
    double weights = weight_clocks(p, target, blocks / (waves * target->sms));
    double tile = BEGINNING + MAX(MAX(products, fragments), traffic);
    return MAX(waves * tile, weights) + EPILOGUE + t->bm * t->bn / 16.0;
}

static void consider(struct search *s, int bm, int bn)
{
    struct tile t = {.mainloop = &mainloop_mma, .bm = bm, .bn = bn, .bk = STEP, .groups = 1};
    t.band = BAND_ROWS / bm;
    t.stages = stages_of(s->p, &t, s->target);
    bool turns = s->p->segment && s->p->pair == PAIR_HEADS, wide = program_span(s->p) > MOST_SPAN;
    bool beside = use_is_packed(&s->p->b.data) || turns;
    int most = beside && !wide ? MOST_BESIDE_CODES : MOST_ACCUMULATORS;
    if (bm * bn / 128 > most || t.stages < LEAST_STAGES) return;
    search_add(s, &t, cost(s->p, &t, s->target));
}

static void consider_width(struct search *s, int bn)
{
    consider(s, 128, bn);
    consider(s, 64, bn);
}

static void candidates(struct search *s, enum tile_class class)
{
    static const int width[] = {128, 64, 32, 0};
    bool wgmma = decodes(s->p) ? s->p->dim[1] > STREAM_ROWS && mainloop_wgmma_mixed.supports(s->target, s->p)
                               : target_has(s->target, TARGET_WGMMA);
    if (class == (wgmma ? TILES_NAMED : TILES_KNOWN)) search_widths(s, width, consider_width);
}

const struct mainloop mainloop_mma = {.name = "mma",
                                      .kernel = "gemm_mma",
                                      .parts = true,
                                      .weights = true,
                                      .supports = supports,
                                      .candidates = candidates,
                                      .cost = cost,
                                      .footprint = footprint,
                                      .shares_sm = shares_sm,
                                      .complete = mainloop_complete,
                                      .print_config = mainloop_print_pointers};
