// narrow.cuh -- products with keys and values of 8 bits, e4m3, by mma.sync of f16: they become f16 in
// registers, exactly, and so do queries, whose rows are scaled by powers of two; weights are f16.
//
// Of a row in shared memory 16 bytes are 16 columns, a unit. Of an 8 x 8 matrix of 16-bit elements ldmatrix
// gives a lane 4 bytes of a row: of a key the columns 4 j to 4 j + 3 of a unit, j = lane % 4, its four k of a
// product, if queries have their columns in that order. What it transposes on its way are two columns, 2 g
// and 2 g + 1 with g = lane / 4, of two keys: even columns are of one product, odd ones of another.
#pragma once
#include "attention/online_softmax.cuh"
#include "port/tile.cuh"
#include "ptx/matrix.cuh"

namespace coda {

template <bool first, class A, class B> struct Choice { using Type = A; };
template <class A, class B> struct Choice<false, A, B> { using Type = B; };

// The rows of bf16 queries as f16 whose largest is from 2^14 below 2^15; `times`, of a lane's rows, takes
// that off the products again. A fragment's even registers are of the first row, if there are two.
template <i32 halves, i32 fragments> DEV void narrow_queries(u32 (&x)[fragments][4], float (&times)[halves])
{
#pragma unroll
    for (i32 r = 0; r < halves; r++) {
        float most = 0.0f;
#pragma unroll
        for (i32 i = 0; i < 4 * fragments; i++) {
            if (halves > 1 && i % 2 != r) continue;
            const Pair p = unpack2<bf16>(x[i / 4][i % 4]);
            most = fmaxf(most, fmaxf(fabsf(p.a), fabsf(p.b)));
        }
        const u32 exponent = max((i32)(float_bits(quad_max(most)) >> 23), 15); // of 2^-112 or more
        const float scale = bits_float((268 - exponent) << 23);
        times[r] *= bits_float((exponent - 14) << 23);
#pragma unroll
        for (i32 i = 0; i < 4 * fragments; i++) {
            if (halves > 1 && i % 2 != r) continue;
            const Pair p = unpack2<bf16>(x[i / 4][i % 4]);
            x[i / 4][i % 4] = pack2<f16>(p.a * scale, p.b * scale);
        }
    }
}

// S = Q K^T of octets of keys, two at a time. Four matrices, of two octets and two units, are at
// address(octet, unit). Up to 8 rows, of two units the upper rows have the first, the lower ones the other,
// and sums are apart.
template <i32 halves, i32 scores, i32 fragments, class Address>
DEV void multiply_narrow_keys(float (&score)[scores], const u32 (&q)[fragments][4], Address address)
{
    constexpr i32 units = 2 / halves * fragments;
#pragma unroll
    for (i32 j = 0; j < scores / 4; j += 2) {
        float sums[2][2][4] = {};
#pragma unroll
        for (i32 i = 0; i < units; i += 2) {
            u32 k[4];
            ptx::ldmatrix(address(j, i), k);
#pragma unroll
            for (i32 u = 0; u < 4; u++) {
                const i32 unit = i + u % 2, lower = halves > 1 ? 0 : u % 2;
                ptx::mma<f16>(sums[lower][u / 2], q[halves > 1 ? unit : unit / 2], ptx::widen_e4m3(k[u]),
                              ptx::widen_e4m3(k[u] >> 16));
            }
        }
#pragma unroll
        for (i32 i = 0; i < 8; i++)
            score[4 * j + i] = sums[0][i / 4][i % 4] +
                               (halves > 1 || i % 4 > 1 ? 0.0f : sums[1][i / 4][i % 4 + 2]);
    }
}

// O += P V of sixteen keys: of each unit the even columns, then the odd ones. Four matrices, of two octets of
// keys and two units, are at address(unit).
template <i32 octets, class Address>
DEV void multiply_narrow_values(float (&out)[octets][4], const u32 (&weight)[4], Address address)
{
#pragma unroll
    for (i32 i = 0; i < octets / 2; i += 2) {
        u32 v[4];
        ptx::ldmatrix_transposed(address(i), v);
#pragma unroll
        for (i32 u = 0; u < 2; u++) {
            const u32 upper = ptx::unzip_bytes(v[2 * u]), lower = ptx::unzip_bytes(v[2 * u + 1]);
            ptx::mma<f16>(out[2 * (i + u)], weight, ptx::widen_e4m3(upper), ptx::widen_e4m3(lower));
            ptx::mma<f16>(out[2 * (i + u) + 1], weight, ptx::widen_e4m3(upper >> 16),
                          ptx::widen_e4m3(lower >> 16));
        }
    }
}

// A lane's row r of O, four columns of each unit.
template <i32 octets> DEV void put_narrow(float *to, const float (&out)[octets][4], i32 r)
{
#pragma unroll
    for (i32 i = 0; i < octets; i += 2) {
        const float x[4] = {out[i][2 * r], out[i + 1][2 * r], out[i][2 * r + 1], out[i + 1][2 * r + 1]};
        port::store_piece(to + 8 * i, x);
    }
}

} // namespace coda
