// floor.cuh -- the largest integer that is not above x.
//
// coda: map floor(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct floor {
    DEV static float apply(float x) { return floorf(x); }
};
} // namespace coda::map
