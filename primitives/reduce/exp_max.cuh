// exp_max.cuh -- the largest element of a row, from which exp_sum counts; -inf if it is empty, NaN if it
// holds one.
//
// coda: reduce exp_max(x) state 2 of log_sum_exp grad(x = equal)
#pragma once
#include "reduce/log_sum_exp.cuh"

namespace coda::reduce {
struct exp_max : log_sum_exp {
    static constexpr int state = 2;

    DEV static float finish(const State &s) { return s.v[1] == 0.0f ? -math::infinity() : s.v[0]; }
};
} // namespace coda::reduce
