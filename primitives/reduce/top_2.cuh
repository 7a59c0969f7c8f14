// top_2.cuh -- the 2 largest elements of a row, with their columns: the second, -inf if there are fewer.
// NaN is above all.
//
// coda: reduce top_2(x) state 4 exact grad(x = equal)
#pragma once
#include "best.cuh"

namespace coda::reduce {
struct top_2 : Best<2> {
    static constexpr int state = 4;
};
} // namespace coda::reduce
