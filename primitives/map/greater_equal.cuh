// greater_equal.cuh -- 1 where x is not below y, else 0, as where one is NaN.
//
// coda: map greater_equal(x, y) grad(x, y = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct greater_equal {
    DEV static float apply(float x, float y) { return x >= y ? 1.0f : 0.0f; }
};
} // namespace coda::map
