// nll.cuh -- log(sum of e^x over a row) - x[target], the negative log-likelihood of one class, online: m is
// the largest x so far, s the sum of e^(x - m), p the target's x, 0 if there is none.
//
// Added up as (m - p) + log s: m + log s alone would lose log s where m is large. NaN if the row holds inf
// or NaN, or -inf alone.
//
// coda: reduce nll(x, target) state 3 grad(target = 0)
#pragma once
#include "reduce/log_sum_exp.cuh"

namespace coda::reduce {
struct nll {
    static constexpr int state = 3;
    struct State { float v[state]; }; // m, s, p

    DEV static log_sum_exp::State exponentials(const State &s) { return {{s.v[0], s.v[1]}}; }

    DEV static void init(State &s)
    {
        log_sum_exp::State e;
        log_sum_exp::init(e);
        s = {{e.v[0], e.v[1], 0.0f}};
    }
    DEV static void push(State &s, float x, int col, float target)
    {
        log_sum_exp::State e = exponentials(s);
        log_sum_exp::push(e, x, col, 0.0f);
        s = {{e.v[0], e.v[1], (float)col == target ? x : s.v[2]}};
    }
    DEV static void merge(State &s, const State &o)
    {
        log_sum_exp::State e = exponentials(s);
        log_sum_exp::merge(e, exponentials(o));
        s = {{e.v[0], e.v[1], s.v[2] + o.v[2]}};
    }
    DEV static float finish(const State &s)
    {
        float l = (s.v[0] - s.v[2]) + math::log(s.v[1]);
        return s.v[0] < math::infinity() ? l : math::not_a_number();
    }
};
} // namespace coda::reduce
