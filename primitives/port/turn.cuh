// turn.cuh -- {cos t, sin t} of the angle t = pi position (high + low), by which pairs of columns are
// combined.
//
// A frequency, in half turns for one position, is the sum of two floats, because one of them would be wrong
// by a radian at position 2^24. Error of cos and sin with frequencies up to 1/pi, one radian: 3e-7 up to
// position 2^20, 1.5e-5 up to 2^23; positions beyond 2^22 pi count as that. Frequencies up to 1: the same up
// to 2^22.
#pragma once
#include "math.cuh"

namespace coda::port {

DEV Pair turn(float position, float high, float low)
{
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const float p = fminf(fmaxf(position, -13176794.0f), 13176794.0f);
    const float shifted = fmaf(p, high, magic);
    const float rest = fmaf(p, low, fmaf(p, high, magic - shifted));
    return math::cos_sin_half_turns(float_bits(shifted), rest);
}

// {cos, sin} of t + u from those of both, whose errors add up.
DEV Pair turn_further(Pair t, Pair u)
{
    return {fmaf(t.a, u.a, -(t.b * u.b)), fmaf(t.a, u.b, t.b * u.a)};
}

DEV Pair scaled(Pair t, float scale) { return {scale * t.a, scale * t.b}; }

// A frequency of first * ratio^i half turns.
DEV Pair half_turns(double first, double ratio, int i)
{
    for (; i; i >>= 1, ratio *= ratio)
        if (i & 1) first *= ratio;
    const float high = (float)first;
    return {high, (float)(first - high)};
}

// Half turns of so many radians, off by 2^-47 of them. Positions are whole numbers: whole turns do not
// matter, and are left out.
DEV Pair half_turns(float radians)
{
    const float high = radians * 0.31830987334251404f; // 1 / pi, and what that is off
    const float low = fmaf(radians, 1.2841276633451830e-08f, fmaf(radians, 0.31830987334251404f, -high));
    const float rest = fmaf(-2.0f, rintf(0.5f * high), high), sum = rest + low;
    return {sum, low - (sum - rest)};
}

} // namespace coda::port
