/*
 * mainloop_gemv.c -- one row of A, or two short ones, at the pace of the weights: gemv_sm90.cuh of
 * primitives/tile. B streams past A, which each block holds in registers; nothing is exposed.
 */
#include "stream.h"

enum {
    PIECE = 6144,            /* elements of a row of B that a slot of the ring holds */
    PIECES = 5,              /* of a row of A that fit a thread's registers */
    NARROW_GROUPS = 4,       /* of weights of 8 bits: fours of warps, two teams of a short row, ... */
    NARROW_PIECE = 8192,     /* ... elements of a row, so that a lane has one run of a piece, ... */
    NARROW_PIECES = 2,       /* ... and pieces of a row of A */
    SHORT_PIECE = 5632,      /* elements of 8 bits of a row, two pairs of which have a slot */
    WARP = 32,               /* threads */
    LONG_WINDOW = 64 << 10,  /* bytes on their way, all of weights of 8 bits, ... */
    SHORT_WINDOW = 43 << 10, /* ... in a product whose share of B is short, ... */
    TEAM_WINDOW = 32 << 10,  /* ... and in one whose rows are so short that there are several teams */
    SHORT_SHARE = 400 << 10  /* ... which is up to so many bytes */
};

/* ---- Shared memory ---- */

static int state_floats(const struct program *p)
{
    int floats = 0;
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_REDUCE) floats += p->step[i].prim->state;
    return floats;
}

static int weight_bytes(const struct program *p) { return program_has_narrow_b(p) ? 1 : 2; }

/* Warps that share a row of B: all, or so few that each has something to multiply. */
static int team_of(const struct program *p, const struct tile *t)
{
    int team = 4 * t->groups, runs = (int)p->k * weight_bytes(p) / 16;
    while (t->bk >= p->k && team % 2 == 0 && team / 2 * WARP >= runs) team /= 2;
    return team;
}

/* Pairs of rows of B that a slot has. A wait and a release take a warp as long as the products of a
 * short row of bytes: so both pairs of a quad share them. */
static int pairs_of(const struct program *p, const struct tile *t)
{
    return program_has_narrow_b(p) && t->bk <= SHORT_PIECE ? 2 : 1;
}

static int slot_bytes(const struct program *p, const struct tile *t)
{
    return pairs_of(p, t) * 2 * weight_bytes(p) * t->bk;
}

/* Quads of columns are shared out; each warp of a team has sums of its own. */
static struct footprint gemv_footprint(const struct program *p, const struct tile *t)
{
    int columns = stream_columns(p, t, 1), warps = 4 * t->groups;
    int sums = team_of(p, t) * (int)p->dim[1] * columns + warps * state_floats(p);
    return stream_footprint(p, t, slot_bytes(p, t), sums + stream_segment_floats(p, t, columns));
}

static bool gemv_shares_sm(const struct program *p, const struct tile *t)
{
    (void)p, (void)t;
    return true;
}

/* ---- Candidates ---- */

static double gemv_cost(const struct program *p, const struct tile *t, const struct target *target)
{
    return BEGINNING + (stream_clocks(p, t, target) + BEGINNING);
}

bool gemv_suits(const struct program *p)
{
    int64_t pieces = CEIL_DIV(p->k, PIECE);
    if (program_has_narrow_b(p)) return p->dim[1] == 1 && p->k <= NARROW_PIECES * NARROW_PIECE;
    return p->k % 8 == 0 && (p->dim[1] == 1 ? pieces <= PIECES : p->dim[1] == 2 && pieces == 1);
}

/* Teams, which take pairs of B's rows in turns. */
static int teams_of(const struct program *p, const struct tile *t) { return 4 * t->groups / team_of(p, t); }

/* So many slots are a multiple of what all teams have at one time, so that a slot has one team: of weights of
 * 8 bits two pairs of rows. */
static int slots_of(const struct program *p, const struct tile *t)
{
    int teams = teams_of(p, t);
    return teams > 1 && program_has_narrow_b(p) ? 2 * teams / pairs_of(p, t) : teams;
}

/* Bytes that may be on their way at one time: as many as memory brings in the time of a trip; fewer where a
 * block's share is short, so that what the next kernel reads first waits less behind them. */
static int window_bytes(const struct program *p, const struct tile *t)
{
    int64_t share = CEIL_DIV(p->dim[2], t->blocks) * p->k * weight_bytes(p);
    if (share > SHORT_SHARE || program_has_narrow_b(p)) return LONG_WINDOW;
    return teams_of(p, t) > 1 ? TEAM_WINDOW : SHORT_WINDOW;
}

static void consider(struct search *s)
{
    const struct program *p = s->p;
    bool narrow = program_has_narrow_b(p);
    struct tile t = {.mainloop = &mainloop_gemv,
                     .bk = narrow ? stream_piece(p->k, NARROW_PIECE, 16) : stream_piece(p->k, PIECE, 8)};
    if (!stream_takes_segments(p) || !gemv_suits(p)) return;
    stream_share(s, &t, 1);
    if (narrow) t.groups = NARROW_GROUPS;
    t.stages = tile_stages(p, &t, stream_half_room(s));
    t.stages -= t.stages % slots_of(p, &t);
    t.window = stream_window(&t, window_bytes(p, &t), slot_bytes(p, &t));
    stream_add(s, &t, gemv_cost(p, &t, s->target));
}

static void gemv_candidates(struct search *s, enum tile_class class)
{
    if (class == TILES_KNOWN && !s->common) consider(s);
}

/* ---- The kernel ---- */

static bool gemv_supports(const struct target *target, const struct program *p)
{
    bool bytes =
        target_has(target, TARGET_TMA | TARGET_WGMMA) && program_has_work(p) && stream_takes_bytes(p);
    return stream_supports(target, p) && (bytes || program_fits_units(p, target));
}

static void gemv_print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    stream_print_config(p, s, t);
    text_printf(t, "    static constexpr int team = %d, pairs = %d;\n", team_of(p, &s->tile),
                pairs_of(p, &s->tile));
    stream_print_segments(p, s, t);
}

const struct mainloop mainloop_gemv = {.name = "sm90_gemv",
                                       .kernel = "gemv_sm90",
                                       .parts = true,
                                       .mixed = true,
                                       .streams = true,
                                       .unrolls = true,
                                       .supports = gemv_supports,
                                       .candidates = gemv_candidates,
                                       .cost = gemv_cost,
                                       .footprint = gemv_footprint,
                                       .shares_sm = gemv_shares_sm,
                                       .complete = stream_complete,
                                       .print_config = gemv_print_config};
