// swiglu_clamped_grad_up.cuh -- the derivative of swiglu_clamped by up: g sigmoid(alpha g), g being the gate,
// but at most |limit|, where up is from -|limit| to |limit|, else 0.
//
// coda: map swiglu_clamped_grad_up(gate, up; alpha, limit) grad(up = 0)
#pragma once
#include "math.cuh"
#include "map/clip_grad.cuh"

namespace coda::map {
struct swiglu_clamped_grad_up {
    DEV static float apply(float gate, float up, float alpha, float limit)
    {
        const float most = fabsf(limit), g = gate > most ? most : gate;
        return clip_grad::apply(up, -most, most) * (g * math::sigmoid(alpha * g));
    }
};
} // namespace coda::map
