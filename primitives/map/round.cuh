// round.cuh -- the integer nearest to x, of two the even one.
//
// coda: map round(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct round {
    DEV static float apply(float x) { return rintf(x); }
};
} // namespace coda::map
