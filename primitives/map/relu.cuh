// relu.cuh -- max(x, 0).
//
// coda: map relu(x) grad(x = relu_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct relu {
    DEV static float apply(float x) { return math::max(x, 0.0f); }
};
} // namespace coda::map
