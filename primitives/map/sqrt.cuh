// sqrt.cuh -- the square root of x, as IEEE rounds it; NaN of what is below 0.
//
// coda: map sqrt(x) grad(x = sqrt_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct sqrt {
    DEV static float apply(float x) { return sqrtf(x); }
};
} // namespace coda::map
