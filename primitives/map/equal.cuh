// equal.cuh -- 1 where x equals y, else 0. NaN equals nothing.
//
// coda: map equal(x, y) grad(x, y = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct equal {
    DEV static float apply(float x, float y) { return x == y ? 1.0f : 0.0f; }
};
} // namespace coda::map
