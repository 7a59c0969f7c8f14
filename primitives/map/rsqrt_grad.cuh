// rsqrt_grad.cuh -- the derivative of rsqrt, -y^3 / 2 with y = 1 / sqrt(x).
//
// coda: map rsqrt_grad(x)
#pragma once
#include "math.cuh"
#include "map/rsqrt.cuh"

namespace coda::map {
struct rsqrt_grad {
    DEV static float apply(float x)
    {
        const float y = rsqrt::apply(x);
        return -0.5f * y * y * y;
    }
};
} // namespace coda::map
