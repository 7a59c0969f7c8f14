// top_16.cuh -- the 16 largest elements of a row, with their columns: the sixteenth, -inf if there are fewer.
// NaN is above all.
//
// coda: reduce top_16(x) state 32 exact grad(x = equal)
#pragma once
#include "best.cuh"

namespace coda::reduce {
struct top_16 : Best<16> {
    static constexpr int state = 32;
};
} // namespace coda::reduce
