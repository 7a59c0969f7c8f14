// relu2.cuh -- max(x, 0)^2.
//
// coda: map relu2(x) grad(x = relu2_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct relu2 {
    DEV static float apply(float x)
    {
        float r = math::max(x, 0.0f);
        return r * r;
    }
};
} // namespace coda::map
