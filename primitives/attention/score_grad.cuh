// score_grad.cuh -- what attention's gradients make of q . k: a key's weight, and derivatives by its score.
//
//     p = e^(s - l), where l is the log of the sum of e^s of the query;   ds = p (do v - delta), by the score
//     s, or, times Config::score_grad, by that of which the map of a Config that has one makes s;
//     dr = ds (1 - (s / cap)^2), by scale q . k, where a softcap makes s of that
//
// A key that the query does not see weighs nothing, whatever there is in its row.
#pragma once
#include "attention/score.cuh"

namespace coda {

// The derivative of the map of a Config that says `mapped`.
template <class Config, class = void> struct ScoreMapGrad {
    DEV static float of(float, i32, i32, float) { return 1.0f; }
};
template <class Config> struct ScoreMapGrad<Config, typename Said<Config::mapped>::Type> {
    DEV static float of(float s, i32 position, i32 key, float head)
    {
        return Config::score_grad(s, (float)position, (float)key, head);
    }
};

template <class Config> struct ScoreGrad : Score<Config> {
    struct Pair {
        float p, ds, dr;
    };

    float number; // of the head

    DEV ScoreGrad(const AttentionInputs &in, i32 head) : Score<Config>(in, head), number((float)head) {}

    // `by_weight` is do . v, `distance` the query's position less the key's, `bias` what is added.
    DEV Pair of(float product, float by_weight, i32 distance, i32 key, float bias, float lse,
                float delta) const
    {
        float s = Config::scale * product, bend = 1.0f;
        if (Config::softcap != 0.0f) {
            s = map::softcap::apply(s, Config::softcap);
            const float part = s * (1.0f / Config::softcap);
            bend = fmaf(-part, part, 1.0f);
        }
        if (Config::slopes) s = fmaf(-this->slope, fabsf((float)distance), s);
        if (Score<Config>::biased) s += bias;
        const float by_map = ScoreMapGrad<Config>::of(s, key + distance, key, number);
        s = ScoreMap<Config>::turn(s, key + distance, key);
        if (s == unseen() || lse == unseen()) return {0.0f, 0.0f, 0.0f};
        const float p = math::exp2((s - lse) * math::LOG2_E), ds = by_map * p * (by_weight - delta);
        return {p, ds, ds * bend};
    }
    // What a query adds to the derivative by the sink.
    DEV float of_sink(float lse, float delta) const
    {
        return lse == unseen() ? 0.0f : -math::exp2((this->sink - lse) * math::LOG2_E) * delta;
    }
};

} // namespace coda
