// geglu_erf.cuh -- gelu_erf(gate) up.
//
// coda: map geglu_erf(gate, up) narrow grad(gate = geglu_erf_grad_gate) grad(up = gelu_erf)
#pragma once
#include "math.cuh"
#include "map/gelu_erf.cuh"

namespace coda::map {
struct geglu_erf {
    DEV static float apply(float gate, float up) { return gelu_erf::apply(gate) * up; }
    DEV static float narrow(float gate, float up) { return gelu_erf::narrow(gate) * up; }
};
} // namespace coda::map
