/* mainloop_simt.c -- fp32 multiply-adds: any dtype, stride, pitch and GPU; primitives/tile/gemm_simt.cuh. */
#include "mainloop.h"

const struct tile tile_fallback = {
    .mainloop = &mainloop_simt, .bm = 64, .bn = 64, .bk = 16, .stages = 1, .groups = 1, .band = 8};

static bool supports(const struct target *target, const struct program *p)
{
    (void)target, (void)p;
    return true;
}

/* A step of K takes a tile of 64 rows 105 clocks alone on its SM, one of 128 rows 130, twice that for two; a
 * tile that folds moments of its rows at M 4096, N and K 384, 1.3 times as long. */
static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    double tiles =
        (double)p->dim[0] * (double)CEIL_DIV(p->dim[1], t->bm) * (double)CEIL_DIV(p->dim[2], t->bn);
    int places = 2 * target->sms;
    double waves = (double)(int64_t)((tiles + places - 1) / places);
    double step = (t->bm > 64 ? 130 : 105) * (program_is_heavy(p) ? 1.3 : 1);
    return waves * (double)p->k * step * (1 + MIN(tiles / places, 1));
}

static void candidates(struct search *s, enum tile_class class)
{
    const struct program *p = s->p;
    struct tile t = tile_fallback;
    int span = program_span(p);
    if (class != TILES_KNOWN) return;
    if (span) t.bn = span >= 64 ? span : 64 / span * span;
    bool keeps = p->invariant && program_folds_columns(p);                 /* the rows of a column's states */
    bool high = p->dim[1] > 64 && !s->common && t.bn <= 64 && !p->segment; /* two passes want registers */
    t.bm = high && !keeps ? 128 : 64;
    search_add(s, &t, cost(p, &t, s->target));
}

static struct footprint footprint(const struct program *p, const struct tile *t)
{
    int values = t->groups * values_bytes(p, group_rows(t), tile_share(t));
    return (struct footprint){.fixed = values, .stage = 4 * t->bk * (t->bm + t->bn + 4), .granule = 1};
}

static bool shares_sm(const struct program *p, const struct tile *t)
{
    (void)p, (void)t;
    return true;
}

const struct mainloop mainloop_simt = {.name = "simt",
                                       .kernel = "gemm_simt",
                                       .parts = true,
                                       .mixed = true,
                                       .weights = true,
                                       .fallback = true,
                                       .contested = true,
                                       .supports = supports,
                                       .candidates = candidates,
                                       .cost = cost,
                                       .footprint = footprint,
                                       .shares_sm = shares_sm,
                                       .complete = mainloop_complete,
                                       .print_config = mainloop_print_strides};
