// nll.cuh -- a row's cross entropy: lse - pick, 0 if it is ignored, NaN if no class has its target.
//
// coda: map nll(lse, pick, target; ignore, classes)
#pragma once
#include "math.cuh"

namespace coda::map {
struct nll {
    DEV static float apply(float lse, float pick, float target, float ignore, float classes)
    {
        if (target == ignore) return 0.0f;
        return 0.0f <= target && target < classes ? lse - pick : math::not_a_number();
    }
};
} // namespace coda::map
