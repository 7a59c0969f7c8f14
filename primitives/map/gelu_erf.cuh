// gelu_erf.cuh -- x P(X <= x) for a normal X, that is x/2 (1 + erf(x / sqrt 2)).
//
// coda: map gelu_erf(x) narrow grad(x = gelu_erf_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct gelu_erf {
    DEV static float apply(float x) { return x * math::normal_cdf(x); }
    DEV static float narrow(float x) { return x * math::normal_cdf_narrow(x); }
};
} // namespace coda::map
