// to_f8e5m2.cuh -- x as f8e5m2 holds it; infinity from 61440 on.
//
// coda: map to_f8e5m2(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct to_f8e5m2 {
    DEV static float apply(float x) { return to_float(from_float<f8e5m2>(x)); }
};
} // namespace coda::map
