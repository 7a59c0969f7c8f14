// wgmma.cuh -- emulated: see primitives/ptx/wgmma.cuh.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV void wgmma_fence() { emu_wgmma_fence(); }
DEV void wgmma_commit() { emu_wgmma_commit(); }
DEV void wgmma_scale(float &d, float by) { d *= by; }
template <int pending> DEV void wgmma_wait() { emu_wgmma_wait(pending); }

DEV u64 wgmma_descriptor(u32 address, u32 leading, u32 stride)
{
    const u64 start = (address & 0x3ffff) >> 4, swizzle_128 = (u64)1 << 62;
    return start | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | swizzle_128;
}

DEV u64 wgmma_descriptor_behind(u32 sixteenth, u32 bytes, u32 leading)
{
    return wgmma_descriptor(16 * sixteenth + bytes, leading, 1024);
}

template <class T> constexpr bool is_half = false;
template <> constexpr bool is_half<f16> = true;

template <class T, int n> struct Wgmma {
    static_assert(n % 8 == 0 && n >= 8 && n <= 256);
    template <int a_mn, int b_mn> DEV static void mma(float (&d)[n / 2], u64 a, u64 b, int accumulate)
    {
        for (int i = 0; i < 4; i++, a += a_mn ? 128 : 2, b += b_mn ? 128 : 2) {
            const emu_product p = {a, b, n, a_mn != 0, b_mn != 0, accumulate || i, is_half<T>};
            emu_wgmma(d, &p, nullptr);
        }
    }
    template <int a_mn, int b_mn> DEV static void mma_once(float (&d)[n / 2], u64 a, u64 b, int accumulate)
    {
        const emu_product p = {a, b, n, a_mn != 0, b_mn != 0, accumulate != 0, is_half<T>};
        emu_wgmma(d, &p, nullptr);
    }
    template <int b_mn> DEV static void mma(float (&d)[n / 2], const u32 (&a)[4], u64 b, int accumulate)
    {
        const emu_product p = {0, b, n, false, b_mn != 0, accumulate != 0, is_half<T>};
        emu_wgmma(d, &p, a);
    }
};

} // namespace coda::ptx
