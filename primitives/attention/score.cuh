// score.cuh -- what becomes of q . k before the softmax.
//
//     s = scale q . k;   with a softcap c: c tanh(s / c);   with slopes: less slope[head] |position - key|;
//     with a bias: plus bias[batch, head, query, key] (bias.cuh);
//     with a map of the graph's: Config::score(s, position, key, head)
//
// A plain score is left as the product that it is: its scale is the exponent's. Others are in natural units,
// whose exponent's scale is log2 e. A sink is the score of a key that every query of a head sees, and whose
// value is 0: it counts in the sum of weights alone.
#pragma once
#include "attention/bias.cuh"
#include "attention/visible.cuh"
#include "map/softcap.cuh"
#include "math.cuh"

namespace coda {

// The map of a Config that says `mapped`; most say nothing.
template <class Config, class = void> struct ScoreMap {
    static constexpr bool there = false;
    DEV explicit ScoreMap(i32) {}
    DEV float turn(float s, i32, i32) const { return s; }
};
template <class Config> struct ScoreMap<Config, typename Said<Config::mapped>::Type> {
    static constexpr bool there = true;
    float head;
    DEV explicit ScoreMap(i32 number) : head((float)number) {}
    DEV float turn(float s, i32 position, i32 key) const
    {
        return Config::score(s, (float)position, (float)key, head);
    }
};

template <class Config> struct Score : ScoreMap<Config> {
    static constexpr bool biased = BiasRow<Config>::there;
    static constexpr bool plain =
        Config::softcap == 0.0f && !Config::slopes && !biased && !ScoreMap<Config>::there;
    static constexpr bool turned = plain && Config::scale_log2 < 0.0f; // the largest weighs least
    static constexpr float exponent = !plain   ? math::LOG2_E
                                      : turned ? -Config::scale_log2
                                               : Config::scale_log2;

    float slope, sink;

    DEV Score(const AttentionInputs &in, i32 head)
        : ScoreMap<Config>(head), slope(Config::slopes ? in.slopes[head * Config::slopes_stride] : 0.0f),
          sink(Config::sinks ? in.sinks[head * Config::sinks_stride] : 0.0f)
    {
    }

    // `distance` is the query's position less the key's; `bias` is what is added.
    DEV float of(float product, i32 distance, i32 key, float bias = 0.0f) const
    {
        if (plain) return turned ? -product : product;
        float s = Config::scale * product;
        if (Config::softcap != 0.0f) s = map::softcap::apply(s, Config::softcap);
        if (Config::slopes) s = fmaf(-slope, fabsf((float)distance), s);
        if (biased) s += bias;
        return ScoreMap<Config>::turn(s, key + distance, key);
    }
    // log sum e^s of scores whose largest is this, and weights' sum that, and of the sink, which may be so
    // much larger that its weight overflows. -inf of no score; NaN of those among which is NaN.
    DEV float log_sum(float largest, float weights) const
    {
        float sum = math::log(weights);
        if (largest > unseen()) sum = fmaf(exponent * math::LN_2, largest, sum);
        if (!Config::sinks || sum != sum) return sum;
        const float most = fmaxf(sum, sink), least = fminf(sum, sink);
        return least == unseen() ? most : most + math::log(1.0f + math::exp2(math::LOG2_E * (least - most)));
    }
    DEV static void store(const AttentionInputs &in, i32 batch, i32 head, i32 query, float x)
    {
        const i64 of = Config::starts ? head : (i64)batch * Config::heads + head; // packed: all sequences'
        in.lse[of * queries<Config>(in.extents) + query] = x;
    }

    // What the sink adds to the sum of weights, which are counted from the largest score.
    DEV float sink_weight(float largest) const
    {
        return Config::sinks ? math::exp2(fmaf(sink, math::LOG2_E, -exponent * largest)) : 0.0f;
    }
};

} // namespace coda
