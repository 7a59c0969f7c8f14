/*
 * schedule_scan.c -- the kernel of a scan, which goes by chunks on tensor cores or token by token: a block of
 * this has some columns of one group of heads. How the states of a column are dealt to lanes depends on their
 * number alone, so that bits do not depend on how many tokens, sequences or columns there are; of many tokens
 * with a decay for each state a kernel with warps of three roles has the same bits.
 */
#include "scan.h"
#include "schedule.h"

enum {
    WARP = 32,
    EACH_OWN = 2,     /* with a decay for each, whose exponentials take longer than all else */
    HEAD_OWN = 4,     /* with one for a head: 16 bytes of fp32 */
    HEAD_COLUMNS = 4, /* of a lane: so many loads of states are under way */
    LEAST_THREADS = 64,
    MOST_THREADS = 384,
    MOST_SHARED = 24 << 10,
    MOST_TOKENS = 64,
    MOST_BLOCKS = 1 << 30,
    CHUNK = 64,       /* tokens that tensor cores take together, ... */
    LEAST_CHUNK = 32, /* ... where there are so many */
    SLICE = 64,       /* columns of a head, or half of them */
    STAGES = 3,       /* chunks that are there, or come, by wgmma, ... */
    GROUP = 128,      /* ... by three warpgroups */
    PIECE = 8,        /* elements of 16 bytes */
    TILE = 48,        /* tokens that warps of three roles take together, ... */
    LEAST_TILED = 96, /* ... where there are so many, with ... */
    TILED_STATES = 16,
    TILED_COLUMNS = 4, /* of a warp */
    MOST_WALKERS = 10,
    SERVERS = 8,     /* warps that load and store for the others */
    READY = 3,       /* tiles that are ready or have been walked, ... */
    RAW = READY + 2, /* ... as they are in memory; two more come */
    QUAD = 4,        /* tokens that a box has apart from each other */
    BOX = 128,       /* bytes of which its place is a multiple */
    SCHEDULERS = 4   /* of an SM, to which its warps are dealt */
};

static int power_above(int64_t n)
{
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

/* Columns of a block: as many as keep all SMs busy for the same time, or nearly. */
static int threads_of(const struct scan_spec *s, int lanes, int rows, const struct target *t)
{
    int64_t of_group = scan_columns(s) / MAX(s->groups, 1), least = 0;
    int best = LEAST_THREADS;
    for (int threads = LEAST_THREADS; threads <= MOST_THREADS; threads += WARP) {
        int columns = threads / lanes * rows;
        int64_t blocks = mul_counts(mul_counts(MAX(s->batch, 1), s->groups), CEIL_DIV(of_group, columns));
        int64_t price = mul_counts(CEIL_DIV(blocks, MAX(t->sms, 1)), columns);
        if (least && price > least) continue;
        best = threads, least = price;
    }
    return best;
}

static int64_t mean_tokens(const struct scan_spec *s)
{
    return scan_has(s, SCAN_STARTS) ? CEIL_DIV(s->tokens, MAX(s->batch, 1)) : s->tokens;
}

/* Tokens of a tile: those of a short sequence; else whole turns, if one fits. */
static int tokens_of(const struct scan_spec *s, int padded, int columns, int turn)
{
    int64_t tokens = mean_tokens(s);
    int most = MIN(MOST_TOKENS, MOST_SHARED / (8 * (padded + columns)));
    if (tokens < MIN(turn, most)) return (int)MAX(tokens, 1);
    return most > turn ? most / turn * turn : most;
}

/* Do rows come by 16 bytes? */
static bool comes_by_pieces(const struct tensor_use *u)
{
    return u->dtype == CODA_BF16 && u->offset % PIECE == 0 && u->batch % PIECE == 0 && u->time % PIECE == 0;
}

/* Are states and what is stored of y and read of the gate pairs at even places? */
static bool has_pairs(const struct scan_spec *s)
{
    static const int use[] = {SCAN_STATE, SCAN_AFTER, SCAN_GATE};
    for (int i = 0; i < ARRAY_SIZE(use); i++) {
        const struct tensor_use *u = &s->use[use[i]];
        if (u->buffer >= 0 && (u->offset % 2 || u->batch % 2 || u->time % 2)) return false;
    }
    return true;
}

/* Shared memory of ScanChunks. */
static int chunk_bytes(const struct scan_spec *s, int slice)
{
    int pitch = (int)s->states + PIECE, stage = 2 * CHUNK * (2 * pitch + slice + PIECE);
    return (int)CEIL_DIV(2 * stage + 2 * slice * pitch + 4 * (5 * CHUNK + 1), 16) * 16;
}

/* Shared memory of ScanChunksSm90, in bytes. */
static int wgmma_bytes(const struct scan_spec *s)
{
    int gate = scan_has(s, SCAN_GATE) ? 2 * CHUNK * SLICE : 1024;
    int stage = 2 * CHUNK * (2 * (int)s->states + SLICE) + gate, weights = 2 * 2 * CHUNK * CHUNK;
    int bytes = STAGES * stage + weights + STAGES * 16 * (int)CEIL_DIV(4 * (5 * CHUNK + 1), 16) + 8 * 10;
    return (int)CEIL_DIV(bytes, 1024) * 1024;
}
/* Do warpgroups take 64 columns of a head, whose states are one or two operands wide? */
static bool has_wgmma(const struct scan_spec *s, const struct target *t)
{
    return target_has(t, TARGET_WGMMA) && s->head_dim % SLICE == 0 && (s->states == 64 || s->states == 128) &&
           wgmma_bytes(s) <= t->shared_bytes;
}

/* The columns of a block that goes by chunks; 0: none can. */
static int slice_of(const struct scan_spec *s, const struct program *q, const struct target *t)
{
    bool good = !s->each && !q->invariant && t->mma && s->head_dim % (SLICE / 2) == 0 &&
                s->states % 32 == 0 && mean_tokens(s) >= LEAST_CHUNK && has_pairs(s);
    good = good && comes_by_pieces(&s->use[SCAN_X]) && comes_by_pieces(&s->use[SCAN_B]) &&
           comes_by_pieces(&s->use[SCAN_C]);
    bool wide = s->head_dim % SLICE == 0;
    bool fits = chunk_bytes(s, SLICE) <= t->portable_bytes;
    if (good && has_wgmma(s, t)) return SLICE;
    if (good && wide && mul_counts(s->batch, s->heads) >= t->sms && fits) return SLICE;
    return good && chunk_bytes(s, SLICE / 2) <= t->portable_bytes ? SLICE / 2 : 0;
}

static void schedule_chunks(struct schedule *s, const struct scan_spec *of, int slice, const struct target *t)
{
    bool wgmma = has_wgmma(of, t);
    s->tile.stages = wgmma ? STAGES : 2;
    s->threads = wgmma ? 3 * GROUP : WARP * CHUNK / 16;
    s->tile.bm = slice;
    s->tile.bk = CHUNK;
    s->shared_bytes = wgmma ? wgmma_bytes(of) : chunk_bytes(of, slice);
    int64_t blocks = mul_counts(mul_counts(MAX(of->batch, 1), of->heads), of->head_dim / slice);
    s->grid = MIN(blocks, MOST_BLOCKS);
}

/* ScanTiles::Shared. */
static int tile_bytes(const struct scan_spec *s, int columns)
{
    int dt = (int)dtype_bytes(s->use[SCAN_DT].dtype, 1), x = scan_has(s, SCAN_GATE) ? 2 : 1;
    int gate = x == 2 ? 0 : 2 * columns; /* one row of what is not there */
    int raw = TILE * (columns * (2 * x + dt) + 2 * 2 * TILED_STATES) + gate;
    raw = (int)CEIL_DIV(raw, BOX) * BOX;
    int gap = 4 * (48 - columns * (TILE + 1) % 32); /* between d and d x: ScanWalkers::between */
    int ready = 2 * 4 * columns * (TILE + 1) + gap + 2 * 4 * TILE * TILED_STATES + 3 * 8;
    int relay = MAX(columns / TILED_COLUMNS % SCHEDULERS, 1) * (8 + 8 * WARP);
    return (int)CEIL_DIV(RAW * (raw + 8) + READY * ready + relay, BOX) * BOX;
}

/* Do tensor maps describe rows of whole tiles? A packed sequence begins at any row. */
static bool has_tile_maps(const struct scan_spec *s, const struct target *t)
{
    return target_has(t, TARGET_TMA) && !scan_has(s, SCAN_STARTS);
}

/* The columns of a block of warps of three roles; 0: none can. */
static int tiled_columns(const struct scan_spec *s, const struct target *t)
{
    static const int use[] = {SCAN_X, SCAN_DT, SCAN_B, SCAN_C, SCAN_GATE, SCAN_Y};
    int64_t of_group = s->heads / MAX(s->groups, 1), least = 0;
    bool good = s->each && s->head_dim == 1 && s->states == TILED_STATES && t->mma && of_group % PIECE == 0 &&
                dtype_bytes(s->use[SCAN_X].dtype, 1) == 2 && mean_tokens(s) >= LEAST_TILED;
    for (int i = 0; i < ARRAY_SIZE(use); i++) {
        const struct tensor_use *u = &s->use[use[i]];
        good = good &&
               (u->buffer < 0 || (u->offset % PIECE == 0 && u->batch % PIECE == 0 && u->time % PIECE == 0));
    }
    int best = 0, most_bytes = t->features ? t->shared_bytes : t->portable_bytes;
    for (int walkers = 2; good && walkers <= MOST_WALKERS; walkers += 2) {
        int columns = walkers * TILED_COLUMNS;
        int64_t blocks = mul_counts(mul_counts(MAX(s->batch, 1), s->groups), CEIL_DIV(of_group, columns));
        int64_t warps = mul_counts(CEIL_DIV(blocks, MAX(t->sms, 1)), walkers);
        int64_t price = CEIL_DIV(warps, SCHEDULERS);
        if ((least && price > least) || tile_bytes(s, columns) > most_bytes) continue;
        best = columns, least = price;
    }
    return best;
}

static void schedule_tiles(struct schedule *s, const struct scan_spec *of, int columns,
                           const struct target *t)
{
    s->threads = WARP * (columns / TILED_COLUMNS + SERVERS + columns / TILED_COLUMNS % SCHEDULERS);
    s->tile.bm = columns;
    s->tile.bn = has_tile_maps(of, t) ? QUAD : 0;
    s->tile.bk = TILE;
    s->tile.stages = RAW;
    s->shared_bytes = tile_bytes(of, columns);
    int64_t sequences = scan_has(of, SCAN_STARTS) ? MAX(of->batch, 1) : of->batch;
    s->grid = MIN(mul_counts(mul_counts(sequences, of->groups), CEIL_DIV(of->heads / of->groups, columns)),
                  MOST_BLOCKS);
}

/* Has each sequence one token, and each column decays of its own? Its kernel makes one trip to memory. */
static bool is_token(const struct scan_spec *s) { return s->tokens == 1 && s->each && s->head_dim == 1; }

static void schedule_steps(struct schedule *s, const struct scan_spec *of, const struct target *t)
{
    int lanes = MIN(WARP, power_above(CEIL_DIV(of->states, of->each ? EACH_OWN : HEAD_OWN)));
    int own = power_above(CEIL_DIV(of->states, lanes)), rows = of->each ? 1 : MIN(lanes, HEAD_COLUMNS);
    s->threads = threads_of(of, lanes, rows, t);
    s->tile.bm = s->threads / lanes * rows;
    s->tile.bn = rows;
    s->tile.bk = tokens_of(of, own * lanes, s->tile.bm, lanes / rows);
    s->tile.groups = lanes;
    s->tile.stages = is_token(of);
    int64_t sequences = scan_has(of, SCAN_STARTS) ? MAX(of->batch, 1) : of->batch;
    int64_t tiles = mul_counts(of->groups, CEIL_DIV(scan_columns(of) / of->groups, s->tile.bm));
    bool some = scan_has(of, SCAN_AFTER) || of->tokens;
    s->grid = some ? MIN(mul_counts(sequences, tiles), MOST_BLOCKS) : 0;
}

void schedule_scan(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct scan_spec *of = q->spec;
    int slice = slice_of(of, q, &opt->target), columns = tiled_columns(of, &opt->target);
    if (slice) schedule_chunks(s, of, slice, &opt->target);
    else if (columns) schedule_tiles(s, of, columns, &opt->target);
    else schedule_steps(s, of, &opt->target);
}
