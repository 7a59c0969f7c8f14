// exp_sub.cuh -- exp(x - l), a softmax from its log_sum_exp l.
//
// coda: map exp_sub(x, l)
#pragma once
#include "math.cuh"

namespace coda::map {
struct exp_sub {
    DEV static float apply(float x, float l) { return math::exp(x - l); }
};
} // namespace coda::map
