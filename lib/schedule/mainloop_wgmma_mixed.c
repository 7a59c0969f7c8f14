/*
 * mainloop_wgmma_mixed.c -- products of 16 bits by fewer, packed or not: the tiles of
 * primitives/tile/gemm_sm90_mixed.cuh.
 *
 * B's rows are the 64 rows of wgmma, which has them from registers, and A's its columns, 64, 128 or 256, or
 * as many as there are, by 16. Each consumer has a tile 64 columns wide; those of a block, of which there are
 * one to three, read the same rows of A. Its price is what tiles take of an SM, or what memory takes for all
 * of B. Products, decoding, and what a consumer does alone overlap in part, as if their squares added up:
 *     products = consumers * n bn K / PEAK, n the rows of A in a product; twice, if a weight is two of bf16
 *     decoding = consumers * STALLED * instructions of a warp for its 16 rows, counted in the machine code,
 *                of which each scheduler issues one in a clock
 *     alone    = one consumer's products and instructions, of which the ones wait for the others
 * Tiles are whole, or slots of K are dealt to all SMs (tile/pieces.cuh): then all end together, and sums that
 * several have parts of are added up. The constants are fitted to what an H200 took for 36 products of int4,
 * Q4_0, Q4_K and f8e4m3 in two to five tiles each (perf/findings.md): prices are within 11 %, of f8e4m3 up to
 * a fifth below, and the cheapest of those tiles is the fastest within 1 %.
 */
#include "wgmma.h"

#include <math.h>

enum {
    WIDTH = 64,                   /* columns of a consumer's tile */
    TURNED = 64 * 36 * 4,         /* bytes in which its sums are transposed, ... */
    TURNED_AT_ONCE = 64 * 64 * 4, /* ... unless it stores so many, or sums from where they lie */
    BOX = 64,                     /* k of a slot of A alone */
    LEAST_BOXES = 4,
    FETCH_BARRIERS = 64, /* bytes, as in fetch.cuh */
    LEAST_STAGES = 2,
    LEAST_K = 384,   /* of the slots of a ring: a slot is held while the next one is multiplied */
    MOST_SUMS = 128, /* of a thread, of two consumers; of three */
    MOST_CROWDED_SUMS = 64,
    MOST_ALTERNATING_SUMS = 96, /* of three, if a slot's are promoted before the next one's are made */
    SPLITTING = 35, /* instructions of a warp for 16 k, which become two of bf16: weights with minima */
    PEAK =
        2048, /* products of an SM in a clock; target->wgmma is what a GEMM has of them, which waits, too */
    DRAIN = 250,          /* clocks of an epilogue that other consumers' products do not hide */
    PAIR = 2,             /* slots that are dealt together */
    SUMS = 5500,          /* clocks, of what a block leaves to others, and of waiting for theirs; ... */
    PART = 700,           /* ... of each part of a tile that its owner adds */
    SUMS_IN_PLACE = 2500, /* more, of 256 rows */
    FEW_WAVES = 2
};
static const double STALLED = 2.2;   /* clocks of a scheduler for an instruction, beside products */
static const double PROMOTING = 0.6; /* of promotions, if the next products run meanwhile */
static const double IN_PLACE = 1.1;  /* as long as that say, of one product */
static const double DOUBT = 1.025; /* dealt tiles are to win by so much, and where there are many waves ... */
static const double MORE_DOUBT =
    1.1; /* ... by this, as whole tiles of 128 rows are faster than their price */

static bool is_packed(const struct program *p) { return use_is_packed(&p->b.data); }
static struct pack_format format_of(const struct program *p)
{
    return graph_format_of(p->b.data.packing.format);
}

/* ---- What becomes of scales: as mixed_operand.cuh has it ---- */

enum scaling { NO_SCALES, FOLDED, PROMOTED, SPLIT };

static enum scaling scaling_of(const struct program *p)
{
    if (!is_packed(p)) return NO_SCALES;
    const struct pack_format f = format_of(p);
    if (pack_fits(&f, p->a.dtype)) return FOLDED;
    return f.zeros == CODA_ZEROS_MINIMUM ? SPLIT : PROMOTED;
}

/* ---- Shared memory and registers ---- */

/* Elements of K in a slot; bytes of 16 rows of B in it. */
static int slot_k(const struct program *p)
{
    struct pack_format f = format_of(p);
    return is_packed(p) ? MAX(pack_record(&f).step, 128) : 128;
}
static int slot_bytes(const struct program *p)
{
    if (!is_packed(p)) return PACK_ROWS * 128;
    struct pack_format f = format_of(p);
    struct pack_record r = pack_record(&f);
    return slot_k(p) / r.step * r.bytes;
}

/* Rows of A in a product. */
static int rows_of(const struct program *p, const struct tile *t)
{
    return CEIL_DIV(tile_a_rows(p, t), 16) * 16;
}

/* Are sums scaled where they are (tile/mixed_in_place.cuh)? Then there are no partial ones, and A has slots
 * of its own, of which each is a part of one of B. */
static bool in_place(const struct tile *t) { return t->bm > 128; }

/* Is the step one of columns, or of sums of which one tensor is stored? */
static bool keeps_rows_apart(const struct step *s, bool stored)
{
    enum level level = step_level(s);
    if (level == LEVEL_COL || level == LEVEL_SCALAR) return true;
    return level == LEVEL_SLOT &&
           (s->kind == STEP_ACC || s->kind == STEP_MAP || (s->kind == STEP_STORE && stored));
}

/* May the epilogue be applied where the sums lie (tile/mixed_transposed.cuh)? It knows columns alone, and
 * stores one tensor of 16 bits. */
static bool stores_transposed(const struct program *p, const struct tile *t)
{
    const struct moves stores = staged_stores(p, t);
    const struct move *m = stores.move;
    if (stores.count != 1 || m->form != MOVE_WHOLE || m->bytes != 2) return false;
    for (int i = 0; i < p->steps; i++)
        if (!keeps_rows_apart(&p->step[i], i == m->step[0])) return false;
    bool adds = use_effect(&p->port[p->step[m->step[0]].port]) & EFFECT_ADD;
    return !adds && program_lanes(p) == 1 && !p->ranges && !p->segment && !program_samples_columns(p);
}

static struct footprint footprint(const struct program *p, const struct tile *t)
{
    int stage = stage_bytes(p, t), none = is_packed(p) ? 128 : 1024;
    int values = t->groups * values_bytes(p, group_rows(t), t->bn);
    bool staged = stores_transposed(p, t) || stage_store_bytes(p, t) >= TURNED_AT_ONCE;
    int turned = staged ? 0 : TURNED;
    int fixed = values + MAX(stage, none) + MAX(t->groups * turned, 256) + t->groups * FETCH_BARRIERS + 48;
    int a = rows_of(p, t) * 2 * t->bk, b = t->groups * CEIL_DIV(WIDTH / PACK_ROWS * slot_bytes(p), 128) * 128;
    if (!in_place(t)) return (struct footprint){.fixed = fixed, .stage = a + b + 16, .granule = 1024};
    int parts = t->bk / BOX, part = CEIL_DIV(b + 16, parts);
    return (struct footprint){.fixed = fixed + parts * part - t->stages % parts * part,
                              .stage = a / parts + part + 16,
                              .granule = 1024};
}

/* Has a slot one scale of a row, which its sums are multiplied by? */
static bool promotes_slots(const struct program *p)
{
    if (scaling_of(p) != PROMOTED) return false;
    struct pack_format f = format_of(p);
    return pack_record(&f).group == slot_k(p);
}

/* Codes times powers of two are numbers of bf16; with equal bits sums have one order whatever the tile is. */
static bool scales_in_place(const struct program *p)
{
    bool slots = promotes_slots(p) && p->a.dtype == CODA_BF16 && !p->invariant;
    return scaling_of(p) != PROMOTED || slots;
}

static bool registers_fit(const struct program *p, const struct tile *t)
{
    if (in_place(t)) return t->groups == 2 && scales_in_place(p) && rows_of(p, t) > t->bm / 2;
    int sums = rows_of(p, t) / 2 * (scaling_of(p) == NO_SCALES || scaling_of(p) == FOLDED ? 1 : 2);
    int crowded = promotes_slots(p) ? MOST_ALTERNATING_SUMS : MOST_CROWDED_SUMS;
    return sums <= (t->groups > 2 ? crowded : MOST_SUMS);
}

/* ---- Candidates ---- */

/* A record is copied in as few equal pieces as are no wider than a box of TMA, which wants multiples of 16
 * bytes: int8 with zero points and some of 8 bits with short scales have none. */
static bool has_pieces(const struct pack_format *f)
{
    enum { BOX_BYTES = 2048, BOX_UNIT = 16 };
    int bytes = pack_record(f).bytes;
    return bytes % (BOX_UNIT * CEIL_DIV(bytes, BOX_BYTES)) == 0;
}

static bool packed_fits(const struct program *p)
{
    const struct pack_format f = format_of(p);
    bool halves = p->pair != PAIR_GLU_STACKED || p->dim[2] % (2 * PACK_ROWS) == 0;
    bool codes = f.codes != CODA_CODES_INT8 || f.zeros != CODA_ZEROS_MINIMUM;
    return packed_has_whole_records(&p->b.data, p->k) && halves && codes && has_pieces(&f) &&
           (scaling_of(p) != SPLIT || p->a.dtype == CODA_BF16);
}

static bool bytes_fit(const struct program *p)
{
    const struct tensor_use *b = &p->b.data;
    bool known = b->dtype == CODA_F8E4M3 || b->dtype == CODA_F8E5M2 || b->dtype == CODA_I8;
    return known && operand_is_plain(&p->b) && b->k == 1 && b->row % 16 == 0 && b->batch % 16 == 0 &&
           b->offset % 16 == 0;
}

/* Whole spans of pairs and segments, or pieces of heads. */
static bool width_fits(const struct program *p)
{
    int span = program_span(p);
    if (!span || WIDTH % span == 0) return true;
    return !p->segment && span % WIDTH == 0 && pair_fills_spans(p);
}

static bool supports(const struct target *target, const struct program *p)
{
    bool has = target_has(target, TARGET_PDL | TARGET_TMA | TARGET_WGMMA) && program_has_work(p);
    bool a = !p->parts && operand_is_plain(&p->a) && dtype_is_half(p->a.dtype) && !program_a_obstacle(p) &&
             p->a.data.k == 1;
    return has && a && (is_packed(p) ? packed_fits(p) : bytes_fit(p)) && program_pairs_meet(p, target) &&
           width_fits(p);
}

/* Instructions of a warp for 16 k of its 16 rows: loads, conversions, what scales want. */
static double instructions(const struct program *p, int n)
{
    static const int packed[] = {
        [CODA_CODES_INT4] = 15, [CODA_CODES_INT5] = 27, [CODA_CODES_INT6] = 27, [CODA_CODES_INT8] = 24,
        [CODA_CODES_E2M1] = 31, [CODA_CODES_E4M3] = 25, [CODA_CODES_E5M2] = 25};
    if (!is_packed(p)) return p->a.dtype == CODA_F16 ? 13 : 25;
    const struct pack_format f = format_of(p);
    switch (scaling_of(p)) {
    case PROMOTED:
        return packed[f.codes] +
               (promotes_slots(p) ? 1 : PROMOTING) * 16.0 / pack_record(&f).group * (n / 2 + 8);
    case SPLIT: return packed[f.codes] + SPLITTING;
    default: return packed[f.codes];
    }
}

/* Tiles of all consumers of a block. */
static int64_t blocks_of(const struct program *p, const struct tile *t)
{
    return p->dim[0] * CEIL_DIV(p->dim[1], t->bm) * CEIL_DIV(p->dim[2], WIDTH * t->groups);
}

/* Pairs of slots of K, of all tiles. */
static int64_t units_of(const struct program *p, const struct tile *t)
{
    return mul_counts(blocks_of(p, t), CEIL_DIV(p->k, t->bk) / PAIR);
}

/* Sums of a piece of each block's, and flags. */
static int64_t scratch(const struct program *p, const struct tile *t)
{
    enum { FLAG_BYTES = 16 };
    return t->dealt ? (int64_t)t->blocks * t->groups * (rows_of(p, t) * WIDTH * 4 + FLAG_BYTES) : 0;
}

/* Rows of A that a product counts. Products of 65 to 127 rows have been timed of int4 with a scale for each
 * slot; where a slot has more, or a weight is two, they count as 128, so that tiles stay as they were. */
static int priced_rows(const struct program *p, const struct tile *t)
{
    bool timed = scaling_of(p) == NO_SCALES || scaling_of(p) == FOLDED || promotes_slots(p);
    return timed || t->bm == 64 ? rows_of(p, t) : t->bm;
}

/* Blocks beside each other on an SM. */
static int beside(const struct tile *t, int64_t tiles, const struct target *target)
{
    return t->groups == 1 && (t->dealt || tiles > target->sms) ? 2 : 1;
}

/* Clocks of `consumers` of an SM for a tile of each. */
static double multiply_clocks(const struct program *p, const struct tile *t, int consumers)
{
    int n = priced_rows(p, t), products = scaling_of(p) == SPLIT ? 2 : 1;
    double k = (double)CEIL_DIV(p->k, t->bk) * t->bk;
    double multiply = products * n * WIDTH * k / PEAK, issue = instructions(p, n) * k / 16;
    double all = consumers * multiply, decode = consumers * STALLED * issue, alone = multiply + issue;
    double clocks = sqrt(all * all + decode * decode + alone * alone);
    return in_place(t) && scaling_of(p) != SPLIT ? IN_PLACE * clocks : clocks;
}

/* The clocks of a block: its parts of tiles, what it drains, and the sums of a tile that it owns. */
static double dealt_clocks(const struct program *p, const struct tile *t, const struct target *target)
{
    int each = beside(t, 0, target), consumers = each * t->groups, n = priced_rows(p, t);
    int64_t tiles = blocks_of(p, t);
    double share = (double)tiles / t->blocks, drains = ceil(share);
    int sums = in_place(t) ? SUMS + SUMS_IN_PLACE : SUMS;
    double part = PART + consumers * n * WIDTH * 4 / target->l2_bytes;
    double clocks = share * multiply_clocks(p, t, consumers) + (drains + 1) * BEGINNING +
                    drains * each * DRAIN + (double)sums / each + (double)CEIL_DIV(t->blocks, tiles) * part;
    if (in_place(t)) return clocks;
    return clocks * (tiles > (int64_t)FEW_WAVES * target->sms ? MORE_DOUBT : DOUBT);
}

static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    if (t->dealt) return MAX(dealt_clocks(p, t, target), weight_clocks(p, target, 1));
    int64_t tiles = blocks_of(p, t);
    int each = beside(t, tiles, target);
    double waves = (double)CEIL_DIV(tiles, each * target->sms), used = (double)tiles / (waves * target->sms);
    double tile = BEGINNING + multiply_clocks(p, t, each * t->groups) + each * DRAIN;
    return MAX(waves * tile, weight_clocks(p, target, MIN(used, 1)));
}

/* One consumer's tiles have been timed where half of the SMs would have none, and bytes were slower else. Of
 * more than two waves those of two products have been timed to gain, others to lose. Tiles of 256 rows gain,
 * if L2 has A for blocks that are not at the same k. */
static bool may_deal(const struct search *s, const struct tile *t)
{
    int64_t units = units_of(s->p, t), most = (int64_t)FEW_WAVES * s->target->sms;
    if (blocks_of(s->p, t) > most && scaling_of(s->p) != SPLIT && !in_place(t)) return false;
    if (in_place(t) && 2 * use_bytes(s->p, &s->p->a.data) > s->target->l2_size) return false;
    bool few = t->bm == 64 && blocks_of(s->p, t) <= s->target->sms / 2;
    bool even = CEIL_DIV(s->p->k, t->bk) % PAIR == 0 && units >= t->blocks && units <= INT32_MAX;
    return !s->most_rows && even && (t->groups == 1 ? few : in_place(t) || is_packed(s->p));
}

static void consider(struct search *s, int bm, int groups, bool dealt)
{
    struct tile t = {
        .mainloop = &mainloop_wgmma_mixed, .bm = bm, .bn = WIDTH, .groups = groups, .dealt = dealt};
    t.most_rows = s->most_rows;
    t.bk = slot_k(s->p), t.pingpong = true;
    t.band = MAX(BAND_ROWS / bm, 1);
    int all = s->target->shared_bytes, room = groups == 1 ? (all - 1024) / 2 : all;
    if (dealt) t.blocks = beside(&t, 0, s->target) * s->target->sms;
    if (!registers_fit(s->p, &t) || (dealt && !may_deal(s, &t))) return;
    t.stages = tile_stages(s->p, &t, room);
    bool slots = t.stages >= LEAST_STAGES && t.stages * t.bk >= LEAST_K;
    bool deep = in_place(&t) ? t.stages >= LEAST_BOXES : slots;
    if (deep) search_add(s, &t, cost(s->p, &t, s->target));
}

static void candidates(struct search *s, enum tile_class class)
{
    if (class != TILES_KNOWN || s->p->dim[1] <= STREAM_ROWS) return;
    for (int bm = 64; bm <= 256; bm *= 2)
        for (int groups = 1; groups <= 3; groups++)
            consider(s, bm, groups, false), consider(s, bm, groups, true);
}

/* ---- The kernel ---- */

static void complete(struct schedule *s, const struct program *p, const struct target *target)
{
    const struct tile *t = &s->tile;
    s->threads = 128 * (t->groups + 1);
    s->grid = blocks_of(p, t);
    s->cluster = 1;
    s->early = s->pdl && !p->prepare;
    s->persistent = t->groups > 1 && !t->dealt;
    if (t->groups == 1) s->grid = MIN(s->grid, 2 * target->sms);
    if (t->dealt) s->grid = t->blocks;
}

static void print_products(const struct program *p, const struct schedule *s, struct text *t)
{
    wgmma_print_columns(t, rows_of(p, &s->tile), rows_of(p, &s->tile));
}

static void print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    wgmma_print_config(p, s, t);
    bool early = p->b.data.steady && !p->prepare;
    text_printf(t, "    static constexpr bool early = %s;\n", truth(early));
    if (stores_transposed(p, &s->tile)) text_append(t, "    static constexpr bool transposed = true;\n");
    if (in_place(&s->tile)) text_append(t, "    static constexpr bool in_place = true;\n");
    if (s->tile.dealt)
        text_printf(t, "    static constexpr bool dealt = true;\n    static constexpr int blocks = %d;\n",
                    s->tile.blocks);
}

const struct mainloop mainloop_wgmma_mixed = {.name = "sm90_mixed",
                                              .kernel = "gemm_sm90_mixed",
                                              .tma = true,
                                              .mixed = true,
                                              .weights = true,
                                              .turned = true,
                                              .supports = supports,
                                              .candidates = candidates,
                                              .cost = cost,
                                              .footprint = footprint,
                                              .scratch = scratch,
                                              .shares_sm = wgmma_shares_sm,
                                              .complete = complete,
                                              .print_products = print_products,
                                              .print_config = print_config};
