// wgmma.cuh -- warpgroup matrix products: d[64, n] (+)= a[64, k] b[n, k]^T, 16-bit operands, fp32 sums.
//
// a and b lie in shared memory, 128-byte swizzled, as descriptor() says; a may instead be in registers.
// A warpgroup issues products after fence(), closes a group with commit(), and may touch d, or let the
// operands be overwritten, after wait().
//
// The fragment: thread t of the warpgroup, with w = t / 32 and l = t % 32, holds in d[i]
//     row 16 w + l / 4 + 8 ((i >> 1) & 1),   column 8 (i >> 2) + 2 (l % 4) + (i & 1).
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending> DEV void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// A sum, multiplied where products find it again: of `d *= by` ptxas may make copies, for which registers are
// short (C7512).
DEV void wgmma_scale(float &d, float by) { asm volatile("mul.f32 %0, %0, %1;" : "+f"(d) : "f"(by)); }

// A swizzled operand at a shared address. K-major, rows of 64 k: 8-row groups `stride` = 1024 bytes
// apart, and `leading` is ignored. MN-major, blocks of [k][64]: `leading` bytes from one block of 64
// to the next, `stride` = 1024 from one group of 8 k to the next.
DEV u64 wgmma_descriptor(u32 address, u32 leading, u32 stride)
{
    const u64 start = (address & 0x3ffff) >> 4, swizzle_128 = (u64)1 << 62;
    return start | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | swizzle_128;
}

// The same of an address / 16 and a number of bytes behind it, strides of 1024: where many are of one
// address, each costs an addition.
DEV u64 wgmma_descriptor_behind(u32 sixteenth, u32 bytes, u32 leading)
{
    const u64 upper = (u64)1 << 62 | (u64)(1024 >> 4) << 32;
    return upper | (sixteenth + (bytes >> 4) + (leading >> 4 << 16));
}

// The registers of n columns, and their operands in an asm statement: each adds 16 columns.
#define CODA_D16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CODA_D32 CODA_D16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CODA_D48 CODA_D32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CODA_D64 CODA_D48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define CODA_D72 CODA_D64 ", %32, %33, %34, %35"
#define CODA_D80 CODA_D64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define CODA_D88 CODA_D80 ", %40, %41, %42, %43"
#define CODA_D96 CODA_D80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define CODA_D112 CODA_D96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define CODA_D128 CODA_D112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define CODA_D144 CODA_D128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define CODA_D160 CODA_D144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define CODA_D176 CODA_D160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define CODA_D192 CODA_D176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define CODA_D208 CODA_D192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define CODA_D224 CODA_D208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define CODA_D240 CODA_D224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define CODA_D256 CODA_D240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define CODA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CODA_8(i) CODA_4(i), CODA_4(i + 4)
#define CODA_O16 CODA_8(0)
#define CODA_O32 CODA_O16, CODA_8(8)
#define CODA_O48 CODA_O32, CODA_8(16)
#define CODA_O64 CODA_O48, CODA_8(24)
#define CODA_O72 CODA_O64, CODA_4(32)
#define CODA_O80 CODA_O64, CODA_8(32)
#define CODA_O88 CODA_O80, CODA_4(40)
#define CODA_O96 CODA_O80, CODA_8(40)
#define CODA_O112 CODA_O96, CODA_8(48)
#define CODA_O128 CODA_O112, CODA_8(56)
#define CODA_O144 CODA_O128, CODA_8(64)
#define CODA_O160 CODA_O144, CODA_8(72)
#define CODA_O176 CODA_O160, CODA_8(80)
#define CODA_O192 CODA_O176, CODA_8(88)
#define CODA_O208 CODA_O192, CODA_8(96)
#define CODA_O224 CODA_O208, CODA_8(104)
#define CODA_O240 CODA_O224, CODA_8(112)
#define CODA_O256 CODA_O240, CODA_8(120)

// T: bf16 or f16; a_mn, b_mn: the operand is MN-major (a in registers never is); accumulate 0: d is
// overwritten. Of operands in shared memory four products, 64 k in a row of 128 bytes or 64 rows of them: one
// statement, as each one that holds d takes the compiler its time. With a in registers one, of 16 k.
template <class T, int n> struct Wgmma;

#define CODA_PRODUCT(T, n, a, b, accumulate, a_mn, b_mn)                                               \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #T "." #T " {" CODA_D##n "}, " a ", " b ", "     \
    accumulate ", 1, 1, " a_mn b_mn ";\n"
#define CODA_NEXT(T, n, r3, r4, r5, r6)                                                                \
    "add.s64 a, a, " r5 "; add.s64 b, b, " r6 ";\n" CODA_PRODUCT(T, n, "a", "b", "q", r3 ", ", r4)

#define CODA_WGMMA_SHAPE(T, n, r0, r1, r2, r3, r4, r5, r6)                                               \
    template <> struct Wgmma<T, n> {                                                                     \
        template <int a_mn, int b_mn> DEV static void mma(float (&d)[n / 2], u64 a, u64 b, int accumulate) \
        {                                                                                                \
            asm volatile("{ .reg .pred p, q; .reg .b64 a, b; mov.b64 a, " r0 "; mov.b64 b, " r1 ";\n"     \
                         "setp.ne.b32 p, " r2 ", 0; setp.eq.b32 q, " r2 ", " r2 ";\n"                     \
                         CODA_PRODUCT(T, n, "a", "b", "p", r3 ", ", r4) CODA_NEXT(T, n, r3, r4, r5, r6)  \
                         CODA_NEXT(T, n, r3, r4, r5, r6) CODA_NEXT(T, n, r3, r4, r5, r6) "}"             \
                         : CODA_O##n                                                                     \
                         : "l"(a), "l"(b), "r"(accumulate), "n"(a_mn), "n"(b_mn), "n"(a_mn ? 128 : 2),   \
                           "n"(b_mn ? 128 : 2));                                                         \
        }                                                                                                \
        template <int a_mn, int b_mn>                                                                        \
        DEV static void mma_once(float (&d)[n / 2], u64 a, u64 b, int accumulate)                            \
        {                                                                                                    \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, " r2 ", 0;\n" CODA_PRODUCT(T, n, r0, r1, "p",       \
                                                                                    r3 ", ", r4) "}"         \
                         : CODA_O##n                                                                         \
                         : "l"(a), "l"(b), "r"(accumulate), "n"(a_mn), "n"(b_mn));                           \
        }                                                                                                    \
        template <int b_mn> DEV static void mma(float (&d)[n / 2], const u32 (&a)[4], u64 b, int accumulate) \
        {                                                                                                \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, " r5 ", 0;\n"                                   \
                         CODA_PRODUCT(T, n, "{" r0 ", " r1 ", " r2 ", " r3 "}", r4, "p", "", r6) "}"     \
                         : CODA_O##n                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(b_mn)); \
        }                                                                                                \
    };

// A text that says which n it uses is compiled sooner: all of these take NVRTC some 25 ms, which it spends
// under a lock of the process.
#ifndef CODA_WGMMA
#define CODA_WGMMA(n) 1
#endif

// The numbers of the operands that follow d.
#define CODA_WGMMA_BOTH(n, ...)            \
    CODA_WGMMA_SHAPE(bf16, n, __VA_ARGS__) \
    CODA_WGMMA_SHAPE(f16, n, __VA_ARGS__)
#if CODA_WGMMA(16)
CODA_WGMMA_BOTH(16, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
#endif
#if CODA_WGMMA(32)
CODA_WGMMA_BOTH(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
#endif
#if CODA_WGMMA(48)
CODA_WGMMA_BOTH(48, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
#endif
#if CODA_WGMMA(64)
CODA_WGMMA_BOTH(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
#endif
#if CODA_WGMMA(72)
CODA_WGMMA_BOTH(72, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
#endif
#if CODA_WGMMA(80)
CODA_WGMMA_BOTH(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
#endif
#if CODA_WGMMA(88)
CODA_WGMMA_BOTH(88, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
#endif
#if CODA_WGMMA(96)
CODA_WGMMA_BOTH(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
#endif
#if CODA_WGMMA(112)
CODA_WGMMA_BOTH(112, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
#endif
#if CODA_WGMMA(128)
CODA_WGMMA_BOTH(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#endif
#if CODA_WGMMA(144)
CODA_WGMMA_BOTH(144, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
#endif
#if CODA_WGMMA(160)
CODA_WGMMA_BOTH(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
#endif
#if CODA_WGMMA(176)
CODA_WGMMA_BOTH(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
#endif
#if CODA_WGMMA(192)
CODA_WGMMA_BOTH(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
#endif
#if CODA_WGMMA(208)
CODA_WGMMA_BOTH(208, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
#endif
#if CODA_WGMMA(224)
CODA_WGMMA_BOTH(224, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
#endif
#if CODA_WGMMA(240)
CODA_WGMMA_BOTH(240, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
#endif
#if CODA_WGMMA(256)
CODA_WGMMA_BOTH(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#endif

} // namespace coda::ptx
