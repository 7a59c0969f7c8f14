// scale.cuh -- alpha x.
//
// coda: map scale(x; alpha) linear(x) identity(alpha = 1)
#pragma once
#include "math.cuh"

namespace coda::map {
struct scale {
    DEV static float apply(float x, float alpha) { return alpha * x; }
};
} // namespace coda::map
