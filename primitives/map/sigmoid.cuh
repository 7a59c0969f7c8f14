// sigmoid.cuh -- 1 / (1 + exp(-x)).
//
// coda: map sigmoid(x) grad(x = sigmoid_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct sigmoid {
    DEV static float apply(float x) { return math::sigmoid(x); }
};
} // namespace coda::map
