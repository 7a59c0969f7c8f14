// sub.cuh -- x - y.
//
// coda: map sub(x, y) linear(x, y) shift(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct sub {
    DEV static float apply(float x, float y) { return x - y; }
};
} // namespace coda::map
