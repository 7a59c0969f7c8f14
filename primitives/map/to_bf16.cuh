// to_bf16.cuh -- x as bf16 holds it: what a reader of the stored tensor will see.
//
// coda: map to_bf16(x) grad(x = 1)
#pragma once
#include "math.cuh"

namespace coda::map {
struct to_bf16 {
    DEV static float apply(float x) { return bits_float(pack2<bf16>(0.0f, x)); } // one instruction
};
} // namespace coda::map
