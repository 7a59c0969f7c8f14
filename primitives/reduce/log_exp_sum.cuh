// log_exp_sum.cuh -- log(sum over a row of e^(x - m)), m its largest x: what log_softmax subtracts beside m.
//
// -inf if the row is empty or holds -inf alone, NaN if it holds inf or NaN. m is exp_max, of the same state.
//
// coda: reduce log_exp_sum(x) state 2 of log_sum_exp
#pragma once
#include "reduce/log_sum_exp.cuh"

namespace coda::reduce {
struct log_exp_sum : log_sum_exp {
    static constexpr int state = 2;

    DEV static float finish(const State &s)
    {
        return s.v[0] < math::infinity() ? math::log(s.v[1]) : math::not_a_number();
    }
};
} // namespace coda::reduce
