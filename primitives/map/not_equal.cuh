// not_equal.cuh -- 0 where x equals y, else 1. NaN equals nothing.
//
// coda: map not_equal(x, y) grad(x, y = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct not_equal {
    DEV static float apply(float x, float y) { return x != y ? 1.0f : 0.0f; }
};
} // namespace coda::map
