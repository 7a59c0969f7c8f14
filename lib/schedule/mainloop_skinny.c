/*
 * mainloop_skinny.c -- up to 16 rows of A, multiplied at memory's pace through the matrix units:
 * skinny_sm90.cuh of primitives/tile. B streams past A, which each block holds in registers; then come the
 * sums and the epilogue.
 *
 * Up to 8 rows it is a little faster than wgmma if most of an SM's memory waits for weights, slower if half
 * of it does. Its cost is not trusted for 9 to 16 rows, for fewer in half of an SM's memory, and for clusters
 * that a product could do without: tuning may choose these.
 */
#include "stream.h"

enum {
    KNOWN_ROWS = 8,        /* up to these it is faster than wgmma; up to 16 as fast */
    PIECE = 1024,          /* elements of each of 8 rows of B that a slot holds */
    STEP = 256,            /* elements of K that 8 warps multiply at once, 32 each */
    MOST_SPLITS = 2,       /* blocks that share K */
    ELEMENTS = 8 * 11264,  /* of A that fit the registers of a block */
    SHARED_REGISTERS = 64, /* of a thread for A, where two blocks share an SM */
    DEEP_RING = 128 << 10, /* bytes of B */
    END = 1000,            /* clocks, and as many for each block more that shares K */
    HIDDEN = 1500          /* clocks of loads */
};

/* ---- Shared memory and registers ---- */

/* The sums of each warp for a unit, and then those of all. */
static struct footprint skinny_footprint(const struct program *p, const struct tile *t)
{
    int rows = stream_rows(p, t), columns = stream_columns(p, t, 1);
    int sums = 2 * 4 * t->groups * CEIL_DIV(rows, 8) * 64 + rows * columns * tile_splits(t);
    return stream_footprint(p, t, 8 * (2 * t->bk + 64), sums);
}

/* All of A is in registers: 32 for 8 rows of 8 k. */
static bool skinny_shares_sm(const struct program *p, const struct tile *t)
{
    int64_t eights = CEIL_DIV(p->dim[1], 8) * CEIL_DIV(p->k, 8 * tile_splits(t));
    return 32 * eights <= 128 * t->groups * SHARED_REGISTERS;
}

/* ---- Cost ---- */

/* Each block reads its part of all of A: some of it, while the first weights come. Fitted at M 8, in rings of
 * 5 to 13 stages, to N 4096, 22016 and 32768 at K 4096, and to N 2048 to 8192 at K 5632 to 22016. */
static double skinny_cost(const struct program *p, const struct tile *t, const struct target *target)
{
    bool deep = 16 * t->bk * t->stages >= DEEP_RING;
    double weights = stream_clocks(p, t, target) * (deep ? 0.99 : 1.02);
    double a = 2 * (double)p->dim[1] * (double)p->k / tile_splits(t) / target->l2_bytes;
    return BEGINNING + (weights + MAX(a - HIDDEN, 0) + END * tile_splits(t));
}

/* ---- Candidates ---- */

/* Can the program be computed in clusters of `splits` blocks: has each a part of K, and does the part of A
 * that goes with it fit its registers? */
static bool suits(const struct program *p, int splits)
{
    int64_t rows = CEIL_DIV(p->dim[1], 8) * 8, part = CEIL_DIV(p->k, STEP * splits) * STEP;
    bool all = p->k % STEP == 0 && p->k > part * (splits - 1);
    return p->dim[1] > 1 && rows <= 16 && all && rows * part <= ELEMENTS;
}

static struct tile tile_of(const struct program *p, int splits)
{
    int64_t part = CEIL_DIV(p->k, STEP * splits) * STEP;
    int bk = stream_piece(part, PIECE, STEP);
    return (struct tile){.mainloop = &mainloop_skinny, .bk = bk, .groups = 2, .splits = splits};
}

static void consider(struct search *s, struct tile t, int room)
{
    stream_share(s, &t, 1);
    t.stages = tile_stages(s->p, &t, room);
    t.window = stream_window(&t, STREAM_WINDOW, 16 * t.bk);
    stream_add(s, &t, skinny_cost(s->p, &t, s->target));
}

/* Blocks that share K in the KNOWN tile, each alone on its SM: the fewest with which A fits their
 * registers; 0 if p has no such tile. */
static int known_splits(const struct program *p)
{
    if (p->dim[1] > KNOWN_ROWS || gemv_suits(p) || !stream_takes(p)) return 0;
    for (int splits = 1; splits <= MOST_SPLITS; splits++)
        if (suits(p, splits)) return splits;
    return 0;
}

static void consider_known(struct search *s)
{
    int splits = known_splits(s->p);
    if (splits) consider(s, tile_of(s->p, splits), s->target->shared_bytes);
}

/* The tiles that are not KNOWN: in half of an SM's memory, where registers leave room for a block of
 * the next program too, and split as the KNOWN one is not. */
static void consider_others(struct search *s)
{
    for (int splits = 1; splits <= MOST_SPLITS && stream_takes(s->p); splits++) {
        if (!suits(s->p, splits)) continue;
        struct tile t = tile_of(s->p, splits);
        if (skinny_shares_sm(s->p, &t)) consider(s, t, stream_half_room(s));
        if (splits != known_splits(s->p)) consider(s, t, s->target->shared_bytes);
    }
}

static void skinny_candidates(struct search *s, enum tile_class class)
{
    if (class == TILES_KNOWN && !s->common) consider_known(s);
    if (class == TILES_SKINNY) consider_others(s);
}

/* ---- The kernel ---- */

static bool skinny_supports(const struct target *target, const struct program *p)
{
    return stream_supports(target, p) && program_fits_units(p, target);
}

static void skinny_print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    stream_print_config(p, s, t);
    text_printf(t, "    static constexpr int splits = %d;\n    static constexpr bool alone = %s;\n",
                tile_splits(&s->tile), truth(!skinny_shares_sm(p, &s->tile)));
}

const struct mainloop mainloop_skinny = {.name = "sm90_skinny",
                                         .kernel = "skinny_sm90",
                                         .parts = true,
                                         .streams = true,
                                         .supports = skinny_supports,
                                         .candidates = skinny_candidates,
                                         .cost = skinny_cost,
                                         .footprint = skinny_footprint,
                                         .shares_sm = skinny_shares_sm,
                                         .complete = stream_complete,
                                         .print_config = skinny_print_config};
