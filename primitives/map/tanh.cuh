// tanh.cuh -- the hyperbolic tangent of x.
//
// coda: map tanh(x) grad(x = tanh_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct tanh {
    DEV static float apply(float x) { return math::tanh(x); }
};
} // namespace coda::map
