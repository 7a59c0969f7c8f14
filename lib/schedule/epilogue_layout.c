/* epilogue_layout.c -- what the steps of a GEMM need: levels, lanes, staging. */
#include "epilogue_layout.h"

#include "mainloop.h"

enum {
    FETCH_COLUMNS = 128,    /* in flight, for each consumer */
    FETCH_FEW_COLUMNS = 64, /* for each of three */
    STAGE_LIMIT = 64 << 10, /* bytes */
    FEW_ROWS = 16,
    TAIL_MOST_ROWS = 1 << 20, /* dealing a tail takes time for each band */
    MOST_STAGED = KERNEL_MAX_MAPS - 4
};

/* Maps of half-width columns are rare and cheap: they run in the slot. */
enum level step_level(const struct step *s)
{
    if (s->cls == CLASS_ROW && s->kind != STEP_REDUCE) return LEVEL_ROW;
    if (s->cls != CLASS_COL || s->kind == STEP_LANE || s->kind == STEP_REDUCE) return LEVEL_SLOT;
    if (!s->half) return LEVEL_COL;
    return s->kind == STEP_LOAD ? LEVEL_HALF : LEVEL_SLOT;
}

static bool reads(const struct program *p, const struct step *s, int step)
{
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] == step) return true;
    return s->kind == STEP_LOAD && p->port[s->port].role == USE_GATHER && p->port[s->port].index == step;
}

static bool step_crosses(const struct program *p, int step)
{
    enum level level = step_level(&p->step[step]);
    if (level == LEVEL_SLOT || !step_has_value(p, &p->step[step])) return false;
    for (int i = step + 1; i < p->steps; i++)
        if (step_level(&p->step[i]) == LEVEL_SLOT && reads(p, &p->step[i], step)) return true;
    return false;
}

static int program_row_team(const struct program *p)
{
    bool merges = false;
    for (int i = 0; i < p->steps; i++) merges = merges || p->step[i].kind == STEP_PARTIAL;
    return merges && p->dim[1] <= FEW_ROWS ? 32 : 1;
}

/* ---- Staging ---- */

static int common_multiple(int a, int b)
{
    int n = a;
    while (n % b) n += a;
    return n;
}

/* Columns of the output that a block drains of a tile. */
static int out_columns(const struct program *p, const struct tile *t)
{
    int share = tile_share(t);
    return program_is_gated(p) ? share / 2 : share;
}

bool program_splits_heads(const struct program *p, const struct tile *t)
{
    return pair_span(p) && tile_share(t) % pair_span(p);
}

/* Output columns that are finished together; as in columns.cuh. 0: any. */
static int paired_columns(const struct program *p, const struct tile *t)
{
    if (!pair_span(p)) return 0;
    return program_splits_heads(p, t) ? 64 : common_multiple(pair_span(p), 64);
}

int unit_columns(const struct program *p, const struct tile *t)
{
    if (paired_columns(p, t)) return program_splits_heads(p, t) ? 32 : 64;
    bool wide = t->bn > 64 || t->groups > 1; /* else what is not 64 columns is not staged */
    return wide && (out_columns(p, t) % 64 || t->groups > 2) ? 32 : 64;
}
static int chunk_columns(const struct program *p, const struct tile *t)
{
    return paired_columns(p, t) ? paired_columns(p, t) : unit_columns(p, t);
}

/* What TMA moves: 16-bit tiles of the output's width and 16-byte pitches. */
static bool is_movable(const struct program *p, const struct step *s)
{
    const struct tensor_use *port = &p->port[s->port];
    bool whole = step_level(s) == LEVEL_SLOT && s->half == program_is_gated(p);
    bool pitch =
        port->stride[2] == 1 && port->stride[1] % 8 == 0 && port->stride[1] > 0 && port->offset % 8 == 0;
    bool batch = p->dim[0] == 1 || (port->stride[0] % 8 == 0 && port->stride[0] > 0);
    return whole && pitch && batch && dtype_size(port->dtype) == 2;
}

static bool is_stageable(const struct program *p, const struct step *s)
{
    return s->kind == STEP_STORE && is_movable(p, s);
}

int group_rows(const struct tile *t) { return t->pingpong ? t->bm : t->bm / t->groups; }

/* Bytes of staging for one store, 64 rows; as in epilogue_layout.cuh but for the ring. */
static int chunk_bytes(const struct program *p, const struct tile *t)
{
    return t->groups * chunk_columns(p, t) * 128;
}

static bool program_stages(const struct program *p, const struct tile *t)
{
    return t->mainloop->tma && out_columns(p, t) % chunk_columns(p, t) == 0;
}

/* The first stageable store decides the dtype; as many as fit follow it. */
bool store_is_staged(const struct program *p, const struct tile *t, int step)
{
    int before = 0;
    coda_dtype first = p->port[p->step[step].port].dtype;
    if (!program_stages(p, t) || !is_stageable(p, &p->step[step])) return false;
    for (int i = 0; i < step; i++)
        if (is_stageable(p, &p->step[i])) {
            coda_dtype type = p->port[p->step[i].port].dtype;
            if (!before) first = type;
            before += type == first;
        }
    bool same = p->port[p->step[step].port].dtype == first;
    return same && before < MOST_STAGED && (before + 1) * chunk_bytes(p, t) <= STAGE_LIMIT;
}

int count_staged(const struct program *p, const struct tile *t)
{
    int n = 0;
    for (int i = 0; i < p->steps; i++) n += p->step[i].kind == STEP_STORE && store_is_staged(p, t, i);
    return n;
}

int fetched_load(const struct program *p, const struct tile *t)
{
    bool narrow = t->groups == 1; /* two blocks share an SM's memory */
    if (narrow || !program_stages(p, t) || chunk_columns(p, t) != unit_columns(p, t)) return -1;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_LOAD && p->port[s->port].role == USE_LOAD && is_movable(p, s)) return i;
    }
    return -1;
}

/* ---- Shared memory, as the mainloops' Shared structs have it ---- */

int values_bytes(const struct program *p, int rows, int columns)
{
    int row = pair_counts_rows(p), col = 0, half = 0;
    for (int i = 0; i < p->steps; i++) {
        enum level level = step_level(&p->step[i]);
        if (p->step[i].kind == STEP_PAIR) col += pair_steps_evenly(p) ? 4 : 2;
        if (!step_crosses(p, i)) continue;
        row += level == LEVEL_ROW;
        col += level == LEVEL_COL;
        half += level == LEVEL_HALF;
    }
    int bytes = 4 * (row * rows + col * columns + half * columns / 2);
    int empty = !row * rows + !col * columns + !half * columns / 2;
    return bytes + empty + 16;
}

/* Epilogue subtiles, 64 rows of a chunk of columns, that one consumer warpgroup drains of a tile. */
static int units(const struct program *p, const struct tile *t)
{
    return out_columns(p, t) / chunk_columns(p, t) * (group_rows(t) / 64);
}

int stage_bytes(const struct program *p, const struct tile *t)
{
    int columns = t->groups > 2 ? FETCH_FEW_COLUMNS : FETCH_COLUMNS;
    int staged = count_staged(p, t), fetched = fetched_load(p, t) >= 0 ? columns / unit_columns(p, t) : 0;
    bool two = staged * chunk_columns(p, t) <= 64 && units(p, t) > 1;
    return t->lends ? 0 : ((two ? 2 : 1) * staged + fetched) * chunk_bytes(p, t);
}

/* As lent.cuh counts: the fetched units of all consumers take the first slots; the others must have room for
 * what each consumer stores of one unit, but for the store that overwrites the fetched one. */
bool program_may_lend(const struct program *p, const struct tile *t)
{
    int consumers = t->pingpong ? 1 : t->groups, each = MAX(tile_a_rows(p, t), t->bn) / unit_columns(p, t);
    int pieces = count_staged(p, t) * (chunk_columns(p, t) / unit_columns(p, t)), taken = 0;
    if (!pieces || !each || tile_splits(t) > 1 || tile_cluster(t) > 1 || t->groups == 1) return false;
    if (fetched_load(p, t) >= 0) taken = CEIL_DIV(units(p, t) * consumers, each), pieces--;
    return taken <= t->stages && (t->stages - taken) * each >= pieces * consumers;
}

/* Tiles of a row that are as wide as the others. */
static int64_t whole_tiles(const struct program *p, const struct tile *t)
{
    return CEIL_DIV(p->dim[2] - (int64_t)t->tail * t->tail_bn, tile_share(t));
}

int64_t program_states(const struct program *p, const struct tile *t)
{
    if (t->mainloop->streams) return t->blocks;
    return whole_tiles(p, t) + t->tail;
}

int64_t program_tile_column(const struct program *p, const struct tile *t, int64_t tile)
{
    int64_t whole = MIN(tile, whole_tiles(p, t));
    return whole * tile_share(t) + (tile - whole) * t->tail_bn;
}

/* Consumers take turns, no tile reaches past the end, and the epilogue has whole chunks. */
bool tail_fits(const struct program *p, const struct tile *t)
{
    int chunk = chunk_columns(p, t) * (program_is_gated(p) ? 2 : 1);
    int64_t rest = p->dim[2] - (int64_t)t->tail * t->tail_bn;
    bool alone = t->pingpong && t->groups == 2 && tile_splits(t) == 1 && tile_cluster(t) == 1 && !t->across;
    bool plain = p->dim[0] == 1 && t->mainloop->tma && !t->lends && t->blocks > 0;
    bool sizes = p->dim[1] <= TAIL_MOST_ROWS && p->dim[2] <= INT32_MAX;
    bool widths = t->bn % 64 == 0 && t->tail_bn % 64 == 0 && t->tail_bn % chunk == 0 && t->tail_bn < t->bn;
    bool halves = !program_is_gated(p) || p->b.k == 1;
    return alone && plain && sizes && widths && halves && rest > 0 && rest % t->bn == 0;
}

bool program_maps_tail(const struct program *p, const struct tile *t)
{
    return t->tail && p->b.k == 1 && !program_splits_heads(p, t);
}

int64_t program_blocks(const struct program *p, const struct tile *t)
{
    int64_t clusters = CEIL_DIV(p->dim[1], t->bm * tile_cluster_m(t)) *
                       CEIL_DIV(p->dim[2], t->bn * tile_cluster_n(t)) * p->dim[0];
    if (t->tail) return CEIL_DIV(p->dim[1], t->bm) * program_states(p, t);
    return clusters * tile_cluster(t) * tile_splits(t);
}

/* Whole octets, which the swizzle repeats in. */
int tile_a_rows(const struct program *p, const struct tile *t)
{
    bool few = t->bm == 64 && p->a.k == 1 && p->dim[1] < t->bm;
    return few ? (int)CEIL_DIV(p->dim[1], 8) * 8 : t->bm;
}

/* ---- For emitters ---- */

bool epilogue_layout_fill(struct epilogue_layout *l, struct arena *a, const struct program *p,
                          const struct tile *t)
{
    *l = (struct epilogue_layout){.level = ARENA_NEW(a, enum level, p->steps + 1),
                                  .crosses = ARENA_NEW(a, bool, p->steps + 1),
                                  .staged = ARENA_NEW(a, bool, p->steps + 1)};
    if (a->failed) return false;
    for (int i = 0; i < p->steps; i++) {
        l->level[i] = step_level(&p->step[i]);
        l->crosses[i] = step_crosses(p, i);
        l->staged[i] = p->step[i].kind == STEP_STORE && store_is_staged(p, t, i);
        l->staged_stores += l->staged[i];
    }
    l->fetched = fetched_load(p, t);
    l->unit = unit_columns(p, t);
    l->row_team = program_row_team(p);
    l->a_rows = tile_a_rows(p, t);
    l->states = program_states(p, t);
    l->splits_heads = program_splits_heads(p, t);
    l->maps_tail = program_maps_tail(p, t);
    l->steps_evenly = pair_steps_evenly(p);
    return true;
}
