// where_grad_a.cuh -- the derivative of where by a: 1 where the condition is not 0, else 0. NaN is not 0.
//
// coda: map where_grad_a(condition) grad(condition = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct where_grad_a {
    DEV static float apply(float condition) { return condition != 0.0f ? 1.0f : 0.0f; }
};
} // namespace coda::map
