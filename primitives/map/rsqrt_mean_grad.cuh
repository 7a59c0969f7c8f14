// rsqrt_mean_grad.cuh -- the derivative of rsqrt_mean, -inv_n y^3 / 2 with y = 1 / sqrt(s inv_n + eps).
//
// NaN for a sum that is infinite, as rsqrt_mean is.
//
// coda: map rsqrt_mean_grad(s; inv_n, eps)
#pragma once
#include "math.cuh"

namespace coda::map {
struct rsqrt_mean_grad {
    DEV static float apply(float s, float inv_n, float eps)
    {
        const float y = math::rsqrt(fmaf(s, inv_n, eps));
        return -0.5f * inv_n * y * y * y + (s - s);
    }
};
} // namespace coda::map
