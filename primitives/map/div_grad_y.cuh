// div_grad_y.cuh -- the derivative of x / y by y, -x / y^2.
//
// coda: map div_grad_y(x, y) linear(x)
#pragma once
#include "math.cuh"

namespace coda::map {
struct div_grad_y {
    DEV static float apply(float x, float y) { return -(x / y) / y; }
};
} // namespace coda::map
