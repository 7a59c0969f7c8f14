// exp_sum.cuh -- the sum over a row of e^(x - m), m its largest x: what a softmax divides by.
//
// 0 if the row is empty or holds -inf alone, NaN if it holds inf or NaN. m is exp_max: of one row they are
// two readings of one state, so that no large m swallows the logarithm of the sum.
//
// coda: reduce exp_sum(x) state 2 of log_sum_exp
#pragma once
#include "reduce/log_sum_exp.cuh"

namespace coda::reduce {
struct exp_sum : log_sum_exp {
    static constexpr int state = 2;

    DEV static float finish(const State &s)
    {
        return s.v[0] < math::infinity() ? s.v[1] : math::not_a_number();
    }
};
} // namespace coda::reduce
