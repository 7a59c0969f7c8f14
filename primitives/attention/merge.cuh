// merge.cuh -- sums over all keys from those over parts of them.
//
// Who had a part of the keys has for each row the largest score m, the sum l of the weights 2^(c (s - m)),
// and the values' sum by those weights. Warps' are added in the order of warps; those of parts of a row's
// keys are joined as a binary tree of parts, whoever had which: a block that had several joins whole
// subtrees, the blocks of a cluster the rest, and the bits are the same.
#pragma once
#include "attention/score.cuh"
#include "ptx/cluster.cuh"

namespace coda {

struct alignas(16) Peak {
    float max, sum, none[2];
}; // of a row: of its scores; of its weights

// Four columns of a row, over some of its keys.
template <class Config> struct Partial {
    float max = unseen(), sum = 0.0f, out[4] = {};

    // What the weights from a part's largest score are from a larger one.
    DEV static float factor(float max, float most)
    {
        return most == unseen() ? 0.0f : math::exp2(Score<Config>::exponent * (max - most));
    }
    // In the order of calls, when `max` is the largest of all parts.
    DEV void add(const Peak &peak, const float (&x)[4])
    {
        const float f = factor(peak.max, max);
        sum = fmaf(f, peak.sum, sum);
#pragma unroll
        for (i32 i = 0; i < 4; i++) out[i] = fmaf(f, x[i], out[i]);
    }
    // A part without keys has no sums, whatever memory holds; NaN is something.
    DEV bool nothing() const { return max == unseen() && sum == 0.0f; }
    DEV void join(const Partial &right)
    {
        if (right.nothing()) return;
        if (nothing()) {
            *this = right;
            return;
        }
        const float most = fmaxf(max, right.max), f = factor(max, most), g = factor(right.max, most);
        max = most;
        sum = fmaf(f, sum, g * right.sum);
#pragma unroll
        for (i32 i = 0; i < 4; i++) out[i] = fmaf(f, out[i], g * right.out[i]);
    }
};

// Merges a row of which each block of a cluster has a part: its mean, and log sum e^score.
template <i32 cluster, class Config>
DEV float merge_blocks(const Score<Config> &as, Partial<Config> (&part)[cluster], float (&y)[4])
{
#pragma unroll
    for (i32 d = 1; d < cluster; d *= 2)
#pragma unroll
        for (i32 r = 0; r < cluster; r += 2 * d) part[r].join(part[r + d]);
    const Partial<Config> &all = part[0];
    const float whole = all.sum + as.sink_weight(all.max), inverse = 1.0f / whole;
    const bool nothing = all.nothing(); // a bias, or a map of scores, hides each key that the query sees
#pragma unroll
    for (i32 i = 0; i < 4; i++) y[i] = (nothing ? 0.0f : all.out[i]) * inverse;
    return Config::lse ? as.log_sum(all.max, all.sum) : 0.0f;
}

// The same of parts that the blocks have at these addresses.
template <i32 cluster, class Config>
DEV float merge_blocks(const Score<Config> &as, u32 peak_at, u32 out_at, float (&y)[4])
{
    Partial<Config> part[cluster];
#pragma unroll
    for (i32 r = 0; r < cluster; r++) {
        float peak[4];
        ptx::cluster_load(peak, ptx::cluster_address(peak_at, r));
        ptx::cluster_load(part[r].out, ptx::cluster_address(out_at, r));
        part[r].max = peak[0], part[r].sum = peak[1];
    }
    return merge_blocks(as, part, y);
}

} // namespace coda
