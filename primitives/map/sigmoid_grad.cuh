// sigmoid_grad.cuh -- the derivative of sigmoid, s (1 - s) with s = sigmoid(x).
//
// It is e / (1 + e)^2 with e = exp(-|x|): 1 - s has no digits left where s is nearly 1.
//
// coda: map sigmoid_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct sigmoid_grad {
    DEV static float apply(float x)
    {
        const float e = math::exp2(-math::LOG2_E * fabsf(x)), r = math::rcp(1.0f + e);
        return e * r * r;
    }
};
} // namespace coda::map
