// to_i32.cuh -- x towards zero, as int32 holds it; NaN is 0.
//
// coda: map to_i32(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct to_i32 {
    DEV static float apply(float x)
    {
        const float a = floorf(fabsf(x));
        return x != x ? 0.0f : copysignf(a < 0x1p31f ? a : 0x1p31f, x);
    }
};
} // namespace coda::map
