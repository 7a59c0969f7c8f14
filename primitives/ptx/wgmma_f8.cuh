// wgmma_f8.cuh -- warpgroup matrix products of fp8: d[64, n] (+)= a[64, k] b[n, k]^T, fp32 sums.
//
// As wgmma.cuh, but of 32 k where that has 16: a slot's 128 bytes of a row are 128 k. Both operands lie in
// shared memory, K-major: fp8 has no other form. Either may be e4m3 or e5m2.
//
// The tensor cores of Hopper add these products to fewer bits than fp32 has: some 14 of the largest addend
// (DeepSeek-V3, arXiv 2412.19437, section 3.3.2). Callers therefore add up short sums themselves.
#pragma once

#include "ptx/wgmma.cuh"

namespace coda::ptx {

template <class A, class B, int n> struct WgmmaF8;

#define CODA_PRODUCT_F8(ta, tb, n, accumulate)                                                               \
    "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32." #ta "." #tb " {" CODA_D##n "}, a, b, " accumulate      \
                                                                                 ", 1, 1;\n"
#define CODA_NEXT_F8(ta, tb, n) "add.s64 a, a, 2; add.s64 b, b, 2;\n" CODA_PRODUCT_F8(ta, tb, n, "q")

#define CODA_PRODUCTS_F8(name, n, products, r0, r1, r2)                                                      \
    DEV static void name(float(&d)[n / 2], u64 a, u64 b, int accumulate)                                     \
    {                                                                                                        \
        asm volatile("{ .reg .pred p, q; .reg .b64 a, b; mov.b64 a, " r0 "; mov.b64 b, " r1 ";\n"            \
                     "setp.ne.b32 p, " r2 ", 0; setp.eq.b32 q, " r2 ", " r2 ";\n" products "}"               \
                     : CODA_O##n                                                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                                                     \
    }
#define CODA_TWO_F8(ta, tb, n) CODA_PRODUCT_F8(ta, tb, n, "p") CODA_NEXT_F8(ta, tb, n)
#define CODA_FOUR_F8(ta, tb, n) CODA_TWO_F8(ta, tb, n) CODA_NEXT_F8(ta, tb, n) CODA_NEXT_F8(ta, tb, n)

// Four products, 128 k, or two. accumulate 0: d is overwritten.
#define CODA_WGMMA_F8_SHAPE(A, ta, B, tb, n, r0, r1, r2)                                                     \
    template <> struct WgmmaF8<A, B, n> {                                                                    \
        CODA_PRODUCTS_F8(mma, n, CODA_FOUR_F8(ta, tb, n), r0, r1, r2)                                        \
        CODA_PRODUCTS_F8(mma_half, n, CODA_TWO_F8(ta, tb, n), r0, r1, r2)                                    \
    };
#define CODA_WGMMA_F8(n, r0, r1, r2)                                                                         \
    CODA_WGMMA_F8_SHAPE(f8e4m3, e4m3, f8e4m3, e4m3, n, r0, r1, r2)                                           \
    CODA_WGMMA_F8_SHAPE(f8e4m3, e4m3, f8e5m2, e5m2, n, r0, r1, r2)                                           \
    CODA_WGMMA_F8_SHAPE(f8e5m2, e5m2, f8e4m3, e4m3, n, r0, r1, r2)                                           \
    CODA_WGMMA_F8_SHAPE(f8e5m2, e5m2, f8e5m2, e5m2, n, r0, r1, r2)

#if CODA_WGMMA(16)
CODA_WGMMA_F8(16, "%8", "%9", "%10")
#endif
#if CODA_WGMMA(32)
CODA_WGMMA_F8(32, "%16", "%17", "%18")
#endif
#if CODA_WGMMA(48)
CODA_WGMMA_F8(48, "%24", "%25", "%26")
#endif
#if CODA_WGMMA(64)
CODA_WGMMA_F8(64, "%32", "%33", "%34")
#endif
#if CODA_WGMMA(80)
CODA_WGMMA_F8(80, "%40", "%41", "%42")
#endif
#if CODA_WGMMA(96)
CODA_WGMMA_F8(96, "%48", "%49", "%50")
#endif
#if CODA_WGMMA(112)
CODA_WGMMA_F8(112, "%56", "%57", "%58")
#endif
#if CODA_WGMMA(128)
CODA_WGMMA_F8(128, "%64", "%65", "%66")
#endif
#if CODA_WGMMA(144)
CODA_WGMMA_F8(144, "%72", "%73", "%74")
#endif
#if CODA_WGMMA(160)
CODA_WGMMA_F8(160, "%80", "%81", "%82")
#endif
#if CODA_WGMMA(176)
CODA_WGMMA_F8(176, "%88", "%89", "%90")
#endif
#if CODA_WGMMA(192)
CODA_WGMMA_F8(192, "%96", "%97", "%98")
#endif

} // namespace coda::ptx
