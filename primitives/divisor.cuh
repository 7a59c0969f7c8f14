// divisor.cuh -- division by a number that the launch knows.
#pragma once
#include "types.cuh"

namespace coda {

// Many numbers are divided by it: exact for what is below 2^31.
struct Divisor {
    u32 number, multiplier, shift;
    DEV u32 quotient(u32 x) const { return ((u32)((u64)x * multiplier >> 32) + x) >> shift; }
    DEV u32 rest(u32 x) const { return x - quotient(x) * number; }
};

} // namespace coda
