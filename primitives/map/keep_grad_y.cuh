// keep_grad_y.cuh -- the derivative of keep by y: 1 where x is not below `least`, else 0.
//
// coda: map keep_grad_y(y, x, least) grad(y, x, least = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct keep_grad_y {
    DEV static float apply(float, float x, float least) { return x < least ? 0.0f : 1.0f; }
};
} // namespace coda::map
