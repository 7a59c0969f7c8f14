// swiglu_clamped_grad_gate.cuh -- the derivative of swiglu_clamped by gate: (u + 1) s (1 + a (1 - s)) with
// a = alpha gate and s = sigmoid(a), u being up, but from -|limit| to |limit|; 0 where gate is above |limit|.
//
// coda: map swiglu_clamped_grad_gate(gate, up; alpha, limit)
#pragma once
#include "math.cuh"
#include "map/clip.cuh"
#include "map/silu_grad.cuh"

namespace coda::map {
struct swiglu_clamped_grad_gate {
    DEV static float apply(float gate, float up, float alpha, float limit)
    {
        const float most = fabsf(limit), u = clip::apply(up, -most, most);
        const float a = clip::apply(alpha * gate, -150.0f, 150.0f); // beyond, silu' is 1 or 0
        return gate > most ? 0.0f : (u + 1.0f) * silu_grad::apply(a);
    }
};
} // namespace coda::map
