// nll_loss.cuh -- a row's cross entropy: its nll, 0 if the row is ignored, NaN if no class has its target.
//
// coda: map nll_loss(nll, target; ignore, classes) grad(nll = nll_loss_grad_nll) grad(target = 0)
#pragma once
#include "math.cuh"

namespace coda::map {
struct nll_loss {
    DEV static float apply(float nll, float target, float ignore, float classes)
    {
        if (target == ignore) return 0.0f;
        return 0.0f <= target && target < classes ? nll : math::not_a_number();
    }
};
} // namespace coda::map
