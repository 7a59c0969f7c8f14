/*
 * wgmma_fits.c -- which tiles of mainloop_wgmma a GEMM allows: pairs that meet in a thread, registers and
 * shared memory that there are.
 */
#include "wgmma.h"

enum {
    MOST_ACCUMULATORS = 192,        /* floats of a thread, if the epilogue needs little */
    MOST_BUSY_ACCUMULATORS = 128,   /* if it loads tiles into registers, or has states of several numbers of
                                       columns, or of rows that are saved while it walks over a tile */
    MOST_CROWDED_ACCUMULATORS = 96, /* of three consumers */
    MOST_SUMS_AND_STATES = 160, /* with the floats of a row's wide states, of which a thread has two ... */
    MOST_CROWDED_SUMS_AND_STATES = 112,
    MOST_MIXED_ACCUMULATORS = 96, /* if a thread's rows may be of two samples ... */
    MOST_CROWDED_MIXED_ACCUMULATORS = 64,
    FETCH_BARRIERS = 64 /* bytes, as in fetch.cuh */
};

/* ---- Widths ---- */

/* A wide tile, or a share of one, may hold pieces of heads, which are boxes of a map of whole heads. */
static bool splits_heads(const struct program *p, const struct tile *t)
{
    bool whole = pair_span(p) % 64 == 0 && pair_fills_spans(p);
    return (t->bn > 128 || t->scattered) && tile_share(t) % 64 == 0 && whole &&
           !operand_is_mn_major(&p->b.data) && (p->dim[0] == 1 || !p->b.data.batch);
}

/* Are the columns of a tile those of one part of B, or its halves two parts? */
static bool parts_fit(const struct program *p, const struct tile *t)
{
    bool halves = program_is_gated(p) && p->parts == 1 && 2 * p->part[0].first == p->dim[2];
    if (p->parts && (t->tail || (program_is_gated(p) && !(halves && p->pair == PAIR_GLU_STACKED))))
        return false;
    for (int i = 0; i < p->parts && !halves; i++)
        if (p->part[i].first % t->bn || (pair_span(p) && p->part[i].first % pair_span(p))) return false;
    return true;
}

/* A share is as wide as what TMA stores at once. */
static bool width_fits(const struct program *p, const struct tile *t)
{
    int block = program_is_gated(p) ? 128 : 64, share = tile_share(t);
    if (t->scattered && share % (program_is_gated(p) || pair_span(p) ? 64 : 32)) return false;
    if (p->segment)
        return share % program_span(p) == 0 && (!operand_is_mn_major(&p->b.data) || t->bn % block == 0);
    if (pair_span(p) && share % pair_span(p)) return splits_heads(p, t);
    return !operand_is_mn_major(&p->b.data) || t->bn % block == 0;
}

/* ---- Registers and shared memory ---- */

/* Tiles that come in registers, not by TMA. */
bool program_loads_directly(const struct program *p, const struct tile *t)
{
    const struct moves fetched = fetched_loads(p, t);
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_LOAD && step_level(&p->step[i]) == LEVEL_SLOT && !moves_have(&fetched, i))
            return true;
    return false;
}

static int accumulators(const struct tile *t)
{
    int rows = t->pingpong ? t->bm : t->bm / t->groups;
    return rows * t->bn / 128;
}

/* Sums of fp8 are there twice, those of a slot and those of all; of a slot that is multiplied by pieces two
 * pieces, which are 64 rows (promotion.cuh). */
static int f8_sums(const struct tile *t)
{
    bool pieces = t->groups > 1 && tile_splits(t) == 1 && t->bn % 32 == 0;
    return accumulators(t) + (pieces ? MIN(t->bn / 2, accumulators(t)) : accumulators(t));
}

/* A thread has rows of one sample where these begin at multiples of 16. */
static bool mixes_samples(const struct program *p) { return p->sample % 16 && program_samples_columns(p); }

/* Folds columns to states of several numbers, which wait for each other. */
static bool has_wide_column_states(const struct program *p)
{
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (step_folds_columns(s) && s->prim->state > 1) return true;
    }
    return false;
}

/* Saves states of several numbers for parts of a tile's columns. */
static bool cuts_wide_states(const struct program *p)
{
    bool wide = false;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        wide = wide || (s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS && s->prim->state > 1);
    }
    return wide && program_state_columns(p) > 0;
}

/* Floats of the wide states of the two rows that a thread has. */
static int row_state_floats(const struct program *p)
{
    int floats = 0;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        bool wide = s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS && !step_folds_segments(s);
        if (wide && s->prim->state > PRIM_MAX_COLUMN_STATE) floats += 2 * s->prim->state;
    }
    return floats;
}

static int most_accumulators(const struct program *p, const struct tile *t)
{
    bool mixes = mixes_samples(p) && t->bn > 128;
    if (t->groups > 2) return mixes ? MOST_CROWDED_MIXED_ACCUMULATORS : MOST_CROWDED_ACCUMULATORS;
    if (mixes) return MOST_MIXED_ACCUMULATORS;
    bool busy = program_loads_directly(p, t) || has_wide_column_states(p) || cuts_wide_states(p);
    return busy ? MOST_BUSY_ACCUMULATORS : MOST_ACCUMULATORS;
}

struct footprint wgmma_footprint(const struct program *p, const struct tile *t)
{
    int bytes =
        t->groups * values_bytes(p, group_rows(t), tile_share(t)) + MAX(stage_bytes(p, t), 16 * t->groups);
    bytes += 16 + 8 * t->scattered + t->groups * FETCH_BARRIERS;
    return (struct footprint){
        .fixed = bytes, .stage = (tile_a_rows(p, t) + t->bn) * 128 + 16, .granule = 1024};
}

int wgmma_bytes_beside_warp(const struct program *p, const struct tile *t)
{
    struct footprint f = wgmma_footprint(p, t);
    if (t->groups != 2) return 0;
    f.fixed -= t->groups * values_empty(p, group_rows(t), tile_share(t));
    return CEIL_DIV(f.fixed + t->stages * f.stage, f.granule) * f.granule;
}

/* Do the parts of a tile that a cluster's blocks load consist of whole octets, or of whole blocks of 64 if
 * the operand is MN-major? And are there tiles for all of them? */
static bool cluster_fits(const struct program *p, const struct tile *t)
{
    int cm = tile_cluster_m(t), cn = tile_cluster_n(t);
    int a_step = operand_is_mn_major(&p->a.data) ? 64 : 8, b_step = operand_is_mn_major(&p->b.data) ? 64 : 8;
    bool parts = tile_a_rows(p, t) % (cn * a_step) == 0 && t->bn % (cm * b_step) == 0;
    return parts && p->dim[1] > (cm - 1) * t->bm && p->dim[2] > (cn - 1) * t->bn;
}

bool wgmma_fits(const struct program *p, const struct tile *t)
{
    bool fits = width_fits(p, t) && parts_fit(p, t) && (!t->tail || tail_fits(p, t)) && cluster_fits(p, t);
    int states = row_state_floats(p),
        most = t->groups > 2 ? MOST_CROWDED_SUMS_AND_STATES : MOST_SUMS_AND_STATES;
    bool room = !states || accumulators(t) <= MAX(most - states, 32);
    if (program_is_f8(p) && f8_sums(t) > (t->groups > 2 ? MOST_CROWDED_ACCUMULATORS : MOST_ACCUMULATORS))
        return false;
    return fits && room && accumulators(t) <= most_accumulators(p, t);
}
