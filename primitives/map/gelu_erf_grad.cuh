// gelu_erf_grad.cuh -- the derivative of gelu_erf, P(X <= x) + x p(x) for a normal X, whose density p(x) is
// exp(-x^2 / 2) / sqrt(2 pi).
//
// Those of x and of -x are 1 together, and both terms of the one of -|x| have the exponential: math.cuh says
// how normal_cdf is computed.
//
// coda: map gelu_erf_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gelu_erf_grad {
    DEV static float apply(float x)
    {
        const float a = fabsf(x), bell = math::exp2(-0.5f * math::LOG2_E * (a * a));
        const float left = bell * fmaf(-0.398942280f, a, math::normal_tail(a)); // of -|x|
        return x > 0.0f ? 1.0f - left : left;
    }
};
} // namespace coda::map
