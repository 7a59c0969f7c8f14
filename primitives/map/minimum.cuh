// minimum.cuh -- the smaller one; NaN if either is.
//
// coda: map minimum(x, y) grad(x = less_equal) grad(y = greater)
#pragma once
#include "math.cuh"

namespace coda::map {
struct minimum {
    DEV static float apply(float x, float y) { return -math::max(-x, -y); }
};
} // namespace coda::map
