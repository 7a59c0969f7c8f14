// swiglu_grad_gate.cuh -- the derivative of swiglu by gate, silu'(gate) up.
//
// coda: map swiglu_grad_gate(gate, up) grad(up = silu_grad)
#pragma once
#include "math.cuh"
#include "map/silu_grad.cuh"

namespace coda::map {
struct swiglu_grad_gate {
    DEV static float apply(float gate, float up) { return silu_grad::apply(gate) * up; }
};
} // namespace coda::map
