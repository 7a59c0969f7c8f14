// online_softmax.cuh -- softmax of a row that arrives in blocks, on the accumulator fragment of wgmma.
//
// Over the blocks seen so far a row keeps m = max s and l = sum 2^(c (s - m)), c = scale * log2 e. A block
// with a larger maximum shrinks what was summed before by 2^(c (m_old - m_new)). (Milakov and Gimelshein,
// arXiv 1805.02867.) A thread holds parts of two rows, 8 apart; element i of a fragment lies in row
// (i >> 1) & 1, column 8 (i >> 2) + 2 (lane % 4) + (i & 1). The four lanes of a quad hold one row between
// them: m is the same in all four, l stays a lane's own part until the end. While a row has seen no key,
// m = -inf and l = 0.
#pragma once
#include "attention/score.cuh"
#include "math.cuh"

namespace coda {

DEV float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

DEV float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Scores of keys that a query does not see become -inf. `query` is the thread's first row, `key` the
// block's first key.
template <class Config, i32 N> DEV void mask(float (&s)[N], const Visible<Config> &see, i32 query, i32 key)
{
    i32 column = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (i32 r = 0; r < 2; r++) {
        KeyRange seen = see.of(query + 8 * r);
        i32 first = seen.first - column, end = seen.end - column;
#pragma unroll
        for (i32 i = 2 * r; i < N; i += 4) {
            i32 at = 8 * (i >> 2);
            if (at < first || at >= end) s[i] = unseen();
            if (at + 1 < first || at + 1 >= end) s[i + 1] = unseen();
        }
    }
}

// Products become scores; `position` is that of the thread's first row. Keys from `end` on have no bias.
template <class Config, i32 N>
DEV void score(float (&s)[N], const Score<Config> &as, const BiasRow<Config> (&bias)[2], i32 position,
               i32 key, i32 end)
{
    i32 distance = position - key - 2 * (threadIdx.x % 4), first = key + 2 * (threadIdx.x % 4);
    const BiasRow<Config> row[2] = {bias[0].from(first), bias[1].from(first)};
#pragma unroll
    for (i32 i = 0; i < N; i += 2) {
        const i32 at = 8 * (i >> 2), from = distance + 8 * (i >> 1 & 1) - at;
        const Pair b = row[i >> 1 & 1].pair(at, end - first);
        s[i] = as.of(s[i], from, first + at, b.a);
        s[i + 1] = as.of(s[i + 1], from - 1, first + at + 1, b.b);
    }
}

// Products become scores; `position` is that of the thread's first row.
template <class Config, i32 N>
DEV void score(float (&s)[N], const Score<Config> &as, i32 position, i32 key)
{
    i32 distance = position - key - 2 * (threadIdx.x % 4), first = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (i32 i = 0; i < N; i++)
        s[i] =
            as.of(s[i], distance + 8 * (i >> 1 & 1) - 8 * (i >> 2) - (i & 1), first + 8 * (i >> 2) + (i & 1));
}

struct OnlineSoftmax {
    float max[2], sum[2];

    // c m is rounded: a weight is 2^(c s - base), and its sum's new factor 2^(c m_old - base), with an error
    // of half an ulp of base. Beyond this, 0.03 %, scores are counted from m instead, which is exact.
    static constexpr float exact_below = 8192.0f;

    DEV OnlineSoftmax() : max{unseen(), unseen()}, sum{0.0f, 0.0f} {}

    // Replaces the scores of a block by their weights; `factor` shrinks what was summed before. Of the two
    // rows perhaps the first alone. If `ends`, rows may have seen all their keys in earlier blocks: then
    // where m stays the factor is 1, and a block of which a row sees nothing leaves it as it is.
    template <i32 rows = 2, bool ends = false, i32 N>
    DEV void step(float (&s)[N], float c, float (&factor)[rows])
    {
#pragma unroll
        for (i32 r = 0; r < rows; r++) {
            float top = max[r];
#pragma unroll
            for (i32 i = 2 * r; i < N; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
            top = quad_max(top);
            float base = top == unseen() ? 0.0f : top * c, old = max[r];
            if (fabsf(base) > exact_below) {
                old -= top, base = 0.0f;
#pragma unroll
                for (i32 i = 2 * r; i < N; i += 4) s[i] -= top, s[i + 1] -= top;
            }
            factor[r] = ends && old == top ? 1.0f : math::exp2(fmaf(old, c, -base));
            max[r] = top;
            float part = 0.0f;
#pragma unroll
            for (i32 i = 2 * r; i < N; i += 4) {
                s[i] = math::exp2(fmaf(s[i], c, -base));
                s[i + 1] = math::exp2(fmaf(s[i + 1], c, -base));
                part += s[i] + s[i + 1];
            }
            sum[r] = sum[r] * factor[r] + part;
        }
    }

    // l
    DEV float weights(i32 r) const { return quad_sum(sum[r]); }
    // 1 / l, the sink's weight included, or 0 for a row that sees no key. (Where all that it sees scores
    // -inf, l is 0 and 0 / 0 is NaN.)
    DEV static float inverse(float whole, bool none)
    {
        return none ? 0.0f : 1.0f / whole;
    }
};

} // namespace coda
