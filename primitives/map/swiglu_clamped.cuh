// swiglu_clamped.cuh -- (u + 1) g sigmoid(alpha g), g being the gate, but at most |limit|, and u being up,
// but from -|limit| to |limit|. gpt-oss (arXiv 2508.10925) has it, with alpha 1.702 and limit 7.
//
// coda: map swiglu_clamped(gate, up; alpha, limit)
#pragma once
#include "math.cuh"
#include "map/clip.cuh"

namespace coda::map {
struct swiglu_clamped {
    DEV static float apply(float gate, float up, float alpha, float limit)
    {
        const float most = fabsf(limit), g = gate > most ? most : gate, u = clip::apply(up, -most, most);
        return g * math::sigmoid(alpha * g) * (u + 1.0f);
    }
};
} // namespace coda::map
