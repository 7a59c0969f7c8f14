// logical_or.cuh -- 0 where x and y are 0, else 1. NaN is not 0.
//
// coda: map logical_or(x, y) grad(x, y = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct logical_or {
    DEV static float apply(float x, float y) { return x != 0.0f || y != 0.0f ? 1.0f : 0.0f; }
};
} // namespace coda::map
