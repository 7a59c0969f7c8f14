// silu.cuh -- x sigmoid(x), also called swish.
//
// coda: map silu(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct silu {
    DEV static float apply(float x) { return x * math::sigmoid(x); }
};
} // namespace coda::map
