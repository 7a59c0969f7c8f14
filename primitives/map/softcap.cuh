// softcap.cuh -- cap tanh(x / cap): x where it is small, and never beyond +-cap.
//
// coda: map softcap(x; cap) grad(x = softcap_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct softcap {
    // A cap is mostly a constant, so that its reciprocal is one, too. A large cap is divided by 2^64 first,
    // or its reciprocal would be subnormal.
    DEV static float apply(float x, float cap)
    {
        const float down = fabsf(cap) > 0x1p64f ? 0x1p-64f : 1.0f;
        return cap * math::tanh(x * down * (1.0f / (cap * down)));
    }
};
} // namespace coda::map
