// gelu_tanh.cuh -- x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
//
// coda: map gelu_tanh(x) grad(x = gelu_tanh_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gelu_tanh {
    DEV static float apply(float x)
    {
        float y = x * fmaf(0.10294324f, x * x, 2.3022082f); // 2u log2 e
        return x * math::sigmoid_exp2(y);
    }
};
} // namespace coda::map
