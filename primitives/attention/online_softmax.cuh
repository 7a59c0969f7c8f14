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
template <class See, i32 N> DEV void mask(float (&s)[N], const See &see, i32 query, i32 key)
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
template <class Config, i32 N> DEV void score(float (&s)[N], const Score<Config> &as, i32 position, i32 key)
{
    i32 distance = position - key - 2 * (threadIdx.x % 4), first = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (i32 i = 0; i < N; i++)
        s[i] =
            as.of(s[i], distance + 8 * (i >> 1 & 1) - 8 * (i >> 2) - (i & 1), first + 8 * (i >> 2) + (i & 1));
}

// Where a block's weights are computed before its largest score is known, none of a row's lanes may have more
// than so many of them: what f16 holds, or fp32 and sums of values that are large. Few rows rise so far.
template <class T> constexpr float most_weights = 0x1p24f;
template <> constexpr float most_weights<f16> = 0x1p14f;

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

    // A row's m stays as it is while no weight of a block goes beyond 2^8: one below the largest score serves
    // as well, and needs no factor for what was summed before, as in FlashAttention-4. Each row decides for
    // itself, so its bits are its own.
    static constexpr float most_growth = 8.0f;

    // Both rows' scores become weights at once, whose instructions fill each other's waits. `part` is what a
    // lane's add up to.
    template <i32 N>
    DEV static void become_weights(float (&s)[N], float c, const float (&base)[2], float (&part)[2])
    {
        part[0] = part[1] = 0.0f;
#pragma unroll
        for (i32 i = 0; i < N; i += 2) {
            const i32 r = i >> 1 & 1;
            s[i] = math::exp2(fmaf(s[i], c, -base[r]));
            s[i + 1] = math::exp2(fmaf(s[i + 1], c, -base[r]));
            part[r] += s[i] + s[i + 1];
        }
    }
    // Weights of a block by m as it is, for which its largest score need not be known. Are they small enough?
    template <class T, i32 N> DEV bool step_speculatively(float (&s)[N], float c, float (&part)[2]) const
    {
        const float base[2] = {max[0] * c, max[1] * c}; // of no score yet: weights are infinite, or NaN
        become_weights(s, c, base, part);
        const bool near = fmaxf(fabsf(base[0]), fabsf(base[1])) <= exact_below;
        return near && part[0] <= most_weights<T> && part[1] <= most_weights<T>;
    }
    // Are weights of some lane of the quad too large? (Of a row without a score they are infinite, or NaN.)
    template <class T> DEV static bool is_far(float part)
    {
        return (__ballot_sync(~0u, !(part <= most_weights<T>)) >> threadIdx.x % 32 / 4 * 4 & 15) != 0;
    }
    // What speculative weights add up to, where no row is far.
    DEV void add(const float (&part)[2]) { sum[0] += part[0], sum[1] += part[1]; }

    // Scores become weights by m as it is, or by a larger one for a row that is far. Is any factor of the
    // warp's not 1?
    template <i32 N> DEV bool step_lazily(float (&s)[N], float c, float (&factor)[2])
    {
        return step_by(s, c, factor,
                       [&](float growth, i32) { return growth * c > most_growth; }); // of two -inf: no
    }
    template <class T, i32 N>
    DEV bool step_again(float (&s)[N], float c, const float (&part)[2], float (&factor)[2])
    {
        // Of a large base `part` has exponents that are wrong by half an ulp of it, and says nothing.
        const bool far[2] = {is_far<T>(part[0]) || !(fabsf(max[0] * c) <= exact_below),
                             is_far<T>(part[1]) || !(fabsf(max[1] * c) <= exact_below)};
        return step_by(s, c, factor, [&](float growth, i32 r) { return far[r] && growth > 0.0f; });
    }
    template <i32 N, class Grows>
    DEV bool step_by(float (&s)[N], float c, float (&factor)[2], const Grows &must)
    {
        float top[2], base[2], old[2];
        bool grows[2];
#pragma unroll
        for (i32 r = 0; r < 2; r++) {
            float even = s[2 * r], odd = s[2 * r + 1];
#pragma unroll
            for (i32 i = 2 * r + 4; i < N; i += 4) even = fmaxf(even, s[i]), odd = fmaxf(odd, s[i + 1]);
            top[r] = fmaxf(even, odd);
        }
#pragma unroll
        for (i32 r = 0; r < 2; r++) top[r] = quad_max(top[r]);
#pragma unroll
        for (i32 r = 0; r < 2; r++) {
            old[r] = max[r];
            grows[r] = must(top[r] - old[r], r);
            if (grows[r]) max[r] = top[r];
            base[r] = max[r] == unseen() ? 0.0f : max[r] * c;
        }
        if (fmaxf(fabsf(base[0]), fabsf(base[1])) > exact_below) {
#pragma unroll
            for (i32 r = 0; r < 2; r++) {
                if (!(fabsf(base[r]) > exact_below)) continue;
                old[r] -= max[r], base[r] = 0.0f;
#pragma unroll
                for (i32 i = 2 * r; i < N; i += 4) s[i] -= max[r], s[i + 1] -= max[r];
            }
        }
        float part[2];
        become_weights(s, c, base, part);
#pragma unroll
        for (i32 r = 0; r < 2; r++) {
            factor[r] = grows[r] ? math::exp2(fmaf(old[r], c, -base[r])) : 1.0f;
            sum[r] = sum[r] * factor[r] + part[r];
        }
        return __ballot_sync(~0u, grows[0] || grows[1]) != 0;
    }

    // l
    DEV float weights(i32 r) const { return quad_sum(sum[r]); }
    // 1 / l, the sink's weight included, or 0 for a row that sees no key. (Where all that it sees scores
    // -inf, l is 0 and 0 / 0 is NaN.)
    DEV static float inverse(float whole, bool none) { return none ? 0.0f : 1.0f / whole; }
};

} // namespace coda
