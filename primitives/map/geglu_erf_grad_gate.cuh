// geglu_erf_grad_gate.cuh -- the derivative of geglu_erf by gate, gelu_erf'(gate) up.
//
// coda: map geglu_erf_grad_gate(gate, up) grad(up = gelu_erf_grad)
#pragma once
#include "math.cuh"
#include "map/gelu_erf_grad.cuh"

namespace coda::map {
struct geglu_erf_grad_gate {
    DEV static float apply(float gate, float up) { return gelu_erf_grad::apply(gate) * up; }
};
} // namespace coda::map
