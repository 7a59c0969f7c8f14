// sqrt_grad.cuh -- the derivative of sqrt, 1 / (2 sqrt(x)).
//
// coda: map sqrt_grad(x)
#pragma once
#include "math.cuh"
#include "map/rsqrt.cuh"

namespace coda::map {
struct sqrt_grad {
    DEV static float apply(float x) { return 0.5f * rsqrt::apply(x); }
};
} // namespace coda::map
