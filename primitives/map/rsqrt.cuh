// rsqrt.cuh -- 1 / sqrt(x).
//
// coda: map rsqrt(x) grad(x = rsqrt_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct rsqrt {
    DEV static float apply(float x)
    {
        const bool subnormal = x < 0x1p-126f; // math::rsqrt takes it for 0
        return math::rsqrt(subnormal ? x * 0x1p24f : x) * (subnormal ? 0x1p12f : 1.0f);
    }
};
} // namespace coda::map
