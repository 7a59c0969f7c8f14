// arg_max.cuh -- the column of a row's largest element, the first of several; that of the first NaN if it
// holds one, -1 if it is empty. A column is exact up to 2^24.
//
// coda: reduce arg_max(x) state 2 exact grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::reduce {
struct arg_max {
    static constexpr int state = 2;
    struct State { float v[state]; }; // the largest so far, its column

    // Orders candidates: NaN is above all, then the larger one, then the one further left. No column: none.
    DEV static bool beats(float x, float col, const State &s)
    {
        bool nan = x != x, other = s.v[0] != s.v[0];
        bool above = nan ? !other : x > s.v[0];
        bool same = nan ? other : x == s.v[0];
        return s.v[1] < 0.0f || above || (same && col < s.v[1]);
    }

    DEV static void init(State &s)
    {
        s.v[0] = -math::infinity();
        s.v[1] = -1.0f;
    }
    DEV static void push(State &s, float x, int col, float)
    {
        if (beats(x, (float)col, s)) s = {{x, (float)col}};
    }
    DEV static void merge(State &s, const State &o)
    {
        if (o.v[1] >= 0.0f && beats(o.v[0], o.v[1], s)) s = o;
    }
    DEV static float finish(const State &s) { return s.v[1]; }
};
} // namespace coda::reduce
