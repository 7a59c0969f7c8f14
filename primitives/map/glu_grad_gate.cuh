// glu_grad_gate.cuh -- the derivative of glu by gate, sigmoid'(gate) up.
//
// coda: map glu_grad_gate(gate, up) grad(up = sigmoid_grad)
#pragma once
#include "math.cuh"
#include "map/sigmoid_grad.cuh"

namespace coda::map {
struct glu_grad_gate {
    DEV static float apply(float gate, float up) { return sigmoid_grad::apply(gate) * up; }
};
} // namespace coda::map
