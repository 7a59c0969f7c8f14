// mul.cuh -- x y.
//
// coda: map mul(x, y) linear(x) linear(y) identity(y = 1)
#pragma once
#include "math.cuh"

namespace coda::map {
struct mul {
    DEV static float apply(float x, float y) { return x * y; }
};
} // namespace coda::map
