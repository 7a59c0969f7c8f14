// reglu_grad_gate.cuh -- the derivative of reglu by gate: up where gate is above 0, else 0 up.
//
// coda: map reglu_grad_gate(gate, up) grad(gate = 0) grad(up = relu_grad)
#pragma once
#include "math.cuh"
#include "map/relu_grad.cuh"

namespace coda::map {
struct reglu_grad_gate {
    DEV static float apply(float gate, float up) { return relu_grad::apply(gate) * up; }
};
} // namespace coda::map
