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
    SUM_ROWS = 32, /* of a block, or one for each of its teams */
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

/* Adjacent columns of a thread, which it loads by 16 bytes or less. Rows of the result are dense, of fp32. */
static int width(const struct row_sums_spec *s)
{
    const struct tensor_use *x = &s->use[ROW_SUMS_X];
    int64_t n = x->stride[1] == 1 || s->columns == 1 ? dtype_elements(x->dtype, 16) : 1;
    while (n > 1 && (s->columns % n || x->offset % n || x->stride[0] % n)) n /= 2;
    return (int)n;
}

void schedule_row_sums(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct row_sums_spec *of = q->spec;
    int each = width(of), lanes = 1;
    (void)opt;
    while (lanes < WARP && lanes * each < of->columns) lanes *= 2;
    s->tile.bn = lanes * each;
    s->tile.bm = MAX(SUM_ROWS, SUM_THREADS / lanes);
    s->tile.groups = lanes;
    s->threads = SUM_THREADS;
    int64_t across = CEIL_DIV(of->columns, s->tile.bn), down = CEIL_DIV(of->rows, s->tile.bm);
    s->grid = MIN(mul_counts(across, down), MOST_BLOCKS);
}
