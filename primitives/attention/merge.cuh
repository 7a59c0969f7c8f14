// merge.cuh -- sums over all keys from those over parts of them.
//
// Who had a part of the keys has for each row the largest score m, the sum l of the weights 2^(c (s - m)),
// and the values' sum by those weights. Parts are added in a fixed order; one without keys has m = -inf and
// counts nothing.
#pragma once
#include "attention/score.cuh"
#include "ptx/cluster.cuh"

namespace coda {

struct alignas(16) Peak { float max, sum, none[2]; }; // of a row: of its scores; of its weights

// Four columns of a row.
template <class Config> struct Merge {
    float most = unseen(), sum = 0.0f, out[4] = {};

    DEV void see(float max) { most = fmaxf(most, max); }
    // When all parts' maxima are seen.
    DEV void add(float max, float weights, const float (&x)[4])
    {
        const float f = most == unseen() ? 0.0f : math::exp2(Score<Config>::exponent * (max - most));
        sum = fmaf(f, weights, sum);
#pragma unroll
        for (i32 i = 0; i < 4; i++) out[i] = fmaf(f, x[i], out[i]);
    }
};

// Of a row whose parts the blocks of a cluster have at these addresses: its mean, and log sum e^score.
template <i32 cluster, class Config>
DEV float merge_blocks(const Score<Config> &as, u32 peak_at, u32 out_at, float (&y)[4])
{
    float peak[cluster][4], x[cluster][4];
#pragma unroll
    for (i32 r = 0; r < cluster; r++) {
        ptx::cluster_load(peak[r], ptx::cluster_address(peak_at, r));
        ptx::cluster_load(x[r], ptx::cluster_address(out_at, r));
    }
    Merge<Config> all;
#pragma unroll
    for (i32 r = 0; r < cluster; r++) all.see(peak[r][0]);
#pragma unroll
    for (i32 r = 0; r < cluster; r++) all.add(peak[r][0], peak[r][1], x[r]);
    const float whole = all.sum + as.sink_weight(all.most), inverse = 1.0f / whole;
#pragma unroll
    for (i32 i = 0; i < 4; i++) y[i] = all.out[i] * inverse;
    return Config::lse ? as.log_sum(all.most, all.sum) : 0.0f;
}

} // namespace coda
