// to_i64.cuh -- x towards zero, as int64 holds it; NaN is 0.
//
// coda: map to_i64(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct to_i64 {
    DEV static float apply(float x)
    {
        const float a = floorf(fabsf(x));
        return x != x ? 0.0f : copysignf(a < 0x1p63f ? a : 0x1p63f, x);
    }
};
} // namespace coda::map
