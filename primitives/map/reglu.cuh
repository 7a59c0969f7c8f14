// reglu.cuh -- relu(gate) up.
//
// coda: map reglu(gate, up) grad(gate = reglu_grad_gate) grad(up = relu)
#pragma once
#include "math.cuh"

namespace coda::map {
struct reglu {
    DEV static float apply(float gate, float up) { return math::max(gate, 0.0f) * up; }
};
} // namespace coda::map
