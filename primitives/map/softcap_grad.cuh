// softcap_grad.cuh -- the derivative of softcap, 1 - tanh(x / cap)^2.
//
// coda: map softcap_grad(x; cap)
#pragma once
#include "math.cuh"
#include "map/tanh_grad.cuh"

namespace coda::map {
struct softcap_grad {
    // As softcap has it: a large cap is divided by 2^64 first, or its reciprocal would be subnormal.
    DEV static float apply(float x, float cap)
    {
        const float down = fabsf(cap) > 0x1p64f ? 0x1p-64f : 1.0f;
        return tanh_grad::apply(x * down * (1.0f / (cap * down)));
    }
};
} // namespace coda::map
