/*
 * reference.h -- the parts of a LLaMA block by their textbook formulas, in fp64, for some rows.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "bench.h"

enum { HEAD = 128 }; /* columns of an attention head */

double *room(int64_t n); /* n numbers, which the caller frees */

/* Rows of an input. */
double *rows_of(struct figure *f, const char *name, int rows, const int64_t *row);
/* x w' with w [N, K], and x w with w [K, N], for any number of rows. Both free x. */
double *times(struct figure *f, const char *name, int rows, double *x);
double *times_kn(struct figure *f, const char *name, int rows, double *x);

void add(double *x, const double *y, int64_t n); /* x += y */
/* RMSNorm of rows of n numbers, eps 1e-5. */
double *normed(struct figure *f, const char *gain, int rows, int64_t n, const double *x);
/* Turns rows of q, k and v, d columns each, by rope, base 10000: q and k, forward (1) or back (-1). */
void rotate(int64_t d, int rows, const int64_t *position, int direction, double *qkv);
/* SwiGLU: rows of 2 columns numbers become rows of half as many, in place. */
void gate(int rows, int64_t columns, double *x);

/* |y - want| / |want| of rows of a side's output, Euclidean. */
double distance(const struct figure *f, int side, const char *output, int rows, const int64_t *row,
                const double *want);

#endif
