/* log_sum_exp.c -- log(sum of e^x over a row), online: m is the largest x so far, s the sum of e^(x - m). */
#include <math.h>

#include "ref.h"

static void merge(double *state, const double *other)
{
    double m = fmax(state[0], other[0]);
    double a = state[0] == m ? 1 : exp(state[0] - m), b = other[0] == m ? 1 : exp(other[0] - m);
    state[1] = state[1] * a + other[1] * b;
    state[0] = m;
}

static void init(double *state)
{
    state[0] = -INFINITY;
    state[1] = 0;
}

static void push(double *state, double x, UNUSED int64_t col, UNUSED double key)
{
    merge(state, (double[]){isnan(x) ? -INFINITY : x, isnan(x) ? NAN : 1});
}

static double finish(const double *state) { return state[0] + log(state[1]); }
REFERENCE_REDUCE(log_sum_exp) = {init, push, merge, finish};
