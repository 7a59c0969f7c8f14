// fragment.cuh -- what attention by wgmma does with fragments: 64 queries of a warpgroup, scores or sums.
//
// Thread t of the warpgroup holds of row r = 16 (t / 32) + t % 32 / 4, and of row r + 8, two of every eight
// columns, as ptx/wgmma.cuh has it.
#pragma once
#include "attention/online_softmax.cuh"
#include "port/tile.cuh"
#include "ptx/wgmma.cuh"
#include "tile/resources.cuh"

namespace coda {

// A 4 x 4 transpose among the lanes of a quad: v[k] of lane q becomes v[q] of lane k.
DEV void quad_transpose(u32 (&v)[4])
{
#pragma unroll
    for (i32 bit = 1; bit <= 2; bit *= 2) {
        bool high = threadIdx.x & bit;
#pragma unroll
        for (i32 k = 0; k < 4; k++) {
            if (k & bit) continue;
            u32 got = __shfl_xor_sync(~0u, high ? v[k] : v[k + bit], bit);
            (high ? v[k] : v[k + bit]) = got;
        }
    }
}

// The compiler sees no tie between registers and the instructions that hand them to wgmma or wait for it:
// what is computed before a pin stays before it, what comes after stays after.
template <i32 n> DEV void pin(float (&x)[n])
{
#pragma unroll
    for (i32 i = 0; i < n; i++) asm volatile("" : "+f"(x[i])::"memory");
}
template <i32 n> DEV void pin(u32 (&x)[n][4])
{
#pragma unroll
    for (i32 i = 0; i < n; i++)
        asm volatile("" : "+r"(x[i][0]), "+r"(x[i][1]), "+r"(x[i][2]), "+r"(x[i][3])::"memory");
}

// S = Q K^T of 64 queries and n keys, in chunks of [rows][64] of which a pitch is so many bytes. What lies
// beside a head's columns is zeros, and 16 columns of them are left out.
template <class T, i32 head_dim, i32 a_pitch, i32 n>
DEV void multiply_keys(float (&score)[n / 2], u64 a, u64 b)
{
    constexpr i32 whole = head_dim / 64, rest = (head_dim % 64 + 15) / 16, b_pitch = n * swizzle_row;
#pragma unroll
    for (i32 i = 0; i < whole; i++)
        ptx::Wgmma<T, n>::template mma<0, 0>(score, a + i * a_pitch / descriptor_unit,
                                             b + i * b_pitch / descriptor_unit, i);
#pragma unroll
    for (i32 i = 0; i < rest; i++)
        ptx::Wgmma<T, n>::template mma_once<0, 0>(score, a + (whole * a_pitch + 32 * i) / descriptor_unit,
                                                  b + (whole * b_pitch + 32 * i) / descriptor_unit,
                                                  whole + i);
}

// The same of queries that are held: fragments of 16 columns.
template <class T, i32 n, i32 depth>
DEV void multiply_keys(float (&score)[n / 2], const u32 (&query)[depth][4], u64 b)
{
#pragma unroll
    for (i32 i = 0; i < depth; i++)
        ptx::Wgmma<T, n>::template mma<0>(
            score, query[i], b + (i / 4 * n * swizzle_row + i % 4 * 32) / descriptor_unit, i);
}

// The weights of keys, rounded to T: the fragment of S is, packed, operand A of the next product.
template <class T, i32 n> DEV void pack_weights(const float (&score)[n], u32 (&weight)[n / 8][4])
{
#pragma unroll
    for (i32 i = 0; i < n / 2; i++) weight[i / 4][i % 4] = pack2<T>(score[2 * i], score[2 * i + 1]);
}

// Zeroes the sums of rows that see no key. `query` is the thread's first row.
template <class See, i32 n> DEV void clear_rows_without_keys(float (&out)[n], const See &see, i32 query)
{
#pragma unroll
    for (i32 r = 0; r < 2; r++) {
        if (!see.none(query + 8 * r)) continue;
#pragma unroll
        for (i32 i = 2 * r; i < n; i += 4) out[i] = out[i + 1] = 0.0f;
    }
}

// Divides the sums by their weights and stores them, and their logarithm if it is wanted. `to` is where query
// 0 of the head goes. The quad's lanes exchange their column pairs, so that each stores 16 adjacent bytes.
template <class Config, class See, class T, i32 n>
DEV void write_rows(const float (&out)[n], const OnlineSoftmax &softmax, const See &see,
                    const Score<Config> &score, i32 query, T *to, i64 pitch, const AttentionInputs &in,
                    i32 batch, i32 head)
{
#pragma unroll
    for (i32 r = 0; r < 2; r++) {
        const i32 row = query + 8 * r;
        const bool inside = row < see.rows();
        T *const out_row = to + row * pitch;
        const float weights = softmax.weights(r);
        const float whole = weights + score.sink_weight(softmax.max[r]);
        const bool none = see.none(row);
        const float inverse = OnlineSoftmax::inverse(whole, none);
        if (Config::lse && inside && threadIdx.x % 4 == 0)
            Score<Config>::store(in, batch, head, row,
                                 none ? unseen() : score.log_sum(softmax.max[r], weights));
        if (!Config::stored) continue;
#pragma unroll
        for (i32 g = 0; g < (n + 15) / 16; g++) {
            u32 v[4] = {};
#pragma unroll
            for (i32 i = 0; i < 4 && 16 * g + 4 * i < n; i++) {
                const float *pair = out + 16 * g + 4 * i + 2 * r;
                v[i] = pack2<T>(pair[0] * inverse, pair[1] * inverse);
            }
            quad_transpose(v);
            i32 column = 32 * g + threadIdx.x % 4 * 8;
            if (inside && column < Config::head_dim)
                *reinterpret_cast<uint4 *>(out_row + column) = {v[0], v[1], v[2], v[3]};
        }
    }
}

} // namespace coda
