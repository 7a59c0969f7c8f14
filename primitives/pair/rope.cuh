// rope.cuh -- rotates the pair (a, b) by position * frequency half turns: rotary position embedding.
//
//     a' = a cos t - b sin t,   b' = a sin t + b cos t,   t = pi position (high + low)
//
// The frequency base^(-2i / rotary) / pi, in half turns for one position, is split into two floats, because
// one of them would be wrong by a radian at position 2^24. It is below 1/2. Error of cos and sin: 3e-7 up to
// position 2^20, 1.5e-5 up to 2^23; positions beyond 2^22 pi count as that. Frequency 0 passes the pair
// through bit for bit.
//
// coda: pair rope(a, b, position, high, low)
#pragma once
#include "math.cuh"

namespace coda::pair {
struct rope {
    // {cos t, sin t}
    DEV static Pair turn(float position, float high, float low)
    {
        const float magic = 12582912.0f; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
        const float p = fminf(fmaxf(position, -13176794.0f), 13176794.0f);
        const float shifted = fmaf(p, high, magic);
        const float rest = fmaf(p, low, fmaf(p, high, magic - shifted));
        return math::cos_sin_half_turns(float_bits(shifted), rest);
    }
    DEV static Pair rotate(float a, float b, Pair t)
    {
        return {fmaf(a, t.a, -(b * t.b)), fmaf(a, t.b, b * t.a)};
    }
    // {cos, sin} of t + u from those of both, whose errors add up.
    DEV static Pair add(Pair t, Pair u) { return rotate(t.a, t.b, u); }
    DEV static Pair apply(float a, float b, float position, float high, float low)
    {
        return high == 0.0f ? Pair{a, b} : rotate(a, b, turn(position, high, low));
    }
};
} // namespace coda::pair
