// rsqrt_mean.cuh -- 1 / sqrt(s inv_n + eps), the factor of a normalisation from a row's sum of squares s.
//
// NaN for a sum that is infinite: its row had better not look like zeros.
//
// coda: map rsqrt_mean(s; inv_n, eps) nonzero grad(s = rsqrt_mean_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct rsqrt_mean {
    DEV static float apply(float s, float inv_n, float eps)
    {
        return math::rsqrt(fmaf(s, inv_n, eps)) + (s - s);
    }
};
} // namespace coda::map
