// rope.cuh -- rotates the pair (a, b) by an angle t, whose turn is {cos t, sin t}: rotary position embedding.
//
//     a' = a cos t - b sin t,   b' = a sin t + b cos t
//
// coda: pair rope(a, b, turn)
#pragma once
#include "types.cuh"

namespace coda::pair {
struct rope {
    DEV static Pair apply(float a, float b, Pair turn)
    {
        return {fmaf(a, turn.a, -(b * turn.b)), fmaf(a, turn.b, b * turn.a)};
    }
};
} // namespace coda::pair
