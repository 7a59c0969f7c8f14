// nll_loss_grad_nll.cuh -- the derivative of nll_loss by nll: 1, 0 if the row is ignored, NaN if no class has
// its target.
//
// coda: map nll_loss_grad_nll(nll, target; ignore, classes) grad(nll, target = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct nll_loss_grad_nll {
    DEV static float apply(float, float target, float ignore, float classes)
    {
        if (target == ignore) return 0.0f;
        return 0.0f <= target && target < classes ? 1.0f : math::not_a_number();
    }
};
} // namespace coda::map
