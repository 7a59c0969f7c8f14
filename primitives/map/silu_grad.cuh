// silu_grad.cuh -- the derivative of silu, s (1 + x (1 - s)) with s = sigmoid(x).
//
// Those of x and of -x are 1 together: the one of -|x| has no 1 - s, in which digits cancel.
//
// coda: map silu_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct silu_grad {
    DEV static float apply(float x)
    {
        const float a = fabsf(x), e = math::exp2(-math::LOG2_E * a), r = math::rcp(1.0f + e);
        const float left = e * r * fmaf(-a, r, 1.0f); // of -|x|
        return x > 0.0f ? 1.0f - left : left;
    }
};
} // namespace coda::map
