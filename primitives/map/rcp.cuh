// rcp.cuh -- 1 / x. An x below 2^-126 may be taken for 0.
//
// coda: map rcp(x) grad(x = rcp_grad)
#pragma once
#include "math.cuh"

namespace coda::map {
struct rcp {
    DEV static float apply(float x) { return math::rcp(x); }
};
} // namespace coda::map
