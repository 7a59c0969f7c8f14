// gelu_quick.cuh -- x sigmoid(1.702 x).
//
// coda: map gelu_quick(x) grad(x = gelu_quick_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gelu_quick {
    DEV static float apply(float x) { return x * math::sigmoid_exp2(1.702f * math::LOG2_E * x); }
};
} // namespace coda::map
