// rope.cuh -- rotates the pair (a, b) by position * frequency turns: rotary position embedding.
//
//     a' = a cos t - b sin t,   b' = a sin t + b cos t,   t = 2 pi position (high + low)
//
// The frequency base^(-2i / rotary) / (2 pi), in turns for one position, is split into two floats,
// because one of them would be wrong by a radian at position 2^24. Error of cos and sin: 5e-7 up to
// position 2^20. Frequency 0 passes the pair through bit for bit.
//
// coda: pair rope(a, b, position, high, low)
#pragma once
#include "math.cuh"

namespace coda::pair {
struct rope {
    // {cos t, sin t}
    DEV static Pair turn(float position, float high, float low)
    {
        float turns = position * high;
        float rest = fmaf(position, low, fmaf(position, high, -turns));
        return math::cos_sin_turns((turns - rintf(turns)) + rest);
    }
    DEV static Pair rotate(float a, float b, Pair t)
    {
        return {fmaf(a, t.a, -(b * t.b)), fmaf(a, t.b, b * t.a)};
    }
    DEV static Pair apply(float a, float b, float position, float high, float low)
    {
        return high == 0.0f ? Pair{a, b} : rotate(a, b, turn(position, high, low));
    }
};
} // namespace coda::pair
