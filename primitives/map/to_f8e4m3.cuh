// to_f8e4m3.cuh -- x as f8e4m3 holds it, at most 448.
//
// coda: map to_f8e4m3(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct to_f8e4m3 {
    DEV static float apply(float x) { return to_float(from_float<f8e4m3>(x)); }
};
} // namespace coda::map
