// clip.cuh -- x, but at least low and at most high; high where they cross. NaN stays, a bound that is NaN is
// none.
//
// coda: map clip(x; low, high) grad(x = clip_grad)
#pragma once
#include "types.cuh"

namespace coda::map {
struct clip {
    DEV static float apply(float x, float low, float high)
    {
        float y = x < low ? low : x;
        return y > high ? high : y;
    }
};
} // namespace coda::map
