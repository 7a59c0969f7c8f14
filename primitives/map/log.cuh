// log.cuh -- the natural logarithm of x: -inf of 0, NaN of what is below.
//
// coda: map log(x) grad(x = rcp)
#pragma once
#include "math.cuh"

namespace coda::map {
struct log {
    DEV static float apply(float x) { return math::log(x); }
};
} // namespace coda::map
