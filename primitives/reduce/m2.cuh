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
    // All of several states into the first one, with one reciprocal; what is empty changes no bit.
    template <i32 count> DEV static void merge_all(State (&s)[count])
    {
        float origin = 0.0f, n = 0.0f, shift = 0.0f, squares = 0.0f;
#pragma unroll
        for (i32 i = 0; i < count; i++) n += s[i].v[0], origin = s[i].v[0] > 0.0f ? s[i].v[1] : origin;
        const float each = n > 0.0f ? math::rcp(n) : 0.0f;
#pragma unroll
        for (i32 i = 0; i < count; i++) shift = fmaf(s[i].v[0] * each, s[i].v[1] - origin, shift);
#pragma unroll
        for (i32 i = 0; i < count; i++) {
            const float d = s[i].v[0] > 0.0f ? s[i].v[1] - origin - shift : 0.0f;
            squares += fmaf(d * s[i].v[0], d, s[i].v[2]);
        }
        s[0].v[0] = n, s[0].v[1] = origin + shift, s[0].v[2] = squares;
    }
    DEV static float finish(const State &s) { return s.v[2] + (s.v[1] - s.v[1]); } // infinite mean: NaN
};
} // namespace coda::reduce
