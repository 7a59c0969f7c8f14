/*
 * mainloop_wgmma.c -- TMA + wgmma, warp-specialised: the tiles of primitives/tile/gemm_sm90.cuh.
 *
 * Every tile that the program allows (wgmma_fits.c) gets a cost (wgmma_cost.c). Few rows: one consumer, two
 * blocks on an SM. Few columns too: a cluster of blocks shares K. Many rows: the last tiles of each row are
 * narrower, so that all SMs end together.
 * What was seldom faster has a cost that only says which of it tuning should measure first: many waves of
 * tiles walked in squares, but for the largest tile in products that last; clusters that share K and scatter
 * its sums, where more rows leave SMs idle; clusters that share operands; three consumers, whose tiles are
 * the squarest, but for few waves of 192 x 192.
 */
#include "wgmma.h"

#include <limits.h>
#include <math.h>

#define WORTH_A_TAIL 0.995     /* of the cost without: the kernel takes 0.1 s more to compile */
#define WORTH_THE_LARGEST 0.99 /* of the cost of the best of the others, to make up for errors of both */
#define WORTH_A_SQUARE 0.95    /* likewise */

enum {
    FEW_ROWS = 16, /* up to these rows half of an SM's memory keeps a block's weights coming */
    MOST_SPLIT_ROWS = 64,
    MOST_WIDE_STAGES = 4, /* ring slots of wide tiles with many rows: see stages_of */
    LEAST_STAGES = 3,
    LARGE_TILE = 128 * 256,  /* elements; larger tiles take less power: faster in long runs alone */
    ODD_WIDTH = 96,          /* with more rows this odd width pays, too, ... */
    ODD_WAVES = 3,           /* ... up to so many waves, ... */
    MOST_ODD_COLUMNS = 2048, /* ... of so many columns: where there are more, few rows are more waves */
    FEW_WAVES = 6,           /* up to this many waves, square rasterization with alternating direction
                               of K is faster (measured, with many rows) */
    SQUARE_WAVES = 4,        /* of tiles of 192 x 192 */
    LASTING_WAVES = 16,      /* of the largest tiles: products that take milliseconds */
    TAIL_FROM = 192,         /* only tiles this wide may have a tail: with others L2 would not keep up */
    MOST_TAIL = 16,          /* narrow tiles of each row */
    LEAST_TAIL_K = 512       /* with a shorter loop over K the compiler would unroll both widths' loops */
};

/* ---- Numbers of a candidate ---- */

/* The stages of t's ring: as many as fit in `room` bytes. But a deeper ring lets blocks drift apart, and with
 * many rows they then no longer find in L2 what others have loaded: wide tiles have four at most. */
static int stages_of(const struct program *p, const struct tile *t, int room)
{
    bool drifts = tile_rows(p, t) > MOST_ODD_ROWS && t->bn > 128;
    return MIN(tile_stages(p, t, room), drifts ? MOST_WIDE_STAGES : INT_MAX);
}

/*
 * With many rows, what all SMs multiply at one time, a wave, is too much for L2 to keep until the next wave:
 * memory gives its rows and columns each time, and least of them if it is as high as it is wide. So bands of
 * as many columns as make a whole number of rows of all SMs. And what a wave read last, the next one reads
 * first, unless sums are to keep their order. Measured: up to 4 % faster in few waves; as fast as
 * bands of 8 rows, within 1 %, in many.
 */
static void walk_in_squares(const struct search *s, struct tile *t)
{
    int cm = tile_cluster_m(t), cn = tile_cluster_n(t), all = s->target->sms / (cm * cn);
    int64_t columns = CEIL_DIV(s->p->dim[2], t->bn * cn);
    double least = INFINITY;
    for (int wide = 1; wide <= all && wide <= columns; wide++) {
        int high = all / wide;
        double left_over = wide * high < all ? 1.1 : 1;
        double side = (double)(high * cm * t->bm + wide * cn * t->bn) / (wide * high) * left_over;
        if (side >= least) continue;
        least = side;
        t->band = wide * cn;
    }
    t->across = true;
    t->serpentine = !s->p->invariant;
}

/* Tile rows of a raster group without a tail. With many rows, bands of some 1536, of which 132 SMs walk 12
 * rows of 11 tiles of 128 x 192 at one time: measured at 16384 rows, they read a fifth to a third less of
 * memory than bands of 1024 in as many clocks. */
static int band_of(const struct search *s, const struct tile *t)
{
    bool few = s->common || s->most_rows || s->p->dim[1] <= MOST_ODD_ROWS;
    int high = t->bm * tile_cluster_m(t), band = (few ? BAND_ROWS : WAVE_ROWS) / high;
    return MAX(band, 1) * tile_cluster_m(t);
}

/* Makes each raster group as large as a wave of tiles or larger, so that every block has a tile in each. */
static void walk_with_tail(const struct search *s, struct tile *t)
{
    int64_t whole = CEIL_DIV(s->p->dim[2] - (int64_t)t->tail * t->tail_bn, t->bn);
    t->band = (int)MAX(BAND_ROWS / t->bm, CEIL_DIV(s->target->sms, whole));
}

/* ---- Candidates ---- */

static bool has_waves(const struct search *s) { return s->p->dim[1] > MOST_ODD_ROWS; }

static bool has_few_waves(const struct search *s, const struct tile *t)
{
    return has_waves(s) && program_blocks(s->p, t) <= FEW_WAVES * (int64_t)s->target->sms;
}

/* Does the epilogue stage in free slots of the ring? That leaves memory for more stages. But a block that has
 * a further tile loads it later: then only in few waves, if consumers cooperate and fewer than four stages
 * would fit. */
static bool lends(const struct search *s, struct tile t, int room)
{
    bool once = program_blocks(s->p, &t) <= s->target->sms;
    bool together = !t.pingpong && (s->square || has_few_waves(s, &t));
    if (!once && !(together && tile_stages(s->p, &t, room) < MOST_WIDE_STAGES)) return false;
    t.lends = true;
    t.stages = stages_of(s->p, &t, room);
    return program_may_lend(s->p, &t);
}

/* Fills in what follows from the tile's size and form. False: the program cannot have it. */
static bool complete_tile(const struct search *s, struct tile *t)
{
    t->mainloop = &mainloop_wgmma;
    t->bk = 64;
    t->most_rows = s->most_rows;
    bool half = t->groups == 1 && s->p->dim[1] <= FEW_ROWS; /* so that two blocks fit an SM */
    int room = half ? (s->target->shared_bytes - 1024) / 2 : s->target->shared_bytes;
    bool large = t->groups == 2 && t->bm * t->bn > LARGE_TILE, tried = s->square && tile_cluster(t) == 1;
    bool lean = t->bm == 64 && t->bn > 128 && s->p->dim[1] > MOST_ODD_ROWS; /* L2 would not keep up */
    if (lean || (large && !tried) || !wgmma_fits(s->p, t)) return false;
    bool few_waves = has_few_waves(s, t) && !s->common;
    t->lends = !s->common && lends(s, *t, room);
    t->stages = stages_of(s->p, t, room);
    if (t->tail) walk_with_tail(s, t);
    else if (s->square || few_waves) walk_in_squares(s, t);
    else t->band = band_of(s, t);
    return t->stages >= LEAST_STAGES;
}

static void consider(struct search *s, struct tile t)
{
    if (complete_tile(s, &t)) search_add(s, &t, wgmma_cost(s->p, &t, s->target));
}

/* Tiles of one consumer warpgroup, for few rows: a block on its own, or a split-K cluster, as long as all
 * blocks of the grid run at once. */
static void consider_narrow(struct search *s, int bn)
{
    const int64_t *d = s->p->dim;
    int64_t tiles = d[0] * CEIL_DIV(d[2], bn);
    if (bn > 128 || d[1] > MOST_SPLIT_ROWS || s->common) return;
    if (d[1] <= FEW_ROWS) consider(s, (struct tile){.bm = 64, .bn = bn, .groups = 1});
    for (int splits = 2; splits <= 8 && tiles * splits <= s->target->sms; splits *= 2)
        consider(s, (struct tile){.bm = 64, .bn = bn, .groups = 1, .splits = splits});
}

/* Adds tile t with the tail that makes it cheapest, if that saves enough to be worth a longer kernel. */
static void consider_tail(struct search *s, struct tile t)
{
    static const int width[] = {128, 64};
    struct tile best = t;
    if (s->p->k < LEAST_TAIL_K || s->target->sms > TILE_MOST_BLOCKS || s->common) return;
    t.mainloop = &mainloop_wgmma, t.stages = MOST_WIDE_STAGES, t.blocks = s->target->sms;
    double least = WORTH_A_TAIL * wgmma_cost(s->p, &t, s->target);
    for (int i = 0; i < ARRAY_SIZE(width); i++)
        for (t.tail = 1, t.tail_bn = width[i]; t.tail <= MOST_TAIL; t.tail++) {
            if (!tail_fits(s->p, &t) || program_blocks(s->p, &t) <= FEW_WAVES * (int64_t)s->target->sms)
                continue;
            walk_with_tail(s, &t);
            double cost = wgmma_cost(s->p, &t, s->target);
            if (cost < least) best = t, least = cost;
        }
    if (best.tail) consider(s, best);
}

/* Adds the variants of one tile that a class of candidates has. */
typedef void forms(struct search *s, struct tile t);

static void alone(struct search *s, struct tile t)
{
    if (t.bm == 128 && t.pingpong) consider_narrow(s, t.bn);
    consider(s, t);
    if (t.bm == 128 && t.bn == TAIL_FROM && t.pingpong) consider_tail(s, t);
}

/* Clusters of two blocks that share a multicast load of B, or of A. */
static void clustered(struct search *s, struct tile t)
{
    t.cluster_m = 2;
    consider(s, t);
    t.cluster_m = 0, t.cluster_n = 2;
    consider(s, t);
}

static void alone_or_clustered(struct search *s, struct tile t)
{
    if (t.bn < 128 && s->p->dim[1] > MOST_ODD_ROWS) return; /* L2 would not keep up */
    consider(s, t);
    clustered(s, t);
}

/* Does one wave more or less decide? */
static bool may_be_odd(const struct search *s, const struct tile *t)
{
    bool few_waves = program_blocks(s->p, t) <= ODD_WAVES * (int64_t)s->target->sms;
    return !has_waves(s) || (t->bn == ODD_WIDTH && s->p->dim[2] <= MOST_ODD_COLUMNS && few_waves);
}

/* Heads of odd sizes need odd widths; few rows, and few waves, widths that fill a wave. */
static void consider_widths(struct search *s, struct tile t, forms *consider_forms)
{
    static const int width[] = {128, 192, 256, 64, 32, 16}, odd[] = {96, 112, 176, 224};
    int span = program_span(s->p) ? program_span(s->p) : 512;
    for (int i = 0; i < ARRAY_SIZE(width); i++) t.bn = width[i], consider_forms(s, t);
    for (int i = 0; i < ARRAY_SIZE(odd); i++) {
        t.bn = odd[i];
        if (may_be_odd(s, &t)) consider_forms(s, t);
    }
    for (t.bn = span; t.bn <= 256; t.bn += span) consider_forms(s, t);
}

static void consider_two(struct search *s, forms *consider_forms)
{
    consider_widths(s, (struct tile){.bm = 128, .groups = 2, .pingpong = true}, consider_forms);
    consider_widths(s, (struct tile){.bm = 64, .groups = 2, .pingpong = true}, consider_forms);
    consider_widths(s, (struct tile){.bm = 128, .groups = 2}, consider_forms);
    consider_widths(s, (struct tile){.bm = 256, .groups = 2}, consider_forms);
}

/* KNOWN tiles of few waves are walked in squares already: only the others are new. */
static void squared(struct search *s, struct tile t)
{
    if (!has_few_waves(s, &t)) consider(s, t);
}

static void consider_squares(struct search *s)
{
    s->square = true;
    if (has_waves(s)) consider_two(s, squared);
}

static void consider_clustered(struct search *s)
{
    s->square = has_waves(s);
    consider_two(s, clustered);
}

static void consider_three(struct search *s)
{
    s->square = has_waves(s);
    if (s->p->dim[1] > 128) consider_widths(s, (struct tile){.bm = 192, .groups = 3}, alone_or_clustered);
}

/* Split-K by reduce-scatter, where large tiles leave SMs idle: in 2 or 4 parts, if all blocks run at once and
 * keep at least 45 % of the SMs busy. */
static void consider_scattered(struct search *s)
{
    static const struct {
        int bm, bn;
    } size[] = {{128, 128}, {128, 256}, {256, 128}};
    const int64_t *d = s->p->dim;
    if (d[1] <= MOST_SPLIT_ROWS || d[1] > MOST_ODD_ROWS) return;
    for (int i = 0; i < ARRAY_SIZE(size); i++)
        for (int splits = 2; splits <= 4; splits *= 2) {
            struct tile t = {.bm = size[i].bm, .bn = size[i].bn, .groups = 2};
            int64_t blocks = mul_counts(d[0] * CEIL_DIV(d[1], t.bm) * CEIL_DIV(d[2], t.bn), splits);
            if (blocks > s->target->sms) continue;
            bool busy = 20 * blocks >= 9 * s->target->sms;
            t.splits = splits, t.scattered = true;
            if (busy && t.bm < d[1] + 128) consider(s, t);
        }
}

/* The tile, walked in squares, if it costs less than `worth` times the cheapest. */
static void consider_if_worth(struct search *s, struct tile t, double worth)
{
    s->square = true;
    bool fits = complete_tile(s, &t);
    s->square = false;
    double cost = fits ? wgmma_cost(s->p, &t, s->target) : 0;
    if (fits && s->n > 0 && cost < worth * s->cost[0]) search_add(s, &t, cost);
}

/* With many rows a square tile of three warpgroups loads fewer bytes for a product than the narrower ones of
 * two. Where all of them run at once, there is no last wave that its size could leave half empty. Few waves
 * were measured where the cost says that they gain much: 4608 x 3072 with K 15360, which is three. */
static void consider_square(struct search *s)
{
    struct tile t = {.bm = 192, .bn = 192, .groups = 3};
    int span = program_span(s->p);
    int64_t blocks = program_blocks(s->p, &t), sms = s->target->sms;
    if (s->common || s->p->dim[1] <= MOST_ODD_ROWS || (span && t.bn % span)) return;
    if (blocks <= sms) consider(s, t);
    else if (blocks <= SQUARE_WAVES * sms) consider_if_worth(s, t, WORTH_A_SQUARE);
}

/* The largest tile asks L2 for the fewest bytes, which is time and power in products that last. On an H100,
 * each kernel alone for a second: 2 to 4 % faster where N is 8192, up to 2 % slower where the cost says that
 * it gains less than WORTH_THE_LARGEST. */
static void consider_largest(struct search *s)
{
    struct tile t = {.bm = 256, .bn = 192, .groups = 2};
    int span = program_span(s->p);
    if (program_blocks(s->p, &t) < LASTING_WAVES * (int64_t)s->target->sms || (span && t.bn % span)) return;
    consider_if_worth(s, t, WORTH_THE_LARGEST);
}

static void consider_known(struct search *s)
{
    consider_two(s, alone);
    consider_square(s);
    consider_largest(s);
}

static void candidates(struct search *s, enum tile_class class)
{
    static void (*const consider_class[TILES_NAMED + 1])(struct search *) = {
        [TILES_KNOWN] = consider_known,
        [TILES_SQUARE] = consider_squares,
        [TILES_SCATTERED] = consider_scattered,
        [TILES_CLUSTERED] = consider_clustered,
        [TILES_THREE] = consider_three};
    if (consider_class[class]) consider_class[class](s);
}

/* ---- The kernel ---- */

static bool supports(const struct target *target, const struct program *p)
{
    return program_fits_units(p, target) && program_pairs_meet(p, target);
}

bool wgmma_shares_sm(const struct program *p, const struct tile *t)
{
    (void)p;
    return t->groups == 1;
}

/* Blocks that an SM has room for; each takes 1024 bytes more than it says. */
static int residents(const struct schedule *s, const struct target *target)
{
    bool fit = s->tile.groups == 1 && 2 * (s->shared_bytes + 1024) <= target->shared_bytes + 1024;
    return fit ? 2 : 1;
}

void wgmma_complete(struct schedule *s, const struct program *p, const struct target *target)
{
    const struct tile *t = &s->tile;
    if (s->leaves_warp) s->shared_bytes = wgmma_bytes_beside_warp(p, t);
    int each = residents(s, target);
    int64_t blocks = program_blocks(p, t);
    /* Consumers that take turns would wait for each other's epilogues. */
    bool once = t->lends && (t->pingpong || (!t->most_rows && blocks <= target->sms));
    s->threads = 128 * (t->groups + 1);
    s->grid = blocks;
    s->cluster = tile_cluster(t);
    s->early = s->pdl && !p->prepare; /* it waits at once */
    s->persistent = each == 1 && tile_splits(t) == 1 && !once;
    if (each == 2 && tile_splits(t) == 1) s->grid = MIN(s->grid, 2 * target->sms);
}

void wgmma_print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    bool a_batched = p->a.data.batch != 0 && p->dim[0] > 1, b_batched = p->b.data.batch != 0 && p->dim[0] > 1;
    if (s->layout.clips_a) text_append(t, "    static constexpr bool clips_a = true;\n");
    text_printf(t, "    static constexpr int a_rows = %d, splits = %d;\n", s->layout.a_rows,
                tile_splits(&s->tile));
    text_printf(t, "    static constexpr bool a_mn_major = %s, b_mn_major = %s;\n",
                truth(operand_is_mn_major(&p->a.data)), truth(operand_is_mn_major(&p->b.data)));
    text_printf(t, "    static constexpr bool a_batched = %s, b_batched = %s, b_once = %s;\n",
                truth(a_batched), truth(b_batched), truth(tile_rows(p, &s->tile) <= 128));
}

void wgmma_print_columns(struct text *t, int n, int other)
{
    if (n == other) text_printf(t, "#define CODA_WGMMA(n) (n == %d)\n", n);
    else text_printf(t, "#define CODA_WGMMA(n) (n == %d || n == %d)\n", n, other);
}

static void print_products(const struct program *p, const struct schedule *s, struct text *t)
{
    (void)p;
    wgmma_print_columns(t, s->tile.bn, s->tile.tail ? s->tile.tail_bn : s->tile.bn);
}

const struct mainloop mainloop_wgmma = {.name = "sm90",
                                        .kernel = "gemm_sm90",
                                        .above = true,
                                        .parts = true,
                                        .tma = true,
                                        .supports = supports,
                                        .candidates = candidates,
                                        .cost = wgmma_cost,
                                        .footprint = wgmma_footprint,
                                        .shares_sm = wgmma_shares_sm,
                                        .complete = wgmma_complete,
                                        .print_products = print_products,
                                        .print_config = wgmma_print_config};
