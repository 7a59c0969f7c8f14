/* util_range.h -- rows of every magnitude and special value, what operations must make of them by fp64 loops
 * of its own, and the verdict: shared by the tests on the CPU device and on a GPU. */
#ifndef UTIL_RANGE_H
#define UTIL_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "coda.h"

enum { RANGE_COLUMNS = 64, RANGE_OUTPUTS = 32, RANGE_MOST_ROWS = 256 };

/* The tensors of a test: x [rows, 64] of all magnitudes, gain and bias [64], w [32, 64], targets [rows]. */
struct range_data {
    coda_dtype t;
    int rows;
    double x[RANGE_MOST_ROWS * RANGE_COLUMNS], gain[RANGE_COLUMNS], bias[RANGE_COLUMNS];
    double w[RANGE_OUTPUTS * RANGE_COLUMNS];
    int32_t target[RANGE_MOST_ROWS];
    char what[RANGE_MOST_ROWS][48]; /* a row's pattern and magnitude */
};
/* Values are rounded to t; gains and weights are of these sizes. */
void range_fill(struct range_data *d, coda_dtype t, double gain, double weight, uint64_t seed);

/* Where x comes from: it is a leaf, or what a product with the identity leaves in t, or in fp32. */
enum range_source { RANGE_LEAF, RANGE_PRODUCT, RANGE_F32 };

/* An operation on x, and its row in fp64: what it must be (NaN: NaN) and by how much it may be off (INFINITY:
 * nothing is promised). */
struct range_case {
    const char *name;
    int columns;    /* of the result */
    bool f32;       /* the result is fp32 */
    bool with_cast; /* reads x in fp32 and casts */
    coda_value (*build)(coda_graph *g, coda_value x, const struct range_data *d, const coda_value *leaf);
    void (*judge)(const struct range_data *d, const double *x, int row, double *want, double *allow);
};
extern const struct range_case range_cases[];
extern const int range_case_count;

/* A graph of some cases, each an output. The arguments, leaves in host memory: to be freed with range_free.
 */
struct range_graph {
    coda_graph *g;
    const struct range_case *const *cases;
    int count, args;
    void *arg[64];
};
void range_build(struct range_graph *r, const struct range_data *d, enum range_source source,
                 const struct range_case *const *cases, int count);
void range_free(struct range_graph *r);
/* Are the outputs right? Else says in `why` which element is not. */
bool range_right(const struct range_graph *r, const struct range_data *d, enum range_source source, char *why,
                 size_t size);
/* The same of coda_evaluate: dense doubles, which have no NaN where fp32 has left its range. */
bool range_evaluated(const struct range_graph *r, const struct range_data *d, enum range_source source,
                     char *why, size_t size);

/* Attention whose scores are S + d, S of every magnitude and d small: the weights are those of d, as far as
 * fp32 has S + d. Two heads of 64 columns, 40 queries, 300 keys. */
enum { RANGE_SCORES = 10 };
coda_graph *range_attention(coda_dtype t);
void range_attention_args(coda_dtype t, int score, void *arg[4]); /* q, k, v and the result: malloc'd */
bool range_attention_right(coda_dtype t, int score, void *const arg[4], char *why, size_t size);

#endif
