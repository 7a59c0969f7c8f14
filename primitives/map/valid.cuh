// valid.cuh -- 1 if the target counts, 0 if it is ignored.
//
// coda: map valid(target; ignore) grad(target = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct valid {
    DEV static float apply(float target, float ignore) { return target == ignore ? 0.0f : 1.0f; }
};
} // namespace coda::map
