// less.cuh -- 1 where x is below y, else 0, as where one is NaN.
//
// coda: map less(x, y) grad(x, y = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct less {
    DEV static float apply(float x, float y) { return x < y ? 1.0f : 0.0f; }
};
} // namespace coda::map
