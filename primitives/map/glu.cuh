// glu.cuh -- sigmoid(gate) up.
//
// coda: map glu(gate, up) grad(gate = glu_grad_gate) grad(up = sigmoid)
#pragma once
#include "math.cuh"

namespace coda::map {
struct glu {
    DEV static float apply(float gate, float up) { return math::sigmoid(gate) * up; }
};
} // namespace coda::map
