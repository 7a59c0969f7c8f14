// gelu_quick_grad.cuh -- the derivative of gelu_quick, s (1 + c x (1 - s)) with c = 1.702, s = sigmoid(c x).
//
// Those of x and of -x are 1 together: the one of -|x| has no 1 - s, in which digits cancel.
//
// coda: map gelu_quick_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gelu_quick_grad {
    DEV static float apply(float x)
    {
        const float c = 1.702f, a = fabsf(x), e = math::exp2(-c * math::LOG2_E * a);
        const float r = math::rcp(1.0f + e), left = c * e * r * fmaf(-a, r, 1.0f / c); // of -|x|
        return x > 0.0f ? 1.0f - left : left;
    }
};
} // namespace coda::map
