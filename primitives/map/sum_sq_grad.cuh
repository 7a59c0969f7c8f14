// sum_sq_grad.cuh -- the derivative of the sum of squares by one of its elements, 2x.
//
// coda: map sum_sq_grad(x) linear(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct sum_sq_grad {
    DEV static float apply(float x) { return x + x; }
};
} // namespace coda::map
