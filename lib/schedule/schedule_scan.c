/*
 * schedule_scan.c -- the kernel of a scan, which goes by chunks on tensor cores or token by token: a block of
 * this has some columns of one group of heads. How the states of a column are dealt to lanes depends on their
 * number alone, so that bits do not depend on how many tokens, sequences or columns there are.
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
    SLICE = 64,       /* columns of a head, or half of them, if there are few heads */
    PIECE = 8         /* elements of 16 bytes */
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

/* ScanChunks::Shared. */
static int chunk_bytes(const struct scan_spec *s, int slice)
{
    int pitch = (int)s->states + PIECE;
    return 2 * (2 * CHUNK * (2 * pitch + slice + PIECE) + slice * pitch) + 4 * 3 * CHUNK;
}

/* The columns of a block that goes by chunks; 0: none can. */
static int slice_of(const struct scan_spec *s, const struct program *q, const struct target *t)
{
    int slice = s->head_dim % SLICE == 0 && mul_counts(s->batch, s->heads) >= t->sms ? SLICE : SLICE / 2;
    bool good = !s->each && !q->invariant && t->mma && s->head_dim % slice == 0 &&
                s->states % (slice == SLICE ? 16 : 32) == 0 && mean_tokens(s) >= LEAST_CHUNK && has_pairs(s);
    good = good && comes_by_pieces(&s->use[SCAN_X]) && comes_by_pieces(&s->use[SCAN_B]) &&
           comes_by_pieces(&s->use[SCAN_C]);
    return good && chunk_bytes(s, slice) <= t->portable_bytes ? slice : 0;
}

static void schedule_chunks(struct schedule *s, const struct scan_spec *of, int slice)
{
    s->threads = WARP * CHUNK / 16;
    s->tile.bm = slice;
    s->tile.bk = CHUNK;
    s->shared_bytes = chunk_bytes(of, slice);
    int64_t blocks = mul_counts(mul_counts(MAX(of->batch, 1), of->heads), of->head_dim / slice);
    s->grid = MIN(blocks, MOST_BLOCKS);
}

static void schedule_steps(struct schedule *s, const struct scan_spec *of, const struct target *t)
{
    int lanes = MIN(WARP, power_above(CEIL_DIV(of->states, of->each ? EACH_OWN : HEAD_OWN)));
    int own = power_above(CEIL_DIV(of->states, lanes)), rows = of->each ? 1 : MIN(lanes, HEAD_COLUMNS);
    s->threads = threads_of(of, lanes, rows, t);
    s->tile.bm = s->threads / lanes * rows;
    s->tile.bn = rows;
    s->tile.bk = tokens_of(of, own * lanes, s->tile.bm, lanes / rows);
    s->tile.groups = lanes;
    int64_t sequences = scan_has(of, SCAN_STARTS) ? MAX(of->batch, 1) : of->batch;
    int64_t tiles = mul_counts(of->groups, CEIL_DIV(scan_columns(of) / of->groups, s->tile.bm));
    bool some = scan_has(of, SCAN_AFTER) || of->tokens;
    s->grid = some ? MIN(mul_counts(sequences, tiles), MOST_BLOCKS) : 0;
}

void schedule_scan(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct scan_spec *of = q->spec;
    int slice = slice_of(of, q, &opt->target);
    if (slice) schedule_chunks(s, of, slice);
    else schedule_steps(s, of, &opt->target);
    s->early = !q->prepare && s->grid && target_has(&opt->target, TARGET_PDL);
}
