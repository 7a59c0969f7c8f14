// divisor.cuh -- a number that the launch knows, by which many are divided.
#pragma once
#include "types.cuh"

namespace coda {

// Exact for what is below 2^31.
struct Divisor {
    u32 number, multiplier, shift;
    DEV u32 quotient(u32 x) const { return ((u32)((u64)x * multiplier >> 32) + x) >> shift; }
    DEV u32 rest(u32 x) const { return x - quotient(x) * number; }
};

} // namespace coda
