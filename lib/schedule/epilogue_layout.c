/* epilogue_layout.c -- what the steps of a GEMM need: levels, lanes, staging. */
#include "epilogue_layout.h"

#include <limits.h>

enum {
    FETCH_BARRIERS = 64,   /* bytes, as in fetch.cuh                                                       */
    FETCH_COLUMNS = 128,   /* in flight, for each consumer                                                 */
    FETCH_FEW_COLUMNS = 64, /* for each of three                                                           */
    STAGE_LIMIT = 64 << 10,
    FEW_ROWS = 16,
    SHARED_REGISTERS = 64, /* of a thread for A, where two skinny blocks share an SM                       */
    TAIL_MOST_ROWS = 1 << 20, /* dealing a tail takes time for each band                                   */
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
    return s->kind == STEP_LOAD && p->port[s->port].kind == PORT_GATHER && p->port[s->port].index == step;
}

bool step_crosses(const struct program *p, int step)
{
    enum level level = step_level(&p->step[step]);
    if (level == LEVEL_SLOT || !step_has_value(p, &p->step[step])) return false;
    for (int i = step + 1; i < p->steps; i++)
        if (step_level(&p->step[i]) == LEVEL_SLOT && reads(p, &p->step[i], step)) return true;
    return false;
}

/* Rows come in sixteens, which start at multiples of 16 in each batch. */
bool rope_steps_evenly(const struct program *p)
{
    int64_t period = MAX(p->rope.period, 1);
    bool whole = p->dim[0] <= 1 || p->dim[1] % period == 0; /* a position is that in the batch */
    bool sixteens = period % 16 == 0 && (p->dim[0] <= 1 || p->dim[1] % 16 == 0);
    return rope_counts_rows(p) && (sixteens || (whole && period >= p->dim[1]));
}

int program_row_team(const struct program *p)
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

int tile_splits(const struct tile *t) { return MAX(t->splits, 1); }

int tile_share(const struct tile *t) { return t->scattered ? t->bn / tile_splits(t) : t->bn; }

/* Columns of the output that a block drains of a tile. */
static int out_columns(const struct program *p)
{
    int share = tile_share(&p->tile);
    return program_is_gated(p) ? share / 2 : share;
}

bool program_splits_heads(const struct program *p)
{
    return p->pair == PAIR_ROPE && p->rope.half && tile_share(&p->tile) % p->rope.head_dim;
}

/* Output columns that are finished together; as in columns.cuh. 0: any. */
static int rotated_columns(const struct program *p)
{
    if (p->pair != PAIR_ROPE || !p->rope.half) return 0;
    return program_splits_heads(p) ? 64 : common_multiple((int)p->rope.head_dim, 64);
}

int unit_columns(const struct program *p)
{
    if (rotated_columns(p)) return program_splits_heads(p) ? 32 : 64;
    bool wide = p->tile.bn > 64 || p->tile.groups > 1; /* else what is not 64 columns is not staged    */
    return wide && (out_columns(p) % 64 || p->tile.groups > 2) ? 32 : 64;
}
static int chunk_columns(const struct program *p)
{
    return rotated_columns(p) ? rotated_columns(p) : unit_columns(p);
}

/* What TMA moves: 16-bit tiles of the output's width and 16-byte pitches. */
static bool is_movable(const struct program *p, const struct step *s)
{
    const struct port *port = &p->port[s->port];
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

static int group_rows(const struct tile *t) { return t->pingpong ? t->bm : t->bm / t->groups; }

/* Bytes of staging for one store, 64 rows; as in epilogue.cuh but for the ring. */
static int chunk_bytes(const struct program *p) { return p->tile.groups * chunk_columns(p) * 128; }

static bool program_stages(const struct program *p)
{
    return p->tile.mainloop == MAINLOOP_SM90 && out_columns(p) % chunk_columns(p) == 0;
}

/* The first stageable store decides the dtype; as many as fit follow it. */
bool store_is_staged(const struct program *p, int step)
{
    int before = 0;
    coda_dtype first = p->port[p->step[step].port].dtype;
    if (!program_stages(p) || !is_stageable(p, &p->step[step])) return false;
    for (int i = 0; i < step; i++)
        if (is_stageable(p, &p->step[i])) {
            coda_dtype t = p->port[p->step[i].port].dtype;
            if (!before) first = t;
            before += t == first;
        }
    bool same = p->port[p->step[step].port].dtype == first;
    return same && before < MOST_STAGED && (before + 1) * chunk_bytes(p) <= STAGE_LIMIT;
}

int count_staged(const struct program *p)
{
    int n = 0;
    for (int i = 0; i < p->steps; i++) n += p->step[i].kind == STEP_STORE && store_is_staged(p, i);
    return n;
}

int fetched_load(const struct program *p)
{
    bool narrow = tile_is_narrow(&p->tile);
    if (narrow || !program_stages(p) || chunk_columns(p) != unit_columns(p)) return -1;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_LOAD && p->port[s->port].kind == PORT_LOAD && is_movable(p, s)) return i;
    }
    return -1;
}

/* ---- Shared memory, as the mainloops' Shared structs have it ---- */

static int values_bytes(const struct program *p, int rows, int columns)
{
    int row = rope_counts_rows(p), col = 0, half = 0;
    for (int i = 0; i < p->steps; i++) {
        enum level level = step_level(&p->step[i]);
        if (p->step[i].kind == STEP_ROPE) col += rope_steps_evenly(p) ? 4 : 2;
        if (!step_crosses(p, i)) continue;
        row += level == LEVEL_ROW;
        col += level == LEVEL_COL;
        half += level == LEVEL_HALF;
    }
    int bytes = 4 * (row * rows + col * columns + half * columns / 2);
    int empty = !row * rows + !col * columns + !half * columns / 2;
    return bytes + empty + 16;
}

/* Quads of columns are shared out; the sums of each warp, or of a unit and then of all. */
static int stream_shared_bytes(const struct program *p)
{
    const struct tile *t = &p->tile;
    int rows = (int)p->dim[1], columns = (int)CEIL_DIV(p->dim[2] / 4, t->blocks) * 4, state = 1;
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_REDUCE) state += p->step[i].prim->state;
    int warps = 4 * t->groups, slot = 4 * t->bk, sums = warps * (rows * columns + state) * 4;
    if (t->mainloop == MAINLOOP_SKINNY) {
        slot = 8 * (2 * t->bk + 64);
        sums = (2 * warps * CEIL_DIV(rows, 8) * 64 + rows * columns * tile_splits(t)) * 4;
    }
    return t->stages * (slot + 16) + sums + values_bytes(p, rows, columns) + 168;
}

/* Epilogue subtiles, 64 rows of a chunk of columns, that one consumer warpgroup drains of a tile. */
static int units(const struct program *p)
{
    return out_columns(p) / chunk_columns(p) * (group_rows(&p->tile) / 64);
}

static int stage_bytes(const struct program *p)
{
    int columns = p->tile.groups > 2 ? FETCH_FEW_COLUMNS : FETCH_COLUMNS;
    int staged = count_staged(p), fetched = fetched_load(p) >= 0 ? columns / unit_columns(p) : 0;
    bool two = staged * chunk_columns(p) <= 64 && units(p) > 1;
    return p->tile.lends ? 0 : ((two ? 2 : 1) * staged + fetched) * chunk_bytes(p);
}

/* As lent.cuh counts: the fetched units of all consumers take the first slots; the others must have room for
 * what each consumer stores of one unit, but for the store that overwrites the fetched one. */
bool program_may_lend(const struct program *p)
{
    const struct tile *t = &p->tile;
    int consumers = t->pingpong ? 1 : t->groups, each = MAX(tile_a_rows(p), t->bn) / unit_columns(p);
    int pieces = count_staged(p) * (chunk_columns(p) / unit_columns(p)), taken = 0;
    if (!pieces || !each || tile_splits(t) > 1 || tile_cluster(t) > 1 || t->groups == 1) return false;
    if (fetched_load(p) >= 0) taken = CEIL_DIV(units(p) * consumers, each), pieces--;
    return taken <= t->stages && (t->stages - taken) * each >= pieces * consumers;
}

/* Tiles of a row that are as wide as the others. */
static int64_t whole_tiles(const struct program *p)
{
    const struct tile *t = &p->tile;
    return CEIL_DIV(p->dim[2] - (int64_t)t->tail * t->tail_bn, tile_share(t));
}

int64_t program_states(const struct program *p)
{
    if (tile_streams(&p->tile)) return p->tile.blocks;
    return whole_tiles(p) + p->tile.tail;
}

int64_t program_tile_column(const struct program *p, int64_t tile)
{
    int64_t whole = MIN(tile, whole_tiles(p));
    return whole * tile_share(&p->tile) + (tile - whole) * p->tile.tail_bn;
}

/* Consumers take turns, no tile reaches past the end, and the epilogue has whole chunks. */
bool tail_fits(const struct program *p)
{
    const struct tile *t = &p->tile;
    int chunk = chunk_columns(p) * (program_is_gated(p) ? 2 : 1);
    int64_t rest = p->dim[2] - (int64_t)t->tail * t->tail_bn;
    bool alone = t->pingpong && t->groups == 2 && tile_splits(t) == 1 && tile_cluster(t) == 1 && !t->across;
    bool plain = p->dim[0] == 1 && t->mainloop == MAINLOOP_SM90 && !t->lends && t->blocks > 0;
    bool sizes = p->dim[1] <= TAIL_MOST_ROWS && p->dim[2] <= INT32_MAX;
    bool widths = t->bn % 64 == 0 && t->tail_bn % 64 == 0 && t->tail_bn % chunk == 0 && t->tail_bn < t->bn;
    bool halves = !program_is_gated(p) || p->b.k == 1;
    return alone && plain && sizes && widths && halves && rest > 0 && rest % t->bn == 0;
}

bool program_maps_tail(const struct program *p)
{
    return p->tile.tail && p->b.k == 1 && !program_splits_heads(p);
}

int tile_cluster_m(const struct tile *t) { return MAX(t->cluster_m, 1); }
int tile_cluster_n(const struct tile *t) { return MAX(t->cluster_n, 1); }
int tile_cluster(const struct tile *t) { return tile_cluster_m(t) * tile_cluster_n(t); }

int64_t program_blocks(const struct program *p)
{
    const struct tile *t = &p->tile;
    int64_t clusters = CEIL_DIV(p->dim[1], t->bm * tile_cluster_m(t)) *
                       CEIL_DIV(p->dim[2], t->bn * tile_cluster_n(t)) * p->dim[0];
    if (t->tail) return CEIL_DIV(p->dim[1], t->bm) * program_states(p);
    return clusters * tile_cluster(t) * tile_splits(t);
}

bool tile_streams(const struct tile *t)
{
    return t->mainloop == MAINLOOP_GEMV || t->mainloop == MAINLOOP_SKINNY;
}

bool tile_is_narrow(const struct tile *t) { return t->mainloop == MAINLOOP_SM90 && t->groups == 1; }

/* A skinny product has all of A in registers: 32 for 8 rows of 8 k. */
bool program_shares_sm(const struct program *p)
{
    const struct tile *t = &p->tile;
    int64_t eights = CEIL_DIV(p->dim[1], 8) * CEIL_DIV(p->k, 8 * tile_splits(t));
    if (t->mainloop == MAINLOOP_SKINNY) return 32 * eights <= 128 * t->groups * SHARED_REGISTERS;
    return t->mainloop != MAINLOOP_SM90 || tile_is_narrow(t);
}

bool program_is_early(const struct program *p)
{
    return tile_streams(&p->tile) && p->b.steady && !p->prepare;
}

/* Whole octets, which the swizzle repeats in. */
int tile_a_rows(const struct program *p)
{
    bool few = p->tile.bm == 64 && p->a.k == 1 && p->dim[1] < p->tile.bm;
    return few ? (int)CEIL_DIV(p->dim[1], 8) * 8 : p->tile.bm;
}

int tile_shared_bytes(const struct program *p)
{
    const struct tile *t = &p->tile;
    if (tile_streams(t)) return CEIL_DIV(stream_shared_bytes(p), 1024) * 1024;
    int bytes = t->groups * values_bytes(p, group_rows(t), tile_share(t));
    if (t->mainloop == MAINLOOP_SIMT) return bytes + 4 * t->bk * (t->bm + t->bn + 4);
    bytes += t->stages * ((tile_a_rows(p) + t->bn) * 128 + 16) + MAX(stage_bytes(p), 16 * t->groups);
    bytes += 16 + 8 * t->scattered + t->groups * FETCH_BARRIERS;
    return CEIL_DIV(bytes, 1024) * 1024;
}
