/* schedule_row_sums.c -- kernels that add rows by id. Of those that sort, a block has a range of ids, and
 * reads all: the more ids there are, the longer the ranges. Of those that add, a block has either a share of
 * the tokens of long rows and a slice of columns, or some rows and a chunk of columns. */
#include "row_sums.h"
#include "schedule.h"

enum {
    WARP = 32,
    SORT_BLOCKS = 128,
    SORT_WARPS = 16,    /* of a block; but each has a count of each id of the range, ... */
    SORT_COUNTS = 8192, /* ... and so many counts have room */
    LONGEST_RANGE = 1024,
    SUM_THREADS = 256,
    SUM_LANES = 256,   /* of a team, at most: it writes whole rows, or much of one */
    SUM_COLUMNS = 4,   /* of a thread: 16 bytes of the result */
    SUM_ROWS = 16,     /* of a team, */
    SUM_BLOCKS = 1024, /* or fewer, so that there are so many blocks */
    LONG_SLICE = 32,   /* bytes of a row of x, a sector of L2: many blocks share a long sum */
    LONG_BLOCKS = 512,
    LONG_PIECES = 32, /* of a block, at least */
    MOST_BLOCKS = 1 << 30
};

void schedule_sort_ids(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct sort_ids_spec *of = q->spec;
    int64_t range = 1;
    (void)opt;
    while (range < LONGEST_RANGE && range * SORT_BLOCKS < of->rows) range *= 2;
    s->tile.bm = (int)range;
    s->threads = WARP * (int)MIN(SORT_WARPS, SORT_COUNTS / range);
    s->grid = CEIL_DIV(of->rows, range);
}

/* Adjacent columns of a thread, which one load brings. Rows of the result are dense. */
static int width(const struct row_sums_spec *s)
{
    const struct tensor_use *x = &s->use[ROW_SUMS_X];
    int n = x->stride[1] == 1 || s->columns == 1 ? SUM_COLUMNS : 1;
    while (n > 1 && (s->columns % n || x->offset % n || x->stride[0] % n)) n /= 2;
    return n;
}

/* Lanes that `columns` of `each` keep busy, a power of 2 up to `most`. */
static int lanes_of(int64_t columns, int each, int most)
{
    int lanes = 1;
    while (lanes < most && lanes * each < columns) lanes *= 2;
    return lanes;
}

/* Rows of a block: several for each team, but fewer where there are few blocks. The bits do not depend on it.
 * */
static int rows_at_once(int64_t rows, int64_t across, int teams)
{
    int n = MIN(SUM_ROWS * teams, ROW_SUMS_MOST_ROWS), least = MIN(teams, n);
    while (n > least && mul_counts(CEIL_DIV(rows, n), across) < SUM_BLOCKS) n /= 2;
    return n;
}

/* Shares of the tokens, which long rows have, where there can be one. */
static int shares(int64_t tokens, int64_t across)
{
    int64_t most = CEIL_DIV(CEIL_DIV(tokens, ROW_SUMS_PIECE), LONG_PIECES);
    return tokens > ROW_SUMS_PIECE ? (int)MIN(MAX(LONG_BLOCKS / across, 1), most) : 0;
}

void schedule_row_sums(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct row_sums_spec *of = q->spec;
    int each = width(of), lanes = lanes_of(of->columns, each, SUM_LANES);
    int slice = LONG_SLICE / (int)dtype_bytes(of->use[ROW_SUMS_X].dtype, 1);
    (void)opt;
    s->tile.bn = lanes * each;
    s->tile.bk = lanes_of(of->columns, each, slice / each) * each;
    s->tile.groups = lanes;
    s->threads = SUM_THREADS;
    int64_t across = CEIL_DIV(of->columns, s->tile.bn), slices = CEIL_DIV(of->columns, s->tile.bk);
    s->tile.bm = rows_at_once(of->rows, across, SUM_THREADS / lanes);
    s->tile.blocks = slices ? shares(of->tokens, slices) : 0;
    int64_t sums = mul_counts(across, CEIL_DIV(of->rows, s->tile.bm));
    s->grid = sums ? MIN(add_counts(sums, mul_counts(slices, s->tile.blocks)), MOST_BLOCKS) : 0;
}
