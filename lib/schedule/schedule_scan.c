/*
 * schedule_scan.c -- the kernel of a scan: a block has some columns of one group of heads. How the states of
 * a column are dealt to lanes depends on their number alone, so that bits do not depend on how many tokens,
 * sequences or columns there are.
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
    MOST_BLOCKS = 1 << 30
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

/* Tokens of a tile: those of a short sequence; else whole turns, if one fits. */
static int tokens_of(const struct scan_spec *s, int padded, int columns, int turn)
{
    int64_t tokens = scan_has(s, SCAN_STARTS) ? CEIL_DIV(s->tokens, MAX(s->batch, 1)) : s->tokens;
    int most = MIN(MOST_TOKENS, MOST_SHARED / (8 * (padded + columns)));
    if (tokens < MIN(turn, most)) return (int)MAX(tokens, 1);
    return most > turn ? most / turn * turn : most;
}

void schedule_scan(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct scan_spec *of = q->spec;
    int lanes = MIN(WARP, power_above(CEIL_DIV(of->states, of->each ? EACH_OWN : HEAD_OWN)));
    int own = power_above(CEIL_DIV(of->states, lanes)), rows = of->each ? 1 : MIN(lanes, HEAD_COLUMNS);
    s->threads = threads_of(of, lanes, rows, &opt->target);
    s->tile.bm = s->threads / lanes * rows;
    s->tile.bn = rows;
    s->tile.bk = tokens_of(of, own * lanes, s->tile.bm, lanes / rows);
    s->tile.groups = lanes;
    int64_t sequences = scan_has(of, SCAN_STARTS) ? MAX(of->batch, 1) : of->batch;
    int64_t tiles = mul_counts(of->groups, CEIL_DIV(scan_columns(of) / of->groups, s->tile.bm));
    bool some = scan_has(of, SCAN_AFTER) || of->tokens;
    s->grid = some ? MIN(mul_counts(sequences, tiles), MOST_BLOCKS) : 0;
    s->early = !q->prepare && s->grid && target_has(&opt->target, TARGET_PDL);
}
