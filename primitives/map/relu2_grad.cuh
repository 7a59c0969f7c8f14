// relu2_grad.cuh -- the derivative of relu2, 2 max(x, 0).
//
// coda: map relu2_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct relu2_grad {
    DEV static float apply(float x) { return 2.0f * math::max(x, 0.0f); }
};
} // namespace coda::map
