// best.cuh -- the n largest elements of a row with their columns, in order, as the state of a reduction.
//
// NaN is above all, -0 is 0, and of equal elements the one further left is better: as candidate.cuh has it. n
// is a power of 2. A column is exact up to 2^24.
#pragma once
#include "math.cuh"

namespace coda {

template <int n> struct Best {
    static constexpr int state = 2 * n;
    struct State { float v[state]; }; // element and column of the best, then of the second; infinity: of none

    DEV static i32 order(float x)
    {
        const i32 bits = (i32)float_bits(x);
        return bits ^ (bits >> 31 & 0x7fffffff);
    }
    // Does element x of this column come before entry i?
    DEV static bool beats(float x, float col, const State &s, int i)
    {
        const i32 a = order(x), b = order(s.v[2 * i]);
        return a > b || (a == b && col < s.v[2 * i + 1]);
    }
    DEV static void set(State &s, int i, float x, float col) { s.v[2 * i] = x, s.v[2 * i + 1] = col; }

    DEV static void init(State &s)
    {
#pragma unroll
        for (int i = 0; i < n; i++) set(s, i, -math::infinity(), math::infinity());
    }
    DEV static void push(State &s, float x, int column, float)
    {
        const float col = (float)column;
        x = x == 0.0f ? 0.0f : x != x ? math::not_a_number() : x;
        bool here = beats(x, col, s, n - 1);
        if (!here) return;
#pragma unroll
        for (int i = n - 1; i > 0; i--) {
            const bool above = beats(x, col, s, i - 1);
            if (above) set(s, i, s.v[2 * i - 2], s.v[2 * i - 1]);
            else if (here) set(s, i, x, col);
            here = above;
        }
        if (here) set(s, 0, x, col);
    }
    // The better ones of s in order and of o against it rise and then fall, or the reverse; that is put in
    // order by comparing at half the distance each time.
    DEV static void merge(State &s, const State &o)
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            const float x = o.v[2 * (n - 1 - i)], col = o.v[2 * (n - 1 - i) + 1];
            if (beats(x, col, s, i)) set(s, i, x, col);
        }
#pragma unroll
        for (int apart = n / 2; apart; apart /= 2)
#pragma unroll
            for (int i = 0; i < n; i++) {
                if (i & apart) continue;
                const float x = s.v[2 * (i + apart)], col = s.v[2 * (i + apart) + 1];
                if (!beats(x, col, s, i)) continue;
                set(s, i + apart, s.v[2 * i], s.v[2 * i + 1]);
                set(s, i, x, col);
            }
    }
    // The least of them.
    DEV static float finish(const State &s) { return s.v[2 * n - 2]; }
};

} // namespace coda
