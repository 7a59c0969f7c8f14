// m2.cuh -- the sum over a row of (x - mean)^2, online: n, mean and M2 of what has been seen so far.
//
// Chan, Golub & LeVeque 1983; a push is a merge with the state {1, x, 0}. 0 if the row is empty.
//
// coda: reduce m2(x) state 3
#pragma once
#include "math.cuh"

namespace coda::reduce {
struct m2 {
    static constexpr int state = 3;
    struct State { float v[state]; }; // n, mean, M2

    DEV static void init(State &s) { s.v[0] = s.v[1] = s.v[2] = 0.0f; }
    DEV static void push(State &s, float x, int, float)
    {
        float n = s.v[0] + 1.0f, d = x - s.v[1], part = math::rcp(n);
        s.v[2] = fmaf(d * (s.v[0] * part), d, s.v[2]);
        s.v[1] = s.v[0] > 0.0f ? fmaf(d, part, s.v[1]) : x; // of equal x it is x, and M2 is 0
        s.v[0] = n;
    }
    DEV static void merge(State &s, const State &o)
    {
        float n = s.v[0] + o.v[0], d = o.v[1] - s.v[1];
        float part = n > 0.0f ? math::count_ratio(o.v[0], n) : 0.0f; // exact when either is empty
        s.v[2] += fmaf(d * (s.v[0] * part), d, o.v[2]);
        s.v[1] = fmaf(d, part, s.v[1]);
        s.v[0] = n;
    }
    DEV static float finish(const State &s) { return s.v[2] + (s.v[1] - s.v[1]); } // infinite mean: NaN
};
} // namespace coda::reduce
