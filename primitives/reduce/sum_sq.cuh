// sum_sq.cuh -- the sum of the squares of a row, 0 if it is empty.
//
// coda: reduce sum_sq(x) state 1 grad(x = sum_sq_grad)
#pragma once
#include "types.cuh"

namespace coda::reduce {
struct sum_sq {
    static constexpr int state = 1;
    struct State { float v[state]; };

    DEV static void init(State &s) { s.v[0] = 0.0f; }
    DEV static void push(State &s, float x, int, float) { s.v[0] = fmaf(x, x, s.v[0]); }
    DEV static void merge(State &s, const State &o) { s.v[0] += o.v[0]; }
    DEV static float finish(const State &s) { return s.v[0]; }
};
} // namespace coda::reduce
