// maximum.cuh -- the larger one; NaN if either is.
//
// coda: map maximum(x, y) grad(x = greater_equal) grad(y = less)
#pragma once
#include "math.cuh"

namespace coda::map {
struct maximum {
    DEV static float apply(float x, float y) { return math::max(x, y); }
};
} // namespace coda::map
