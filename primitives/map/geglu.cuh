// geglu.cuh -- gelu_tanh(gate) up.
//
// coda: map geglu(gate, up) grad(gate = geglu_grad_gate) grad(up = gelu_tanh)
#pragma once
#include "math.cuh"
#include "map/gelu_tanh.cuh"

namespace coda::map {
struct geglu {
    DEV static float apply(float gate, float up) { return gelu_tanh::apply(gate) * up; }
};
} // namespace coda::map
