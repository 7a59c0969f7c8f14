/* dot.h -- products whose operands lie along K: the one loop of the CPU device that counts. */
#ifndef DOT_H
#define DOT_H

#include "base.h"

enum { DOT_LANES = 8 };

/* c[i][j] = sum_k a[i][k] b[j][k], i < m, j < n: pitches in elements. */
struct dot {
    int64_t m, n, k;
    const float *a;
    int64_t a_pitch;
    coda_dtype type; /* of b: CODA_F32, CODA_BF16 or CODA_F16 */
    const void *b;
    int64_t b_pitch;
    float *c;
    int64_t c_pitch;
};

/*
 * Eight lanes take every eighth product each; then they are added, the upper half to the lower one three
 * times. K is cut into blocks, whose sums are added in order. So the bits of c[i][j] depend on row i, row j
 * and k alone: not on m, n, the tile, nor on the instructions, as long as they have FMA.
 */
void dot(const struct dot *d);
void dot_by(enum vectors level, const struct dot *d); /* with these, which the machine has */
bool dot_takes(coda_dtype type);

/* o[i][c] += sum_k p[i][k] v[k][c], i < m, k < n, c < columns, a multiple of DOT_LANES: one product after
 * the other in the order of k. So the bits of o[i][c] depend on row i of p and column c of v alone, and n may
 * be cut anywhere. */
struct weighted {
    int64_t m, n, columns;
    const float *p;
    int64_t p_pitch;
    coda_dtype type; /* of v: what dot takes */
    const void *v;
    int64_t v_pitch;
    float *o;
    int64_t o_pitch;
};
void add_weighted(const struct weighted *w);
void add_weighted_by(enum vectors level, const struct weighted *w);

#endif
