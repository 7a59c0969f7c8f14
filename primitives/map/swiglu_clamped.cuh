// swiglu_clamped.cuh -- (u + 1) g sigmoid(alpha g), g being the gate, but at most |limit|, and u being up,
// but from -|limit| to |limit|. gpt-oss (arXiv 2508.10925) has it, with alpha 1.702 and limit 7.
//
// The sigmoid is 2^24 times as large, and u + 1 as much smaller, as rcp knows nothing below 2^-126.
//
// coda: map swiglu_clamped(gate, up; alpha, limit) grad(gate = swiglu_clamped_grad_gate) grad(up = swiglu_clamped_grad_up)
#pragma once
#include "math.cuh"
#include "map/clip.cuh"

namespace coda::map {
struct swiglu_clamped {
    DEV static float apply(float gate, float up, float alpha, float limit)
    {
        const float most = fabsf(limit), g = gate > most ? most : gate, u = clip::apply(up, -most, most);
        const float e = math::exp2(-math::LOG2_E * (alpha * g)), tiny = 0x1p-24f;
        return math::rcp(fmaf(e, tiny, tiny)) * fmaf(u, tiny, tiny) * g;
    }
};
} // namespace coda::map
