/* quantize_fit.h -- scales and minima for groups of weights, between quantize_fit.c, which finds them, and
 * quantize_blocks.c, which writes them. */
#ifndef QUANTIZE_FIT_H
#define QUANTIZE_FIT_H

#include "base.h"

enum { BLOCK = 256, GROUP_MOST = 32, GROUPS_MOST = 16 };

/* What codes a group may have, and whether a minimum is added. */
enum minimum { NO_MINIMUM, ANY_MINIMUM, MINIMUM_BELOW_0 };
struct grid {
    int n, least, most; /* weights; codes */
    enum minimum minimum;
};
struct fit {
    double s, m, lost; /* lost: the sum of squares */
    int8_t q[GROUP_MOST];
};

struct block {            /* of a K-quant */
    uint16_t d, second_d; /* f16 */
    int8_t a[GROUPS_MOST], b[GROUPS_MOST];
    int8_t q[BLOCK];
};

/* Fits a group: s, m and codes; more than from its range with a search. */
void fit_group(const struct grid *g, const float *x, bool search, struct fit *out);
/* The nearest codes for s and m as they are, and what is lost. */
void fit_round(const struct grid *g, const float *x, struct fit *f);
/* 256 weights with scales of two levels; false: f16 cannot hold one of the first. */
bool fit_block(const struct grid *g, const float *x, bool search, struct block *out);
double fit_as_f16(double x, uint16_t *bits); /* x as f16 has it */

#endif
