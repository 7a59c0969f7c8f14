// matrix.cuh -- ldmatrix, stmatrix: a warp reads, writes 8x8 matrices of 16-bit elements in shared memory,
// and each lane two words of 32 bits; mma.sync: it multiplies matrices; what makes its elements of bytes.
//
// Of the first two, register i holds this lane's two elements of matrix i: row lane / 4, columns 2 (lane % 4)
// and the next. Lane 8 i + r gives the address of row r of matrix i, 16 bytes, 16-byte aligned. What is
// transposed on its way is column lane / 4, rows 2 (lane % 4) and the next.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV void stmatrix(u32 address, u32 m0, u32 m1)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(m0), "r"(m1)
                 : "memory");
}
DEV void stmatrix(u32 address, u32 m0, u32 m1, u32 m2, u32 m3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

DEV void stmatrix_transposed(u32 address, u32 m0, u32 m1, u32 m2, u32 m3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

DEV void ldmatrix(u32 address, u32 (&m)[2])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(m[0]), "=r"(m[1])
                 : "r"(address)
                 : "memory");
}
DEV void ldmatrix(u32 address, u32 (&m)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

DEV void ldmatrix_transposed(u32 address, u32 (&m)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

// Two words of 32 bits, at a multiple of 8 bytes.
DEV void shared_store(u32 address, const u32 (&x)[2])
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x[0]), "r"(x[1]) : "memory");
}
DEV void shared_load(u32 (&x)[2], u32 address)
{
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(address) : "memory");
}

// The lower two bytes, e4m3, as two f16, which is exact; the upper two.
DEV u32 widen_e4m3(u32 x)
{
    u32 y;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"((u16)x));
    return y;
}
DEV u32 widen_upper_e4m3(u32 x)
{
    u32 y;
    asm("{ .reg .b16 lower, upper; mov.b32 {lower, upper}, %1; cvt.rn.f16x2.e4m3x2 %0, upper; }"
        : "=r"(y)
        : "r"(x));
    return y;
}
// Bytes 0 and 2, then 1 and 3.
DEV u32 unzip_bytes(u32 x)
{
    u32 y;
    asm("prmt.b32 %0, %1, 0, 0x3120;" : "=r"(y) : "r"(x));
    return y;
}

// Four of the eight bytes of x and y, of which x has the lower ones, by their numbers.
template <u32 numbers> DEV u32 pick_bytes(u32 x, u32 y)
{
    u32 z;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "n"(numbers));
    return z;
}

// The bits of x that are in `mask`, and `more`, in one instruction.
template <u32 mask, u32 more> DEV u32 bits_and_more(u32 x)
{
    u32 z;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(z) : "r"(x), "n"(mask), "r"(more));
    return z;
}

// The larger ones of two pairs of 16-bit integers without a sign.
DEV u32 larger_pairs(u32 x, u32 y)
{
    u32 z;
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
    asm("max.u16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
#else
    z = max(x & 0xffff, y & 0xffff) | max(x >> 16, y >> 16) << 16;
#endif
    return z;
}

// The difference of two pairs, each rounded.
template <class T> DEV u32 subtract_pairs(u32 x, u32 y);
template <> DEV u32 subtract_pairs<f16>(u32 x, u32 y)
{
    u32 z;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
template <> DEV u32 subtract_pairs<bf16>(u32 x, u32 y)
{
    u32 z;
    asm("sub.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
#endif

// The product of two pairs, each rounded; subnormals count.
template <class T> DEV u32 multiply_pairs(u32 x, u32 y);
template <> DEV u32 multiply_pairs<f16>(u32 x, u32 y)
{
    u32 z;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
template <> DEV u32 multiply_pairs<bf16>(u32 x, u32 y)
{
    u32 z;
    asm("mul.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
#endif

// Of pairs: x y + z, rounded once; subnormals count.
template <class T> DEV u32 multiply_add_pairs(u32 x, u32 y, u32 z);
template <> DEV u32 multiply_add_pairs<f16>(u32 x, u32 y, u32 z)
{
    u32 sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    return sum;
}
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
template <> DEV u32 multiply_add_pairs<bf16>(u32 x, u32 y, u32 z)
{
    u32 sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    return sum;
}
#endif

// d[16, 8] += a[16, 16] b[16, 8]. With g = lane / 4 and j = lane % 4, a lane has k 2 j and 2 j + 1 of a's row
// g, then of row g + 8, and both again 8 k on; the same four k of b's column g; and columns 2 j and 2 j + 1
// of d's row g, then of row g + 8.
template <class T> DEV void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
#define MMA(T, type)                                                                                         \
    template <> DEV void mma<T>(float(&d)[4], const u32(&a)[4], u32 b0, u32 b1)                              \
    {                                                                                                        \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                           \
            ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                 \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                 \
    }
MMA(bf16, "bf16")
MMA(f16, "f16")
#undef MMA

// d = c + a b, likewise.
template <class T> DEV void mma(float (&d)[4], const float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
#define MMA(T, type)                                                                                         \
    template <> DEV void mma<T>(float(&d)[4], const float(&c)[4], const u32(&a)[4], u32 b0, u32 b1)          \
    {                                                                                                        \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                           \
            ".f32 {%0, %1, %2, %3}, {%8, %9, %10, %11}, {%12, %13}, {%4, %5, %6, %7};"                       \
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                 \
            : "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),        \
              "r"(b0), "r"(b1));                                                                             \
    }
MMA(bf16, "bf16")
MMA(f16, "f16")
#undef MMA

// d[16, 8] += a[16, 4] b[4, 8], or the same of 8 k, in tf32: the lower 13 bits of a number count for nothing.
// A lane has k j of a's row g, then of row g + 8, and both again 4 k on; the same k of b's column g; and d's
// as above.
DEV void mma_tf32(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1])
{
    asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
DEV void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d[16, 8] += a[16, 32] b[32, 8], of bytes: a's without a sign, b's with one. A lane has k 4 j to 4 j + 3 of
// a's row g, then of row g + 8, and both again 16 k on; the same k of b's column g; and d's as above.
DEV void mma_bytes(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},\n"
        "    {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

} // namespace coda::ptx
