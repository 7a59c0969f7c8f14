// ceil.cuh -- the least integer that is not below x.
//
// coda: map ceil(x) grad(x = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct ceil {
    DEV static float apply(float x) { return ceilf(x); }
};
} // namespace coda::map
