// sign.cuh -- 1 of what is above 0, -1 of what is below; 0 and NaN stay.
//
// coda: map sign(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct sign {
    DEV static float apply(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
};
} // namespace coda::map
