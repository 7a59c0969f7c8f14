// gelu_tanh_grad.cuh -- the derivative of gelu_tanh, s (1 + x (1 - s) v), where s = sigmoid(2u) and v is the
// derivative of 2u = 2 sqrt(2 / pi) (x + 0.044715 x^3). From +-20 on it is 1 and 0.
//
// Those of x and of -x are 1 together: the one of -|x| has no 1 - s, in which digits cancel.
//
// coda: map gelu_tanh_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gelu_tanh_grad {
    DEV static float apply(float x)
    {
        const float a = -math::max(-fabsf(x), -20.0f), square = a * a;
        const float e = math::exp2(-a * fmaf(0.10294324f, square, 2.3022082f)); // 2^(-2u log2 e)
        const float r = math::rcp(1.0f + e), v = fmaf(0.2140644488f, square, 1.5957691216f);
        const float left = e * r * fmaf(-a * v, r, 1.0f); // of -|x|
        return x > 0.0f ? 1.0f - left : left;
    }
};
} // namespace coda::map
