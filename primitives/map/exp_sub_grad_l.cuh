// exp_sub_grad_l.cuh -- the derivative of exp(x - l) by l, -exp(x - l).
//
// coda: map exp_sub_grad_l(x, l) grad(x = exp_sub_grad_l) grad(l = exp_sub)
#pragma once
#include "math.cuh"

namespace coda::map {
struct exp_sub_grad_l {
    DEV static float apply(float x, float l) { return -math::exp(x - l); }
};
} // namespace coda::map
