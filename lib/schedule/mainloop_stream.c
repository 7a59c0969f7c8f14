/*
 * mainloop_stream.c -- a few rows, multiplied at memory's pace: gemv_sm90.cuh and skinny_sm90.cuh of
 * primitives/tile. B streams past A, which each block holds in registers.
 *
 * One row, or two short ones: GEMV, at the pace of the weights; nothing is exposed. Up to 8 rows: SKINNY,
 * through the matrix units, a little faster if most of an SM's memory waits for weights, slower if half of it
 * does; then sums and epilogue. Its cost is not trusted for 9 to 16 rows, for fewer in half of an SM's
 * memory, and for clusters that a product could do without: tuning may choose these.
 */
#include "stream.h"

enum {
    LEAST_STAGES = 3,
    STREAM_PIECE = 6144, /* GEMV: elements of a row of B that a slot of the ring holds */
    STREAM_PIECES = 5,   /* GEMV: pieces of a row of A that fit a thread's registers */
    NARROW_GROUPS = 4,   /* GEMV: of weights of 8 bits: fours of warps, two teams of a short row, ... */
    NARROW_PIECE = 8192, /* ... elements of a row, so that a lane has one run of a piece, ... */
    NARROW_PIECES = 2,   /* ... and pieces of a row of A */
    SHORT_PIECE = 5632,  /* elements of 8 bits of a row, two pairs of which have a slot */
    SKINNY_ROWS = 8,     /* up to these rows SKINNY is faster than wgmma; up to 16 as fast */
    SKINNY_PIECE = 1024, /* SKINNY: elements of each of 8 rows of B that a slot holds */
    WARP = 32,           /* threads */
    SKINNY_STEP = 256,   /* SKINNY: elements of K that 8 warps multiply at once, 32 each */
    SKINNY_SPLITS = 2,   /* SKINNY: most blocks that share K */
    SKINNY_ELEMENTS = 8 * 11264, /* SKINNY: elements of A that fit the registers of a block */
    SHARED_REGISTERS = 64,       /* of a thread for A, where two skinny blocks share an SM */
    STREAM_BYTES = 40,           /* an SM may get from memory in a clock, where others get less */
    DEEP_RING = 128 << 10,       /* bytes of B */
    LONG_WINDOW = 64 << 10,      /* bytes on their way in a GEMV, all of weights of 8 bits, ... */
    SHORT_WINDOW = 43 << 10,     /* ... in one whose share of B is short, ... */
    TEAM_WINDOW = 32 << 10,      /* ... and in one whose rows are so short that there are several teams */
    SHORT_SHARE = 400 << 10,     /* ... which is up to so many bytes */
    SKINNY_END = 1000,           /* clocks, and as many for each block more that shares K */
    SKINNY_HIDDEN = 1500         /* clocks of loads */
};

/* ---- Shared memory and registers ---- */

static int state_floats(const struct program *p)
{
    int floats = 0;
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_REDUCE) floats += p->step[i].prim->state;
    return floats;
}

int stream_rows(const struct program *p, const struct tile *t)
{
    if (t->mainloop == &mainloop_gemv) return (int)p->dim[1];
    return p->dim[1] <= 8 && !p->invariant ? 8 : 16;
}

bool stream_folds_segments(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (step_folds_segments(&p->step[i])) return true;
    return false;
}

int64_t stream_quads(const struct program *p) { return CEIL_DIV(p->dim[2], 16) * 4; }

int stream_columns(const struct program *p, const struct tile *t, int share_quads)
{
    int cluster = tile_cluster(t);
    int64_t unit = stream_folds_segments(p) ? p->segment / 4 : share_quads;
    int64_t most = CEIL_DIV(CEIL_DIV(stream_quads(p), unit), t->blocks / cluster) * unit; /* of a cluster */
    return (int)CEIL_DIV(most / share_quads, cluster) * share_quads * 4;
}

/* What lies behind the slots, of `each` bytes with their barriers, up to the next 128 bytes: slots may end
 * between those. At most if `stages` is 0. */
static int ring_end(int stages, int each)
{
    enum { RING_ALIGN = 128 };
    int bytes = stages * each;
    return CEIL_DIV(bytes + 8, RING_ALIGN) * RING_ALIGN - bytes;
}

/* A ring of `slot` bytes each; the sums of the warps; the values of all rows and of a block's columns; 32
 * bytes of empty structures and of what aligns the others. */
static struct footprint stream_footprint(const struct program *p, const struct tile *t, int slot, int sums)
{
    int rows = stream_rows(p, t), columns = stream_columns(p, t, 1);
    int fixed = 4 * sums + values_bytes(p, rows, columns) + ring_end(t->stages, slot + 16) + 32;
    return (struct footprint){.fixed = fixed, .stage = slot + 16, .granule = 1024};
}

static int weight_bytes(const struct program *p) { return program_has_narrow_b(p) ? 1 : 2; }

/* Warps of GEMV that share a row of B: all, or so few that each has something to multiply. */
static int gemv_team(const struct program *p, const struct tile *t)
{
    int team = 4 * t->groups, runs = (int)p->k * weight_bytes(p) / 16;
    while (t->bk >= p->k && team % 2 == 0 && team / 2 * WARP >= runs) team /= 2;
    return team;
}

/* Has an earlier step of its range the state that step i folds? */
static bool reads_state(const struct program *p, int i)
{
    for (int j = 0; j < i; j++)
        if (p->step[j].range == p->step[i].range && step_folds_segments(&p->step[j]) &&
            step_shares_state(p, &p->step[j], &p->step[i]))
            return true;
    return false;
}

/* What segments.cuh has of each of a block's quads, and of each segment that has some of them: the states, or
 * the values, of one range, by fours. */
int stream_segment_floats(const struct program *p, const struct tile *t, int columns)
{
    int most = 0, quads = columns / 4, unit = (int)MAX(p->segment / 4, 1);
    for (int range = 0; range <= p->ranges; range++) {
        int states = 0, values = 0;
        for (int i = 0; i < p->steps; i++) {
            const struct step *s = &p->step[i];
            if (s->range != range || step_level(s) != LEVEL_SEGMENT) continue;
            values++;
            if (step_folds_segments(s) && !reads_state(p, i)) states += s->prim->state;
        }
        most = MAX(most, MAX(states, values));
    }
    int each = stream_rows(p, t) * 4 * CEIL_DIV(most, 4);
    return stream_folds_segments(p) ? (quads + (quads + unit - 2) / unit + 1) * each + 4 : 0;
}

/* Pairs of rows of B that a slot of GEMV has. A wait and a release take a warp as long as the products of a
 * short row of bytes: so both pairs of a quad share them. */
static int gemv_pairs(const struct program *p, const struct tile *t)
{
    return program_has_narrow_b(p) && t->bk <= SHORT_PIECE ? 2 : 1;
}

/* Quads of columns are shared out; each warp of a team has sums of its own. */
static struct footprint gemv_footprint(const struct program *p, const struct tile *t)
{
    int columns = stream_columns(p, t, 1), warps = 4 * t->groups;
    int sums = gemv_team(p, t) * (int)p->dim[1] * columns + warps * state_floats(p);
    int slot = gemv_pairs(p, t) * 2 * weight_bytes(p) * t->bk;
    return stream_footprint(p, t, slot, sums + stream_segment_floats(p, t, columns));
}

/* The sums of each warp for a unit, and then those of all. */
static struct footprint skinny_footprint(const struct program *p, const struct tile *t)
{
    int rows = stream_rows(p, t), columns = stream_columns(p, t, 1);
    int sums = 2 * 4 * t->groups * CEIL_DIV(rows, 8) * 64 + rows * columns * tile_splits(t);
    return stream_footprint(p, t, 8 * (2 * t->bk + 64), sums);
}

static bool gemv_shares_sm(const struct program *p, const struct tile *t)
{
    (void)p, (void)t;
    return true;
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
static double skinny_clocks(const struct program *p, const struct tile *t, const struct target *target,
                            double weights)
{
    bool deep = 16 * t->bk * t->stages >= DEEP_RING;
    double a = 2 * (double)p->dim[1] * (double)p->k / tile_splits(t) / target->l2_bytes;
    return weights * (deep ? 0.99 : 1.02) + MAX(a - SKINNY_HIDDEN, 0) + SKINNY_END * tile_splits(t);
}

double stream_clocks(const struct program *p, const struct tile *t, const struct target *target)
{
    double share =
        (double)program_b_bytes(p) / (double)p->dim[0] * stream_columns(p, t, 1) / (double)p->dim[2];
    double used = (double)(p->dim[0] * t->blocks) / target->sms;
    return MAX(share / STREAM_BYTES, weight_clocks(p, target, p->dim[0] > 1 ? MIN(used, 1) : used));
}

static double stream_cost(const struct program *p, const struct tile *t, const struct target *target)
{
    double weights = stream_clocks(p, t, target);
    return BEGINNING +
           (t->mainloop == &mainloop_skinny ? skinny_clocks(p, t, target, weights) : weights + BEGINNING);
}

/* ---- Candidates ---- */

/* Does GEMV take the program: one row of A, or two short ones, that fit the registers? */
static bool suits_gemv(const struct program *p)
{
    int64_t pieces = CEIL_DIV(p->k, STREAM_PIECE);
    if (program_has_narrow_b(p)) return p->dim[1] == 1 && p->k <= NARROW_PIECES * NARROW_PIECE;
    return p->k % 8 == 0 && (p->dim[1] == 1 ? pieces <= STREAM_PIECES : p->dim[1] == 2 && pieces == 1);
}

/* Does SKINNY take the program in clusters of `splits` blocks: has each a part of K, and does the part of A
 * that goes with it fit its registers? */
static bool suits_skinny(const struct program *p, int splits)
{
    int64_t rows = CEIL_DIV(p->dim[1], 8) * 8, part = CEIL_DIV(p->k, SKINNY_STEP * splits) * SKINNY_STEP;
    bool all = p->k % SKINNY_STEP == 0 && p->k > part * (splits - 1);
    return p->dim[1] > 1 && rows <= 16 && all && rows * part <= SKINNY_ELEMENTS;
}

/* Cuts K into the fewest pieces of at most `most` elements and makes them as equal as multiples of `step` can
 * be: the length of all but the last. */
static int piece(int64_t k, int most, int step) { return (int)CEIL_DIV(k, step * CEIL_DIV(k, most)) * step; }

/* Teams of GEMV, which take pairs of B's rows in turns. */
static int gemv_teams(const struct program *p, const struct tile *t)
{
    return 4 * t->groups / gemv_team(p, t);
}

/* So many slots are a multiple of what all teams have at one time, so that a slot has one team: of weights of
 * 8 bits two pairs of rows. */
static int gemv_slots(const struct program *p, const struct tile *t)
{
    int teams = gemv_teams(p, t);
    return teams > 1 && program_has_narrow_b(p) ? 2 * teams / gemv_pairs(p, t) : teams;
}

/* Bytes that may be on their way at one time: as many as memory brings in the time of a trip; fewer where a
 * block's share is short, so that what the next kernel reads first waits less behind them. */
static int window_bytes(const struct program *p, const struct tile *t)
{
    int64_t share = CEIL_DIV(p->dim[2], t->blocks) * p->k * weight_bytes(p);
    if (t->mainloop == &mainloop_skinny) return STREAM_WINDOW;
    if (share > SHORT_SHARE || program_has_narrow_b(p)) return LONG_WINDOW;
    return gemv_teams(p, t) > 1 ? TEAM_WINDOW : SHORT_WINDOW;
}

/* The same in slots of the ring. */
static int window(const struct program *p, const struct tile *t)
{
    int bytes = window_bytes(p, t),
        slot = (t->mainloop == &mainloop_skinny ? 16 : gemv_pairs(p, t) * 2 * weight_bytes(p)) * t->bk;
    int slots = MAX((bytes + slot / 2) / slot, 2);
    return slots < t->stages ? slots : 0;
}

/* Blocks of a portable cluster that share whole segments: with which the largest share is smallest. */
static void share_segments(const struct search *s, struct tile *t, int share_quads)
{
    enum { MOST_CLUSTER = 8 };
    const struct program *p = s->p;
    int64_t segments = p->dim[2] / p->segment, least = INT64_MAX;
    int sms = s->target->sms, clustered = (int)(sms * s->target->clustered);
    for (int cluster = 1; cluster <= MIN(MOST_CLUSTER, sms); cluster *= 2) {
        int64_t most = MAX((cluster > 2 ? clustered : sms) / cluster, 1);
        int64_t each = CEIL_DIV(segments, MIN(segments, most)), shares = each * p->segment / 4 / share_quads;
        int64_t own = CEIL_DIV(shares, cluster);
        if (own >= least) continue;
        least = own;
        t->blocks = (int)CEIL_DIV(segments, each) * cluster;
        t->cluster_n = cluster > 1 ? cluster : 0;
    }
}

void stream_share(const struct search *s, struct tile *t, int share_quads)
{
    t->bm = (int)s->p->dim[1], t->bn = 16, t->groups = 2, t->band = 1;
    if (pair_span(s->p)) t->bn = pair_span(s->p);
    bool alike = s->p->invariant; /* whichever block has a column decides how its sums are ordered */
    int64_t sms = alike ? s->target->sms : MAX(s->target->sms / s->p->dim[0], 1); /* for each batch */
    t->blocks = (int)MIN(stream_quads(s->p), sms) / tile_splits(t) * tile_splits(t);
    if (stream_folds_segments(s->p)) t->bn = (int)s->p->segment, share_segments(s, t, share_quads);
}

static void consider_stream(struct search *s, struct tile t, int room)
{
    const struct program *p = s->p;
    stream_share(s, &t, 1);
    if (t.mainloop == &mainloop_gemv && program_has_narrow_b(p)) t.groups = NARROW_GROUPS;
    t.stages = tile_stages(p, &t, room);
    if (t.mainloop == &mainloop_gemv) t.stages -= t.stages % gemv_slots(p, &t);
    t.window = window(p, &t);
    if (t.blocks && t.stages >= LEAST_STAGES) search_add(s, &t, stream_cost(p, &t, s->target));
}

int stream_half_room(const struct search *s) { return (s->target->shared_bytes - 1024) / 2; }

static bool columns_fit(const struct program *p)
{
    bool columns = (p->dim[2] % 16 == 0 || p->pair == PAIR_NONE) && p->dim[2] < INT32_MAX - 16;
    return columns && !operand_is_mn_major(&p->a.data) && !operand_is_mn_major(&p->b.data);
}

bool stream_takes(const struct program *p) { return !stream_folds_segments(p) && columns_fit(p); }
bool stream_takes_segments(const struct program *p)
{
    return columns_fit(p) && (!stream_folds_segments(p) || (p->dim[0] == 1 && p->dim[2] % p->segment == 0));
}

static void consider_gemv(struct search *s)
{
    const struct program *p = s->p;
    bool narrow = program_has_narrow_b(p);
    struct tile t = {.mainloop = &mainloop_gemv,
                     .bk = narrow ? piece(p->k, NARROW_PIECE, 16) : piece(p->k, STREAM_PIECE, 8)};
    if (stream_takes_segments(p) && suits_gemv(p)) consider_stream(s, t, stream_half_room(s));
}

static struct tile skinny_tile(const struct program *p, int splits)
{
    int64_t part = CEIL_DIV(p->k, SKINNY_STEP * splits) * SKINNY_STEP;
    int bk = piece(part, SKINNY_PIECE, SKINNY_STEP);
    return (struct tile){.mainloop = &mainloop_skinny, .bk = bk, .groups = 2, .splits = splits};
}

/* Blocks that share K in the KNOWN skinny tile, each alone on its SM: the fewest with which A fits their
 * registers; 0 if p has no such tile. */
static int known_splits(const struct program *p)
{
    if (p->dim[1] > SKINNY_ROWS || suits_gemv(p) || !stream_takes(p)) return 0;
    for (int splits = 1; splits <= SKINNY_SPLITS; splits++)
        if (suits_skinny(p, splits)) return splits;
    return 0;
}

static void consider_known_skinny(struct search *s)
{
    int splits = known_splits(s->p);
    if (splits) consider_stream(s, skinny_tile(s->p, splits), s->target->shared_bytes);
}

/* The skinny tiles that are not KNOWN: in half of an SM's memory, where registers leave room for a block of
 * the next program too, and split as the KNOWN one is not. */
static void consider_skinny(struct search *s)
{
    for (int splits = 1; splits <= SKINNY_SPLITS && stream_takes(s->p); splits++) {
        if (!suits_skinny(s->p, splits)) continue;
        struct tile t = skinny_tile(s->p, splits);
        if (skinny_shares_sm(s->p, &t)) consider_stream(s, t, stream_half_room(s));
        if (splits != known_splits(s->p)) consider_stream(s, t, s->target->shared_bytes);
    }
}

static void gemv_candidates(struct search *s, enum tile_class class)
{
    if (class == TILES_KNOWN && !s->common) consider_gemv(s);
}

static void skinny_candidates(struct search *s, enum tile_class class)
{
    if (class == TILES_KNOWN && !s->common) consider_known_skinny(s);
    if (class == TILES_SKINNY) consider_skinny(s);
}

/* ---- The kernels ---- */

static bool suits_streams(const struct target *target, const struct program *p)
{
    return target_has(target, TARGET_PDL) && program_pairs_meet(p, target) && p->dim[0] == 1 &&
           !program_folds_columns(p); /* a block has all rows, each in another thread */
}
static bool gemv_supports(const struct target *target, const struct program *p)
{
    bool bytes =
        target_has(target, TARGET_TMA | TARGET_WGMMA) && program_has_work(p) && stream_takes_bytes(p);
    return suits_streams(target, p) && (bytes || program_fits_units(p, target));
}
static bool skinny_supports(const struct target *target, const struct program *p)
{
    return suits_streams(target, p) && program_fits_units(p, target);
}

bool stream_takes_bytes(const struct program *p)
{
    const struct tensor_use *b = &p->b.data;
    bool known = b->dtype == CODA_F8E4M3 || b->dtype == CODA_F8E5M2 || b->dtype == CODA_I8;
    return known && operand_is_plain(&p->b) && dtype_is_half(p->a.dtype) && !program_a_obstacle(p) &&
           b->k == 1 && b->row % 16 == 0 && b->batch % 16 == 0 && b->offset % 16 == 0 && p->k % 16 == 0;
}

bool stream_is_early(const struct program *p) { return p->b.data.steady && !p->prepare; }

/* Besides the consumers, two warps where a second block has to fit. */
static void complete(struct schedule *s, const struct program *p, const struct target *target)
{
    (void)target;
    s->threads = 128 * s->tile.groups + (s->tile.mainloop->shares_sm(p, &s->tile) ? 64 : 128);
    s->early = stream_is_early(p);
    s->grid = s->tile.blocks;
    s->cluster = 1;
}

void stream_print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    mainloop_print_strides(p, s, t);
    text_printf(t, "    static constexpr int blocks = %d, window = %d;\n", s->tile.blocks,
                s->tile.window ? s->tile.window : s->tile.stages);
    text_printf(t, "    static constexpr bool early = %s;\n", truth(s->early));
}

void stream_print_segments(const struct program *p, const struct schedule *s, struct text *t)
{
    text_printf(t, "    static constexpr int cluster = %d;\n    static constexpr bool folds_segments = %s;\n",
                tile_cluster(&s->tile), truth(stream_folds_segments(p)));
}

static void gemv_print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    stream_print_config(p, s, t);
    text_printf(t, "    static constexpr int team = %d, pairs = %d;\n", gemv_team(p, &s->tile),
                gemv_pairs(p, &s->tile));
    stream_print_segments(p, s, t);
}

static void skinny_print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    stream_print_config(p, s, t);
    text_printf(t, "    static constexpr int splits = %d;\n    static constexpr bool alone = %s;\n",
                tile_splits(&s->tile), truth(!skinny_shares_sm(p, &s->tile)));
}

const struct mainloop mainloop_gemv = {.name = "sm90_gemv",
                                       .kernel = "gemv_sm90",
                                       .parts = true,
                                       .mixed = true,
                                       .streams = true,
                                       .supports = gemv_supports,
                                       .candidates = gemv_candidates,
                                       .cost = stream_cost,
                                       .footprint = gemv_footprint,
                                       .shares_sm = gemv_shares_sm,
                                       .complete = complete,
                                       .print_config = gemv_print_config};

const struct mainloop mainloop_skinny = {.name = "sm90_skinny",
                                         .kernel = "skinny_sm90",
                                         .parts = true,
                                         .streams = true,
                                         .supports = skinny_supports,
                                         .candidates = skinny_candidates,
                                         .cost = stream_cost,
                                         .footprint = skinny_footprint,
                                         .shares_sm = skinny_shares_sm,
                                         .complete = complete,
                                         .print_config = skinny_print_config};
