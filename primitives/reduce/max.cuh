// max.cuh -- the largest element of a row, -inf if it is empty, NaN if it holds one.
//
// coda: reduce max(x) state 1 exact grad(x = equal)
#pragma once
#include "math.cuh"

namespace coda::reduce {
struct max {
    static constexpr int state = 1;
    struct State { float v[state]; };

    DEV static void init(State &s) { s.v[0] = -math::infinity(); }
    DEV static void push(State &s, float x, int, float) { s.v[0] = math::max(s.v[0], x); }
    DEV static void merge(State &s, const State &o) { s.v[0] = math::max(s.v[0], o.v[0]); }
    DEV static float finish(const State &s) { return s.v[0]; }
};
} // namespace coda::reduce
