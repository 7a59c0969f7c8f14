// add.cuh -- x + y.
//
// coda: map add(x, y) linear(x, y) shift(x) shift(y)
#pragma once
#include "math.cuh"

namespace coda::map {
struct add {
    DEV static float apply(float x, float y) { return x + y; }
};
} // namespace coda::map
