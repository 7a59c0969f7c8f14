// div.cuh -- x / y.
//
// coda: map div(x, y) linear(x) quotient(y) grad(y = div_grad_y)
#pragma once
#include "math.cuh"

namespace coda::map {
struct div {
    DEV static float apply(float x, float y) { return x / y; }
};
} // namespace coda::map
