/* util_row_sums.h -- graphs of rows added by id, and what plain loops say of them. */
#ifndef UTIL_ROW_SUMS_H
#define UTIL_ROW_SUMS_H

#include "util_run.h"

struct row_sums_case {
    const char *name;
    coda_dtype dtype, ids;
    int64_t batch, tokens, columns, rows; /* of x; batch 0: it has rank 2 */
    enum {
        IDS_ANY,      /* of the rows and a few beside, with some that int32 has not if they may be */
        IDS_ONE,      /* all name the last row */
        IDS_NONE,     /* no row */
        IDS_SKEWED,   /* most name a few rows */
        IDS_SEGMENTS, /* ascending */
        IDS_DIFFERENT,
        IDS_ENDS /* the first and the last row, and what is beside them */
    } which;
    enum { ROWS_DENSE, ROWS_APART, ROWS_TURNED, COLUMNS_APART } how; /* x and ids lie in memory */
    bool add;                                                        /* by coda_output_add */
};
extern const struct row_sums_case row_sums_cases[];
extern const int row_sums_case_count;
/* A small one of any kind. */
struct row_sums_case row_sums_draw(uint64_t seed);

graph *row_sums_graph(const struct row_sums_case *c);
/* As random_args, with the case's ids. */
void **row_sums_args(const struct row_sums_case *c, const graph *g, uint64_t seed, bool evaluate);
/* Elements whose bits are not those of float sums of 32 rows, added in their order, as coda.h has it; of
 * evaluate those that differ from double sums. */
int64_t row_sums_differences(const struct row_sums_case *c, const graph *g, void **args, bool evaluate);

/* A run that adds to rows of -0, of which ids name some: the others stay -0, which 0 added to them would not.
 * By a plan of row_sums_graph(&row_sums_untouched), what it begins with, and what is wrong with what it
 * leaves. */
extern const struct row_sums_case row_sums_untouched;
void row_sums_begin_untouched(float *x, int32_t *ids, float *sums);
int row_sums_touched(const float *sums);

#endif
