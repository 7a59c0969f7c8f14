/* m2.c -- the sum over a row of (x - mean)^2, online: n, mean and M2 of what has been seen so far. */
#include "ref.h"

static void init(double *state) { state[0] = state[1] = state[2] = 0; }

static void push(double *state, double x, UNUSED int64_t col, UNUSED double key)
{
    double d = x - state[1];
    state[0] += 1;
    state[1] += d / state[0];
    state[2] += d * (x - state[1]);
}

static void merge(double *state, const double *other)
{
    double n = state[0] + other[0], d = other[1] - state[1], part = n > 0 ? other[0] / n : 0;
    state[2] += other[2] + d * d * state[0] * part;
    state[1] += d * part;
    state[0] = n;
}

static double finish(const double *state) { return state[2]; }
REFERENCE_REDUCE(m2) = {init, push, merge, finish};
