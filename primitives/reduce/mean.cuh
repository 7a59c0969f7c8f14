// mean.cuh -- the mean of a row, online, 0 if it is empty: it overflows only where it is itself too large.
// NaN if the row holds inf or NaN. The mean about which m2 sums: of one row they are two readings of one
// state.
//
// coda: reduce mean(x) state 3 of m2
#pragma once
#include "reduce/m2.cuh"

namespace coda::reduce {
struct mean : m2 {
    static constexpr int state = 3;

    DEV static float finish(const State &s) { return s.v[1] + (s.v[1] - s.v[1]); } // infinite: NaN
};
} // namespace coda::reduce
