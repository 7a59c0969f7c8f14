// where.cuh -- a where the condition is not 0, else b, whatever the other one is. NaN is not 0.
//
// coda: map where(condition, a, b) dtype(a) grad(condition = 0) linear(a, b)
#pragma once
#include "math.cuh"

namespace coda::map {
struct where {
    DEV static float apply(float condition, float a, float b) { return condition != 0.0f ? a : b; }
};
} // namespace coda::map
