// logical_not.cuh -- 1 where x is 0, else 0. NaN is not 0.
//
// coda: map logical_not(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct logical_not {
    DEV static float apply(float x) { return x == 0.0f ? 1.0f : 0.0f; }
};
} // namespace coda::map
