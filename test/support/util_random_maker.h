/* util_random_maker.h -- inside random_graph: a graph in the making, and the patterns that it is made of. */
#ifndef UTIL_RANDOM_MAKER_H
#define UTIL_RANDOM_MAKER_H

#include "util_random.h"

enum { MAKER_POOL = 128 };

struct maker {
    coda_graph *g;
    struct random r;
    struct random_options opt;
    coda_dtype dtype;
    coda_value pool[MAKER_POOL]; /* float values to draw operands from */
    int pooled, leaves;
    int lead_rank;
    int64_t lead[2]; /* leading dimensions of the main stream */
};

struct shape {
    int rank;
    int64_t dim[CODA_MAX_RANK];
    coda_dtype dtype;
};

struct shape maker_shape(const struct maker *m, coda_value v);
int64_t maker_columns(const struct maker *m, coda_value v);
int64_t shape_elements(const struct shape *s);
coda_value maker_keep(struct maker *m, coda_value v);
/* Half of the time one of the last three values, so that chains grow. */
coda_value maker_draw(struct maker *m);
int64_t maker_size(struct maker *m);
/* A row pitch with padding or, of a matrix, columns that follow each other. */
bool maker_strides(struct maker *m, int rank, const int64_t *dim, int64_t *stride);
coda_value maker_leaf(struct maker *m, bool weight, coda_dtype t, int rank, const int64_t *dim);
/* A vector for the columns of v: mostly a weight, in fp32 or in v's dtype. */
coda_value maker_vector(struct maker *m, coda_value v);
coda_value maker_linear_by(struct maker *m, coda_value x, int64_t n, coda_dtype t);
/* Now and then of two dtypes. */
coda_value maker_linear(struct maker *m, coda_value x, int64_t n);
coda_value maker_norm(struct maker *m, coda_value x);
coda_value maker_slice(struct maker *m, coda_value x, int64_t from, int64_t to);

/* ---- Patterns: each draws its operands and returns its result, or none if it does not fit ---- */

coda_value maker_rope(struct maker *m);
coda_value maker_heads(struct maker *m);
coda_value maker_attention(struct maker *m);
coda_value maker_adaptive(struct maker *m);
coda_value maker_state(struct maker *m);
coda_value maker_conv1d(struct maker *m);
/* Any map, and any reduction, of the table of primitives but for those of drawn.def. */
coda_value maker_map(struct maker *m);
coda_value maker_reduction(struct maker *m);

#endif
