// wgmma_register_a.cuh -- wgmma with its A operand in registers and B transposed: D[64, N] += A[64, 16] B.
//
// For a B tile whose columns are adjacent in memory (MN-major): 64-column blocks of 16 k-rows each. The A
// fragment of a thread is four registers of two elements: {row, k}, {row + 8, k}, {row, k + 8},
// {row + 8, k + 8} with row = lane / 4 and k = 2 (lane % 4). D must be zeroed first, and neither D nor A be
// touched, between wgmma_fence and wgmma_wait.
#pragma once
#include "types.cuh"

namespace coda {

#define CODA_LIST_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CODA_LIST_64 CODA_LIST_32 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CODA_LIST_96 CODA_LIST_64 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define CODA_LIST_128 CODA_LIST_96 ", " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define CODA_ACC_8(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define CODA_ACC_32(i) CODA_ACC_8(i), CODA_ACC_8(i + 8), CODA_ACC_8(i + 16), CODA_ACC_8(i + 24)
#define CODA_ACC_64(i) CODA_ACC_32(i), CODA_ACC_32(i + 32)

// n columns; the n / 2 accumulators are operands 0 .., then come a0 .. a3 and the descriptor.
#define CODA_WGMMA(n, type, list, a0, a1, a2, a3, desc, ...) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" list "}, {%" #a0 \
                 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #desc ", 1, 1, 1, 1;" \
                 : __VA_ARGS__ \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define CODA_WGMMA_REGISTER_A(type_name, type) \
    DEV void wgmma_register_a(type_name, float (&d)[32], const u32 *a, u64 b) { \
        CODA_WGMMA(64, type, CODA_LIST_32, 32, 33, 34, 35, 36, CODA_ACC_32(0)); \
    } \
    DEV void wgmma_register_a(type_name, float (&d)[64], const u32 *a, u64 b) { \
        CODA_WGMMA(128, type, CODA_LIST_64, 64, 65, 66, 67, 68, CODA_ACC_64(0)); \
    } \
    DEV void wgmma_register_a(type_name, float (&d)[96], const u32 *a, u64 b) { \
        CODA_WGMMA(192, type, CODA_LIST_96, 96, 97, 98, 99, 100, CODA_ACC_64(0), CODA_ACC_32(64)); \
    } \
    DEV void wgmma_register_a(type_name, float (&d)[128], const u32 *a, u64 b) { \
        CODA_WGMMA(256, type, CODA_LIST_128, 128, 129, 130, 131, 132, CODA_ACC_64(0), CODA_ACC_64(64)); \
    }

// One overload for each storage type, named by an empty value of it.
CODA_WGMMA_REGISTER_A(bf16, "bf16")
CODA_WGMMA_REGISTER_A(f16, "f16")

#undef CODA_WGMMA_REGISTER_A
#undef CODA_WGMMA
#undef CODA_ACC_64
#undef CODA_ACC_32
#undef CODA_ACC_8
#undef CODA_LIST_128
#undef CODA_LIST_96
#undef CODA_LIST_64
#undef CODA_LIST_32

} // namespace coda
