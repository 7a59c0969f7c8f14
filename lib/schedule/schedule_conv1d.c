/* schedule_conv1d.c -- the kernel of a causal convolution: a thread has adjacent columns, a block those of
 * some rows, or the first ones of a sequence. */
#include "schedule.h"

enum {
    PIECE_BYTES = 16,
    MOST_WEIGHTS = 16, /* of a thread, in registers */
    WARP = 32,
    MOST_THREADS = 128,
    MOST_ROWS = 256, /* of a block, whose first ones are read twice */
    LEAST_ROWS = 8,
    RESIDENTS = 5, /* blocks of an SM */
    MOST_WAVES = 64,
    MOST_BLOCKS = 1 << 30
};

/* Adjacent columns that one load brings of all that has rows; buffers begin at multiples of 16 bytes. */
static int width(const struct conv1d_spec *s)
{
    static const int of[] = {CONV1D_X, CONV1D_BEFORE, CONV1D_Y, CONV1D_AFTER};
    int n = PIECE_BYTES / (int)dtype_bytes(s->use[CONV1D_X].dtype, 1);
    while (n > 1 && n * s->taps > MOST_WEIGHTS) n /= 2;
    for (int i = 0; i < ARRAY_SIZE(of); i++) {
        const struct tensor_use *u = &s->use[of[i]];
        while (u->buffer >= 0 && n > 1 &&
               (s->columns % n || u->offset % n || u->stride[0] % n || u->stride[1] % n))
            n /= 2;
    }
    return n;
}

/* Rows behind the first ones of each sequence, or all that are packed. */
static int64_t rows_behind(const struct conv1d_spec *s)
{
    if (s->use[CONV1D_Y].buffer < 0) return 0;
    return s->use[CONV1D_STARTS].buffer >= 0 ? s->time : MAX(s->time - (s->taps - 1), 0);
}

/* Rows of a block: in so few waves as MOST_ROWS allows, which end together. */
static int rows_of(int64_t rows, int64_t streams, int64_t first, int64_t slots)
{
    for (int wave = 1; wave <= MOST_WAVES; wave++) {
        int64_t parts = (wave * slots - first) / MAX(streams, 1);
        int64_t each = parts > 0 ? CEIL_DIV(rows, parts) : rows;
        if (each <= MOST_ROWS) return (int)MAX(each, LEAST_ROWS);
    }
    return MOST_ROWS;
}

void schedule_conv1d(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct conv1d_spec *of = q->spec;
    int each = width(of);
    int64_t lanes = CEIL_DIV(of->columns, each), rows = rows_behind(of), chunks, first = of->sequences;
    int64_t streams = of->use[CONV1D_STARTS].buffer >= 0 ? 1 : of->sequences;
    s->threads = (int)MIN(MAX(CEIL_DIV(lanes, WARP) * WARP, WARP), MOST_THREADS);
    s->tile.bn = s->threads * each;
    s->residents = RESIDENTS;
    chunks = CEIL_DIV(of->columns, s->tile.bn);
    s->tile.bm = rows_of(rows, mul_counts(chunks, streams), mul_counts(chunks, of->sequences),
                         (int64_t)RESIDENTS * MAX(opt->target.sms, 1));
    s->tile.blocks = (int)MIN(CEIL_DIV(rows, s->tile.bm), MOST_BLOCKS);
    if (of->edges) { /* a block has the first rows of a period */
        s->tile.bm = EDGE_PERIOD, first = 0;
        s->tile.blocks = (int)MIN(CEIL_DIV(of->time, EDGE_PERIOD), MOST_BLOCKS);
    }
    int64_t items = add_counts(first, mul_counts(streams, s->tile.blocks));
    s->grid = MIN(mul_counts(chunks, items), MOST_BLOCKS);
}
