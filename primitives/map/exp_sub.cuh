// exp_sub.cuh -- exp(x - l), a softmax's weight before it is divided if l is the row's largest x.
//
// coda: map exp_sub(x, l) grad(x = exp_sub) grad(l = exp_sub_grad_l)
#pragma once
#include "math.cuh"

namespace coda::map {
struct exp_sub {
    DEV static float apply(float x, float l) { return math::exp(x - l); }
};
} // namespace coda::map
