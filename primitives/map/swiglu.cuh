// swiglu.cuh -- silu(gate) up.
//
// coda: map swiglu(gate, up) grad(gate = swiglu_grad_gate) grad(up = silu)
#pragma once
#include "math.cuh"

namespace coda::map {
struct swiglu {
    DEV static float apply(float gate, float up) { return gate * math::sigmoid(gate) * up; }
};
} // namespace coda::map
