/* epilogue_layout.c -- what the steps of a GEMM need: levels, lanes, staging. */
#include "epilogue_layout.h"

#include "mainloop.h"

enum {
    TWO_STAGES = 8 << 10,     /* bytes that a consumer stores of a unit; of less it stages two */
    WIDE_STATE = 4,           /* floats: a kernel has several of no more in flight */
    TAIL_MOST_ROWS = 1 << 20, /* dealing a tail takes time for each band */
    TAIL_MOST_FLOATS = 16     /* of 20, two lists of the largest, NVRTC makes a kernel in minutes */
};

/* Maps of half-width columns are rare and cheap: they run in the slot. */
enum level step_level(const struct step *s)
{
    if (s->kind == STEP_SCALAR) return LEVEL_SCALAR;
    if (s->cls == CLASS_SEGMENT) return LEVEL_SEGMENT;
    if (s->cls == CLASS_ROW && s->kind != STEP_REDUCE) return LEVEL_ROW;
    if (s->cls != CLASS_COL || s->kind == STEP_LANE || s->kind == STEP_REDUCE) return LEVEL_SLOT;
    if (!s->half) return LEVEL_COL;
    return s->kind == STEP_LOAD ? LEVEL_HALF : LEVEL_SLOT;
}

static bool reads(const struct program *p, const struct step *s, int step)
{
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] == step) return true;
    bool moves = s->kind == STEP_LOAD || s->kind == STEP_STORE;
    return moves && use_is_indexed(&p->port[s->port]) && p->port[s->port].index == step;
}

static bool step_crosses(const struct program *p, int step)
{
    enum level level = step_level(&p->step[step]);
    if (level == LEVEL_SLOT || level == LEVEL_SCALAR || !step_has_value(p, &p->step[step])) return false;
    for (int i = step + 1; i < p->steps; i++)
        if (step_level(&p->step[i]) == LEVEL_SLOT && reads(p, &p->step[i], step)) return true;
    return false;
}

int group_rows(const struct tile *t) { return t->pingpong ? t->bm : t->bm / t->groups; }

/* Threads that share a row. Each of 64 rows has two of the 128 threads, unless an accumulator is a list,
 * whose order of merging would show in the result. */
static int program_row_team(const struct program *p, const struct tile *t)
{
    bool merges = false, wide = false;
    for (int i = 0; i < p->steps; i++) {
        if (p->step[i].kind != STEP_PARTIAL) continue;
        merges = true;
        wide = wide || p->port[p->step[i].port].reduce->state > WIDE_STATE;
    }
    if (!merges || p->invariant) return 1; /* a warp merges in another order */
    if (tile_rows(p, t) <= ROWS_OF_WARPS) return 32;
    return group_rows(t) == 64 && !wide && !t->mainloop->streams ? 2 : 1;
}

/* ---- Shared memory, as the mainloops' Shared structs have it ---- */

static int common_divisor(int a, int b) { return b ? common_divisor(b, a % b) : a; }

/* Samples that a tile has rows of, at most: each has columns' values of its own. */
static int samples(const struct program *p, int rows)
{
    if (!program_samples_columns(p)) return 1;
    int sample = (int)p->sample;
    return (sample - common_divisor(sample, rows) + rows - 1) / sample + 1;
}

/* Floats of the states of a slot's columns. */
static int column_floats(const struct program *p)
{
    int floats = 0;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (step_folds_columns(s)) floats += s->prim->state * (s->half ? 1 : program_lanes(p));
    }
    return floats;
}

enum { WARPS = 4 }; /* of a consumer: each has states of all slots of a row */

struct crossing {
    int row, col, half; /* numbers of each */
};

static struct crossing crossing_of(const struct program *p)
{
    struct crossing c = {.row = pair_counts_rows(p)};
    for (int i = 0; i < p->steps; i++) {
        enum level level = step_level(&p->step[i]);
        if (i == pair_step(p)) c.col += (pair_steps_evenly(p) ? 4 : 2) + (pair_axes(&p->pairing) > 1);
        if (!step_crosses(p, i)) continue;
        c.row += level == LEVEL_ROW;
        c.col += level == LEVEL_COL;
        c.half += level == LEVEL_HALF;
    }
    return c;
}

int values_empty(const struct program *p, int rows, int columns)
{
    const struct crossing c = crossing_of(p);
    columns *= samples(p, rows);
    return !c.row * rows + !c.col * columns + !c.half * columns / 2;
}

/* What rows_above.cuh keeps: the last rows of each of a consumer's warps, of 16 bits, for those below. */
static int above_bytes(const struct program *p, int rows, int columns)
{
    enum { WARP_ROWS = 16 };
    int i = conv1d_step_of(p), above = i < 0 ? 0 : step_rows_above(&p->step[i]);
    return 2 * above * columns * rows / WARP_ROWS;
}

int values_bytes(const struct program *p, int rows, int columns)
{
    const struct crossing c = crossing_of(p);
    int states = WARPS * 4 * column_floats(p) * columns / program_lanes(p),
        empty = values_empty(p, rows, columns), above = above_bytes(p, rows, columns);
    columns *= samples(p, rows);
    return 4 * (c.row * rows + c.col * columns + c.half * columns / 2) + empty + 16 + states + above;
}

/* Epilogue subtiles, 64 rows of a chunk of columns, that one consumer warpgroup drains of a tile. */
static int units(const struct program *p, const struct tile *t)
{
    return out_columns(p, t) / chunk_columns(p, t) * (group_rows(t) / 64);
}

int stage_store_bytes(const struct program *p, const struct tile *t)
{
    const struct moves stores = staged_stores(p, t);
    int unit = 64 * chunk_columns(p, t) * stores.bytes;
    return unit <= TWO_STAGES && units(p, t) > 1 ? 2 * unit : unit;
}

int stage_bytes(const struct program *p, const struct tile *t)
{
    const struct moves loads = fetched_loads(p, t);
    int fetched = 64 * chunk_columns(p, t) * fetch_slots(p, t, &loads) * loads.bytes;
    return t->lends ? 0 : t->groups * (stage_store_bytes(p, t) + fetched);
}

/* Slots lent are cut in pieces of one size. */
static bool are_alike(const struct moves *stores, const struct moves *loads)
{
    int bytes = stores->count ? stores->move->bytes : 0;
    for (int i = 0; i < stores->count; i++)
        if (stores->move[i].bytes != bytes) return false;
    return !loads->count || (loads->count == 1 && loads->bytes == bytes);
}

/* As lent.cuh counts: the fetched units of all consumers take the first slots; the others must have room for
 * what each consumer stores of one unit, but for the store that overwrites the fetched one. */
bool program_may_lend(const struct program *p, const struct tile *t)
{
    const struct moves stores = staged_stores(p, t), loads = fetched_loads(p, t);
    int pieces = stores.together * (chunk_columns(p, t) / unit_columns(p, t)), taken = 0;
    if (!pieces || !are_alike(&stores, &loads)) return false;
    int consumers = t->pingpong ? 1 : t->groups;
    int each = MAX(tile_a_rows(p, t), t->bn) * 2 / (unit_columns(p, t) * stores.move->bytes);
    if (!each || tile_splits(t) > 1 || tile_cluster(t) > 1 || t->groups == 1) return false;
    if (loads.count) taken = CEIL_DIV(units(p, t) * consumers, each), pieces--;
    return taken <= t->stages && (t->stages - taken) * each >= pieces * consumers;
}

/* Tiles of a row that are as wide as the others. */
static int64_t whole_tiles(const struct program *p, const struct tile *t)
{
    return CEIL_DIV(p->dim[2] - (int64_t)t->tail * t->tail_bn, tile_share(t));
}

int64_t program_row_tiles(const struct program *p, const struct tile *t)
{
    return whole_tiles(p, t) + t->tail;
}

/* Partial states are counted in whole spans, as tiles have them. */
int64_t program_states(const struct program *p, const struct tile *t)
{
    int columns = program_state_columns(p), span = MAX(program_span(p), columns);
    if (t->mainloop->streams) return t->blocks;
    return columns ? CEIL_DIV(p->dim[2], span) * span / columns : program_row_tiles(p, t);
}

int64_t program_column_states(const struct program *p, const struct tile *t)
{
    return t->mainloop->streams ? 0 : CEIL_DIV(p->dim[1], group_rows(t));
}

int64_t program_tile_column(const struct program *p, const struct tile *t, int64_t tile)
{
    int64_t whole = MIN(tile, whole_tiles(p, t));
    if (program_state_columns(p)) return MIN(tile * program_state_columns(p), p->dim[2]);
    return whole * tile_share(t) + (tile - whole) * t->tail_bn;
}

/* Floats of the states that a tile leaves of a row. */
static int row_floats(const struct program *p)
{
    int floats = 0;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_REDUCE && !step_folds_columns(s)) floats += s->prim->state;
    }
    return floats;
}

/* Consumers take turns, no tile ends past the last column, chunks are whole, and NVRTC takes seconds. */
bool tail_fits(const struct program *p, const struct tile *t)
{
    int chunk = chunk_columns(p, t) * (program_is_gated(p) ? 2 : 1);
    int64_t rest = p->dim[2] - (int64_t)t->tail * t->tail_bn;
    bool alone = t->pingpong && t->groups == 2 && tile_splits(t) == 1 && tile_cluster(t) == 1 && !t->across;
    bool plain = p->dim[0] == 1 && t->mainloop->tma && !t->lends && t->blocks > 0;
    bool sizes = p->dim[1] <= TAIL_MOST_ROWS && p->dim[2] <= INT32_MAX;
    bool widths = t->bn % 64 == 0 && t->tail_bn % 64 == 0 && t->tail_bn % chunk == 0 && t->tail_bn < t->bn;
    bool halves = !program_is_gated(p) || p->b.data.k == 1;
    if (row_floats(p) > TAIL_MOST_FLOATS) return false;
    return alone && plain && sizes && widths && halves && rest > 0 && rest % t->bn == 0;
}

static bool maps_tail(const struct program *p, const struct tile *t)
{
    return t->tail && p->b.data.k == 1 && !program_splits_heads(p, t);
}

int64_t program_blocks(const struct program *p, const struct tile *t)
{
    int64_t clusters = CEIL_DIV(p->dim[1], t->bm * tile_cluster_m(t)) *
                       CEIL_DIV(p->dim[2], t->bn * tile_cluster_n(t)) * p->dim[0];
    if (t->tail) return CEIL_DIV(p->dim[1], t->bm) * program_row_tiles(p, t);
    return clusters * tile_cluster(t) * tile_splits(t);
}

/* Whole octets, which the swizzle repeats in; or, where they are columns of products, what these have. */
int tile_a_rows(const struct program *p, const struct tile *t)
{
    int64_t rows = tile_rows(p, t);
    bool columns = t->bm > 64 && t->mainloop->turned;
    bool few = (t->bm == 64 || columns) && p->a.data.k == 1 && rows < t->bm;
    int step = columns ? 16 : 8;
    return few ? (int)CEIL_DIV(rows, step) * step : t->bm;
}

/* May a kernel for any number of rows load those of a launch alone? Shared tiles come in fixed parts. */
static bool clips_a(const struct program *p, const struct tile *t)
{
    return t->mainloop->tma && t->most_rows && p->a.data.k == 1 && tile_cluster_n(t) == 1;
}

int tile_a_box(const struct program *p, const struct tile *t)
{
    int rows = tile_a_rows(p, t);
    return clips_a(p, t) ? (int)MIN(CEIL_DIV(p->dim[1], 8) * 8, rows) : rows;
}

/* ---- For emitters ---- */

bool epilogue_layout_fill(struct epilogue_layout *l, struct arena *a, const struct program *p,
                          const struct tile *t)
{
    *l = (struct epilogue_layout){.level = ARENA_NEW(a, enum level, p->steps + 1),
                                  .crosses = ARENA_NEW(a, bool, p->steps + 1),
                                  .moved = ARENA_NEW(a, bool, p->steps + 1),
                                  .stores = staged_stores(p, t),
                                  .loads = fetched_loads(p, t)};
    if (a->failed) return false;
    for (int i = 0; i < p->steps; i++) {
        l->level[i] = step_level(&p->step[i]);
        l->crosses[i] = step_crosses(p, i);
        l->moved[i] = moves_have(&l->stores, i) || moves_have(&l->loads, i);
    }
    l->unit = unit_columns(p, t);
    l->row_team = program_row_team(p, t);
    l->a_rows = tile_a_rows(p, t);
    l->a_box = tile_a_box(p, t);
    l->clips_a = clips_a(p, t);
    l->states = program_states(p, t);
    l->state_columns = program_state_columns(p);
    l->column_states = program_column_states(p, t);
    l->splits_heads = program_splits_heads(p, t);
    l->maps_tail = maps_tail(p, t);
    l->steps_evenly = pair_steps_evenly(p);
    return true;
}
