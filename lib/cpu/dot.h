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

#endif
