// rcp_grad.cuh -- the derivative of rcp, -1 / x^2. An x below 2^-126 may be taken for 0.
//
// coda: map rcp_grad(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct rcp_grad {
    DEV static float apply(float x)
    {
        const float y = math::rcp(x);
        return -y * y;
    }
};
} // namespace coda::map
