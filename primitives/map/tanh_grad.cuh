// tanh_grad.cuh -- the derivative of tanh, 1 - tanh(x)^2.
//
// It is 4 e / (1 + e)^2 with e = exp(-2 |x|): 1 - tanh^2 has no digits left where tanh is nearly 1.
//
// coda: map tanh_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct tanh_grad {
    DEV static float apply(float x)
    {
        const float e4 = math::exp2(fmaf(-2.0f * math::LOG2_E, fabsf(x), 2.0f)); // 4 e
        const float r = math::rcp(fmaf(e4, 0.25f, 1.0f));
        return e4 * r * r;
    }
};
} // namespace coda::map
