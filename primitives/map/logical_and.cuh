// logical_and.cuh -- 1 where neither x nor y is 0, else 0. NaN is not 0.
//
// coda: map logical_and(x, y) grad(x, y = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct logical_and {
    DEV static float apply(float x, float y) { return x != 0.0f && y != 0.0f ? 1.0f : 0.0f; }
};
} // namespace coda::map
