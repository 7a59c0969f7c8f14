// abs.cuh -- |x|.
//
// coda: map abs(x) grad(x = sign)
#pragma once
#include "math.cuh"

namespace coda::map {
struct abs {
    DEV static float apply(float x) { return fabsf(x); }
};
} // namespace coda::map
