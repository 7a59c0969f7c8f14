// wgmma_f8.cuh -- emulated: see primitives/ptx/wgmma_f8.cuh.
#pragma once

#include "ptx/wgmma.cuh"

namespace coda::ptx {

template <class T> constexpr int f8_kind = 1; // of e4m3
template <> constexpr int f8_kind<f8e5m2> = 2;

template <class A, class B, int n> struct WgmmaF8 {
    static_assert(n % 8 == 0 && n >= 8 && n <= 256);
    template <int products> DEV static void multiply(float (&d)[n / 2], u64 a, u64 b, int accumulate)
    {
        for (int i = 0; i < products; i++, a += 2, b += 2) {
            const emu_product p = {a, b, n, false, false, accumulate || i, false, f8_kind<A>, f8_kind<B>};
            emu_wgmma(d, &p, nullptr);
        }
    }
    DEV static void mma(float (&d)[n / 2], u64 a, u64 b, int accumulate) { multiply<4>(d, a, b, accumulate); }
    DEV static void mma_half(float (&d)[n / 2], u64 a, u64 b, int accumulate)
    {
        multiply<2>(d, a, b, accumulate);
    }
};

} // namespace coda::ptx
