// to_f16.cuh -- x as fp16 holds it: what a reader of the stored tensor will see.
//
// coda: map to_f16(x) grad(x = 1)
#pragma once
#include "math.cuh"

namespace coda::map {
struct to_f16 {
    DEV static float apply(float x) { return to_float(from_float<f16>(x)); }
};
} // namespace coda::map
