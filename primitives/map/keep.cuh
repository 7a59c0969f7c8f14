// keep.cuh -- y where x is not below `least`, else -inf.
//
// coda: map keep(y, x, least) grad(y = keep_grad_y) grad(x, least = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct keep {
    DEV static float apply(float y, float x, float least) { return x < least ? -math::infinity() : y; }
};
} // namespace coda::map
