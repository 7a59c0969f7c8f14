// exp.cuh -- e^x.
//
// coda: map exp(x) grad(x = exp)
#pragma once
#include "math.cuh"

namespace coda::map {
struct exp {
    DEV static float apply(float x) { return math::exp(x); }
};
} // namespace coda::map
