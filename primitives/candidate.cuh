// candidate.cuh -- an element and its column as one integer: of two candidates the larger one is the better.
//
// NaN is above all, -0 is 0, and of equal elements the one further left is better. 0 is none, below all.
#pragma once
#include "math.cuh"

namespace coda {

DEV u64 candidate(float x, u32 column)
{
    u32 bits = float_bits(x == 0.0f ? 0.0f : x != x ? math::not_a_number() : x);
    u32 key = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (u64)key << 32 | ~column;
}
DEV float candidate_value(u64 c)
{
    u32 key = (u32)(c >> 32);
    return bits_float(key >> 31 ? key & 0x7fffffffu : ~key);
}
DEV u32 candidate_column(u64 c) { return ~(u32)c; }

} // namespace coda
