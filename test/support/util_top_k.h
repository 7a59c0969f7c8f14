/* util_top_k.h -- graphs of top-k whose elements are often equal, and what a sort says of them. */
#ifndef UTIL_TOP_K_H
#define UTIL_TOP_K_H

#include "util_run.h"

struct top_k_case {
    const char *name;
    coda_dtype dtype;
    int64_t batch, rows, columns, k; /* of x; batch 0: it has rank 2 */
    int64_t inner;                   /* x is a product over so many; 0: an input */
    enum { WANT_BOTH, WANT_VALUES, WANT_INDICES } what;
    bool turned;   /* x is a transposed view: [batch, rows, columns] of [rows, batch, columns] */
    bool specials; /* of an input: NaN, infinities and both zeros are among its elements */
    bool wide;     /* of an input: elements are drawn from many; else from 17 */
};
extern const struct top_k_case top_k_cases[];
extern const int top_k_case_count;

graph *top_k_graph(const struct top_k_case *c);
/* As random_args, with the case's elements, which 16 bits hold exactly, as they do all products. */
void **top_k_args(const struct top_k_case *c, const graph *g, uint64_t seed, bool evaluate);
/* Results that are not what qsort makes of the leaves; of evaluate they are doubles. */
int64_t top_k_differences(const struct top_k_case *c, const graph *g, void **args, bool evaluate);

#endif
