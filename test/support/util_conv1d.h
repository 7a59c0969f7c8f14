/* util_conv1d.h -- causal convolutions, and what plain loops say of them. */
#ifndef UTIL_CONV1D_H
#define UTIL_CONV1D_H

#include "util_run.h"

struct conv1d_case {
    const char *name;
    coda_dtype dtype, state;                /* of x; of what comes before, 0: zeros */
    int64_t sequences, time, columns, taps; /* sequences 0: one, without a dimension for it */
    bool bias, packed, y, after;            /* packed: time is of all; y, after: they are outputs */
    enum {
        X_DENSE,
        X_RANGE,
        X_TURNED,
        X_PRODUCT,
        X_PART
    } how;         /* x is a tensor, some of its columns, or lies column by column; a product, or some of its
                      columns, the others of which are an output, too */
    bool mapped;   /* y passes through softplus, which is not 0 at 0 */
    bool in_place; /* what comes before is a state, to which after is assigned */
};
extern const struct conv1d_case conv1d_cases[];
extern const int conv1d_case_count;
/* Of so many rows of a product that its epilogue computes most of them. */
extern const struct conv1d_case conv1d_products[];
extern const int conv1d_product_count;
struct conv1d_case conv1d_draw(uint64_t seed);

graph *conv1d_graph(const struct conv1d_case *c);
/* What is before the sequences, as dense doubles, which free() takes; NULL: zeros. */
double *conv1d_before(const struct conv1d_case *c, const graph *g, void **args);
/* How far apart what coda_evaluate left in args and loops over tokens are; infinity where one of both is not
 * finite. `before` is from ahead of the run. */
double conv1d_difference(const struct conv1d_case *c, const graph *g, void **args, const double *before);
/* What is allowed of run_worst_error. */
double conv1d_allowed(const struct conv1d_case *c);

#endif
