// gelu_tanh.cuh -- x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
//
// coda: map gelu_tanh(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gelu_tanh {
    DEV static float apply(float x)
    {
        float u = 0.797884561f * x * fmaf(0.044715f * x, x, 1.0f);
        return x * math::sigmoid(2.0f * u);
    }
};
} // namespace coda::map
