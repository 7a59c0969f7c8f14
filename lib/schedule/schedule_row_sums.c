/* schedule_row_sums.c -- kernels that add rows by id. Of those that sort, a block has a range of ids, and
 * reads all: the more ids there are, the longer the ranges. Of those that add, a block has some rows and
 * columns. */
#include "row_sums.h"
#include "schedule.h"

enum {
    SHORT_RANGE = 32, /* ids of a block, ... */
    RANGE = 256,
    LONG_RANGE = 2048,
    SHORT_RANGE_MOST = 4096, /* ... up to so many in all */
    RANGE_MOST = 1 << 16,
    SORT_WARPS = 16,
    LONG_RANGE_WARPS = 4, /* each with counts of its own */
    SUM_THREADS = 256,
    SUM_LANES = 16,  /* of a team, which has 64 columns then: many blocks share a long sum, ... */
    SUM_COLUMNS = 4, /* ... and of a thread: 16 bytes of the result */
    SUM_BLOCKS = 1024,
    FEWEST_ROWS = 8,
    WARP = 32,
    MOST_BLOCKS = 1 << 30
};

void schedule_sort_ids(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct sort_ids_spec *of = q->spec;
    (void)opt;
    s->tile.bm = of->rows <= SHORT_RANGE_MOST ? SHORT_RANGE : of->rows <= RANGE_MOST ? RANGE : LONG_RANGE;
    s->threads = WARP * (s->tile.bm == LONG_RANGE ? LONG_RANGE_WARPS : SORT_WARPS);
    s->grid = CEIL_DIV(of->rows, s->tile.bm);
}

/* Adjacent columns of a thread, which one load brings. Rows of the result are dense. */
static int width(const struct row_sums_spec *s)
{
    const struct tensor_use *x = &s->use[ROW_SUMS_X];
    int n = x->stride[1] == 1 || s->columns == 1 ? SUM_COLUMNS : 1;
    while (n > 1 && (s->columns % n || x->offset % n || x->stride[0] % n)) n /= 2;
    return n;
}

/* Rows of a block: several for each team, but fewer where there are few blocks. The bits do not depend on it.
 * */
static int rows_at_once(int64_t rows, int64_t across)
{
    int n = ROW_SUMS_MOST_ROWS;
    while (n > FEWEST_ROWS && mul_counts(CEIL_DIV(rows, n), across) < SUM_BLOCKS) n /= 2;
    return n;
}

void schedule_row_sums(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct row_sums_spec *of = q->spec;
    int each = width(of), lanes = 1;
    (void)opt;
    while (lanes < SUM_LANES && lanes * each < of->columns) lanes *= 2;
    s->tile.bn = lanes * each;
    s->tile.groups = lanes;
    s->threads = SUM_THREADS;
    int64_t across = CEIL_DIV(of->columns, s->tile.bn);
    s->tile.bm = rows_at_once(of->rows, across);
    s->grid = MIN(mul_counts(across, CEIL_DIV(of->rows, s->tile.bm)), MOST_BLOCKS);
}
