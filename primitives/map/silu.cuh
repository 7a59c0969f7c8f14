// silu.cuh -- x sigmoid(x), also called swish.
//
// coda: map silu(x) grad(x = silu_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct silu {
    DEV static float apply(float x) { return x * math::sigmoid(x); }
};
} // namespace coda::map
