/* util_primitives.h -- what the primitives are tried with, and how near to their references they must
 * come: shared by the tests on the host and on a GPU. A new primitive needs nothing here. */
#ifndef UTIL_PRIMITIVES_H
#define UTIL_PRIMITIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prim.h"

/* ---- Maps ---- */

/* Arguments of `count` calls, [count][inputs + params], malloc'd: combinations of special values first
 * (zeros, subnormals, limits, infinities, NaN), then random ones of all sizes. */
float *map_cases(const struct prim *p, uint64_t seed, int *count);

/* May `got` be the map of args? Within 2e-6 of the reference's value, plus what changing each argument
 * by 2^-23 of itself changes in it. A factor below 2^-126 of the result may be taken for 0. NaN and
 * infinities must agree. Otherwise says why not; *error becomes the relative error. */
bool map_close(const struct prim *p, const float *args, float got, double *error, char *why, size_t size);
/* The same of its form for 16 bits: within 2^-16 of the value, or 1e-14 times the operands behind the first
 * one, which it may be 0 times. */
bool map_close_narrow(const struct prim *p, const float *args, float got, double *error, char *why,
                      size_t size);

/* ---- Reductions ---- */

enum { ROW_MOST = 1030 };
struct row_case {
    float x[ROW_MOST];
    int n;
    float key;
    char what[64];
};
/* Case `i` of ROW_CASES: lengths from 0 to ROW_MOST, spreads and offsets, special values. */
enum { ROW_CASES = 140 };
void row_case(struct row_case *row, int i, uint64_t seed);
double row_reference(const struct prim *p, const struct row_case *row);
/* The most that the reference moves, in its own unit, if all x and the state change by `by` of themselves. */
double row_noise(const struct prim *p, const struct row_case *row, double by);
/* Within 2e-6 of the reference, plus 2^-24 for each of the `serial` columns that one state has seen,
 * relative to the larger one of its values for x and for |x|; plus what changing all x and the state by
 * 2^-21 of itself changes. */
bool row_close(const struct prim *p, const struct row_case *row, int serial, double got, double *error,
               char *why, size_t size);

/* ---- Rope ---- */

/* base^(-2i / rotary) / (2 pi) turns, in two floats. */
void rope_frequency(double base, int rotary, int i, float *high, float *low);
/* The pair turned in double; the float results may differ by 1e-6 (|a| + |b|). */
void rope_reference(double out[2], double a, double b, double position, double base, int rotary, int i);

#endif
