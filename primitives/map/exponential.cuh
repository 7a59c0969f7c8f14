// exponential.cuh -- a number of the exponential distribution of mean 1, by a counter: of the column and the
// place, under the key (first, second), all as int32. It is never 0 nor infinite.
//
// It is -log(1 - u), where u is 64 bits of Philox4x32-10, so that small numbers have all digits of a float.
//
// coda: map exponential(column, place, first, second) grad(column, place, first, second = 0)
#pragma once
#include "math.cuh"
#include "philox.cuh"

namespace coda::map {
struct exponential {
    DEV static u32 word(float x) { return (u32)truncate_i32(x); }
    // (high 2^32 + low + 1/2) / 2^64
    DEV static float fraction(u32 high, u32 low)
    {
        return fmaf((float)low + 0.5f, 0x1p-32f, (float)high) * 0x1p-32f;
    }
    DEV static float apply(float column, float place, float first, float second)
    {
        const Philox r(word(column), word(place), 0, 0, word(first), word(second));
        const float u = fraction(r.word[0], r.word[1]), rest = fraction(~r.word[0], ~r.word[1]);
        const float small = math::atanh_twice(u * math::rcp(2.0f - u)); // for u up to 1/2
        return r.word[0] >> 31 ? -math::log(rest) : small;
    }
};
} // namespace coda::map
