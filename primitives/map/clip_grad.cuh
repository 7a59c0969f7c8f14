// clip_grad.cuh -- the derivative of clip: 1 from low to high, 0 elsewhere. NaN stays, a bound that is NaN is
// none.
//
// coda: map clip_grad(x; low, high) grad(x = 0)
#pragma once
#include "types.cuh"

namespace coda::map {
struct clip_grad {
    DEV static float apply(float x, float low, float high)
    {
        return x < low || x > high ? 0.0f : x == x ? 1.0f : x;
    }
};
} // namespace coda::map
