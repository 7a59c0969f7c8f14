/*
 * mainloop_wgmma_f8.c -- products of fp8 by fp8: the tiles of primitives/tile/gemm_sm90_f8.cuh.
 *
 * They are those of mainloop_wgmma without turns, tails and lent slots, at most 192 columns wide: consumers
 * share a tile. Each adds up the sums of a slot, or of a piece of it, while its next products are on their
 * way (promotion.cuh). A tile of 256 x 128 asks L2 for the fewest bytes for a product, and has half as many
 * epilogues as one of 128 x 128. Clusters of two load what they share once: at twice the rate of 16 bits a
 * product wants as many bytes of L2 in a clock. Where N or K are few, or the operands are no rows of K at
 * multiples of 16 bytes, other main loops have it.
 */
#include "wgmma.h"

enum { SLOT = 128, LEAST_STAGES = 3, FEW_ROWS = 64, MOST_SPLITS = 8, MOST_SCALES = 4 };

/* ---- Scales of blocks of 128 rows of B ---- */

static int common_divisor(int64_t a, int64_t b) { return (int)(b ? common_divisor(b, a % b) : a); }

/* Neighbours among the columns of a tile, as they lie in it, that certainly are rows of one block of B: tiles
 * begin at multiples of their width, halves of gated ones where the operand's half does. */
static int scale_columns(const struct program *p, const struct tile *t)
{
    int bn = t->bn;
    if (p->pair == PAIR_GLU_INTERLEAVED) return common_divisor(bn / 2, SCALE_BLOCK / 2);
    if (p->pair == PAIR_GLU_STACKED)
        return common_divisor(common_divisor(bn / 2, SCALE_BLOCK), p->dim[2] / 2);
    return common_divisor(program_splits_heads(p, t) ? 32 : bn, SCALE_BLOCK);
}

/* A thread has a scale for so many columns, of few registers. */
static bool scales_fit(const struct program *p, const struct tile *t)
{
    int columns = program_has_block_scales(p) ? scale_columns(p, t) : t->bn;
    return columns % 8 == 0 && t->bn / columns <= MOST_SCALES;
}

/* ---- Tiles ---- */

static bool supports(const struct target *target, const struct program *p)
{
    return program_fits_f8_units(p, target) && program_pairs_meet(p, target) &&
           scales_fit(p, &(struct tile){.bn = 32});
}

static void consider(struct search *s, struct tile t)
{
    t.mainloop = &mainloop_wgmma_f8;
    t.bk = SLOT;
    t.most_rows = s->most_rows;
    t.band = MAX(BAND_ROWS / t.bm / tile_cluster_m(&t), 1) * tile_cluster_m(&t);
    bool half = t.groups == 1; /* so that two blocks fit an SM */
    int room = half ? (s->target->shared_bytes - 1024) / 2 : s->target->shared_bytes;
    if (!wgmma_fits(s->p, &t) || !scales_fit(s->p, &t)) return;
    t.stages = tile_stages(s->p, &t, room);
    if (t.stages >= LEAST_STAGES) search_add(s, &t, wgmma_cost(s->p, &t, s->target));
}

/* One consumer, whose neighbour on the SM multiplies meanwhile; or a cluster that shares K. */
static void consider_few_rows(struct search *s, int bn)
{
    const int64_t *d = s->p->dim;
    struct tile t = {.bm = 64, .bn = bn, .groups = 1};
    int64_t tiles = mul_counts(d[0], CEIL_DIV(d[2], bn));
    if (bn > 128 || d[1] > FEW_ROWS || s->common) return;
    consider(s, t);
    for (t.splits = 2; t.splits <= MOST_SPLITS && tiles <= s->target->sms / t.splits; t.splits *= 2)
        consider(s, t);
}

static void consider_shared(struct search *s, int bm, int bn)
{
    struct tile t = {.bm = bm, .bn = bn, .groups = 2};
    consider(s, t);
    if (s->common) return;
    t.cluster_m = 2;
    consider(s, t);
    t.cluster_m = 0, t.cluster_n = 2;
    consider(s, t);
}

static void candidates(struct search *s, enum tile_class class)
{
    static const int width[] = {192, 160, 128, 96, 64, 32};
    int span = program_span(s->p);
    if (class != TILES_KNOWN) return;
    for (int i = 0; i < ARRAY_SIZE(width); i++) {
        consider_few_rows(s, width[i]);
        consider_shared(s, 128, width[i]);
        consider_shared(s, 256, width[i]);
    }
    for (int bn = span; span && span % 16 == 0 && bn <= width[0]; bn += span) consider_shared(s, 128, bn);
}

/* Sums that are promoted by pieces are half a tile wide. */
static void print_products(const struct program *p, const struct schedule *s, struct text *t)
{
    (void)p;
    wgmma_print_columns(t, s->tile.bn, s->tile.bn / 2);
}

static void print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    if (program_has_block_scales(p))
        text_printf(t, "    static constexpr int scale_columns = %d;\n", scale_columns(p, &s->tile));
    wgmma_print_config(p, s, t);
}

const struct mainloop mainloop_wgmma_f8 = {.name = "sm90_f8",
                                           .kernel = "gemm_sm90_f8",
                                           .tma = true,
                                           .mixed = true,
                                           .supports = supports,
                                           .candidates = candidates,
                                           .cost = wgmma_cost,
                                           .footprint = wgmma_footprint,
                                           .shares_sm = wgmma_shares_sm,
                                           .complete = wgmma_complete,
                                           .print_products = print_products,
                                           .print_config = print_config};
