// gumbel.cuh -- x and t times a number of the Gumbel distribution, which is -log(e) of an exponential one. Of
// these the largest of a row is at column c with the probability that softmax(x / t) has there, so that
// arg_max draws (Gumbel 1954; Maddison et al., arXiv 1411.0030). With t = 0, or less, it is x.
//
// coda: map gumbel(x, e, t) grad(x = 1)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gumbel {
    DEV static float apply(float x, float e, float t) { return fmaf(-math::max(t, 0.0f), math::log(e), x); }
};
} // namespace coda::map
