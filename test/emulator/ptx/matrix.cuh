// matrix.cuh -- emulated: see primitives/ptx/matrix.cuh.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV void stmatrix(u32 address, u32 m0, u32 m1)
{
    const u32 m[2] = {m0, m1};
    emu_matrix_store(address, m, 2);
}
DEV void stmatrix(u32 address, u32 m0, u32 m1, u32 m2, u32 m3)
{
    const u32 m[4] = {m0, m1, m2, m3};
    emu_matrix_store(address, m, 4);
}
/* A lane has rows 2 (l % 4) and the next of column l / 4, and gets such columns of row l / 4. */
DEV void stmatrix_transposed(u32 address, u32 m0, u32 m1, u32 m2, u32 m3)
{
    u32 m[4] = {m0, m1, m2, m3};
    const u32 lane = threadIdx.x % 32, from = lane % 4 * 8 + lane / 8, shift = lane / 4 % 2 * 16;
    for (int i = 0; i < 4; i++) {
        const u32 low = __shfl_sync(~0u, m[i], from), high = __shfl_sync(~0u, m[i], from + 4);
        m[i] = (low >> shift & 0xffff) | (high >> shift & 0xffff) << 16;
    }
    emu_matrix_store(address, m, 4);
}
DEV void ldmatrix(u32 address, u32 (&m)[2]) { emu_matrix_load(address, m, 2); }
DEV void ldmatrix(u32 address, u32 (&m)[4]) { emu_matrix_load(address, m, 4); }
DEV void ldmatrix_transposed(u32 address, u32 (&m)[4]) { emu_matrix_load_transposed(address, m); }
DEV void shared_store(u32 address, const u32 (&x)[2]) { emu_pair_store(address, x); }
DEV void shared_load(u32 (&x)[2], u32 address) { emu_pair_load(x, address); }

/* The value of each byte, by its fields. */
DEV u32 widen_e4m3(u32 x)
{
    u32 y = 0;
    for (int i = 0; i < 2; i++) {
        const int b = x >> 8 * i & 0xff, e = b >> 3 & 15, m = b & 7;
        const float a = (b & 0x7f) == 0x7f ? NAN
                        : e                ? ldexpf(1.0f + (float)m / 8, e - 7)
                                           : ldexpf((float)m / 8, -6);
        y |= (u32)round_f16(b & 0x80 ? -a : a) << 16 * i;
    }
    return y;
}
DEV u32 widen_upper_e4m3(u32 x) { return widen_e4m3(x >> 16); }
DEV u32 unzip_bytes(u32 x)
{
    return (x & 0xff) | (x >> 16 & 0xff) << 8 | (x >> 8 & 0xff) << 16 | (x & 0xff000000u);
}

template <u32 numbers> DEV u32 pick_bytes(u32 x, u32 y)
{
    u32 z = 0;
    for (int i = 0; i < 4; i++) {
        const int at = numbers >> 4 * i & 7;
        z |= ((at < 4 ? x : y) >> 8 * (at & 3) & 0xff) << 8 * i;
    }
    return z;
}
DEV u32 larger_pairs(u32 x, u32 y)
{
    const u32 low = (x & 0xffff) > (y & 0xffff) ? x & 0xffff : y & 0xffff;
    return low | (x >> 16 > y >> 16 ? x >> 16 : y >> 16) << 16;
}
template <u32 mask, u32 more> DEV u32 bits_and_more(u32 x) { return (x & mask) | more; }
template <class T> DEV u32 multiply_pairs(u32 x, u32 y)
{
    const Pair a = unpack2<T>(x), b = unpack2<T>(y);
    return pack2<T>(a.a * b.a, a.b * b.b);
}
template <class T> DEV u32 subtract_pairs(u32 x, u32 y)
{
    const Pair a = unpack2<T>(x), b = unpack2<T>(y);
    return pack2<T>(a.a - b.a, a.b - b.b);
}
template <class T> DEV u32 multiply_add_pairs(u32 x, u32 y, u32 z)
{
    const Pair a = unpack2<T>(x), b = unpack2<T>(y), c = unpack2<T>(z);
    return pack2<T>(a.a * b.a + c.a, a.b * b.b + c.b);
}

template <class T> DEV void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <> DEV void mma<bf16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    const u32 operands[6] = {a[0], a[1], a[2], a[3], b0, b1};
    emu_matrix_multiply(d, operands, false);
}
template <> DEV void mma<f16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    const u32 operands[6] = {a[0], a[1], a[2], a[3], b0, b1};
    emu_matrix_multiply(d, operands, true);
}
template <class T> DEV void mma(float (&d)[4], const float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    for (int i = 0; i < 4; i++) d[i] = c[i];
    mma<T>(d, a, b0, b1);
}
DEV void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    const u32 operands[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    emu_matrix_multiply_tf32(d, operands);
}
DEV void mma_tf32(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1])
{
    const u32 operands[6] = {a[0], a[1], 0, 0, b[0], 0};
    emu_matrix_multiply_tf32(d, operands);
}
DEV void mma_bytes(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    const u32 operands[6] = {a[0], a[1], a[2], a[3], b0, b1};
    emu_matrix_multiply_bytes(d, operands);
}

} // namespace coda::ptx
