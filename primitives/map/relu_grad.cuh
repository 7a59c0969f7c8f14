// relu_grad.cuh -- the derivative of relu: 1 where x is above 0, else 0, also at 0. NaN stays.
//
// coda: map relu_grad(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct relu_grad {
    DEV static float apply(float x) { return x > 0.0f ? 1.0f : x <= 0.0f ? 0.0f : x; }
};
} // namespace coda::map
