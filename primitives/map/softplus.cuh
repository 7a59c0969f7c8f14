// softplus.cuh -- log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)).
//
// coda: map softplus(x) grad(x = sigmoid)
#pragma once
#include "math.cuh"

namespace coda::map {
struct softplus {
    DEV static float apply(float x) { return math::max(x, 0.0f) + math::log1p(math::exp(-fabsf(x))); }
};
} // namespace coda::map
