// select.cuh -- the element of a row whose column is `key`, 0 if there is none.
//
// coda: reduce select(x, key) state 1 exact grad(key = 0)
#pragma once
#include "types.cuh"

namespace coda::reduce {
struct select {
    static constexpr int state = 1;
    struct State { float v[state]; };

    DEV static void init(State &s) { s.v[0] = 0.0f; }
    DEV static void push(State &s, float x, int col, float key) { s.v[0] = (float)col == key ? x : s.v[0]; }
    DEV static void merge(State &s, const State &o) { s.v[0] += o.v[0]; }
    DEV static float finish(const State &s) { return s.v[0]; }
};
} // namespace coda::reduce
