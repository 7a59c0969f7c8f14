// geglu_grad_gate.cuh -- the derivative of geglu by gate, gelu_tanh'(gate) up.
//
// coda: map geglu_grad_gate(gate, up) grad(up = gelu_tanh_grad)
#pragma once
#include "math.cuh"
#include "map/gelu_tanh_grad.cuh"

namespace coda::map {
struct geglu_grad_gate {
    DEV static float apply(float gate, float up) { return gelu_tanh_grad::apply(gate) * up; }
};
} // namespace coda::map
