// score_grad.cuh -- what attention's gradients make of q . k: a key's weight, and derivatives by its score.
//
//     p = e^(s - l), where l is the log of the sum of e^s of the query;   ds = p (do v - delta), by the score
//     s;   dr = ds (1 - (s / cap)^2), by scale q . k, where a softcap makes s of that
//
// A key that the query does not see weighs nothing, whatever there is in its row.
#pragma once
#include "attention/score.cuh"

namespace coda {

template <class Config> struct ScoreGrad : Score<Config> {
    struct Pair {
        float p, ds, dr;
    };

    DEV ScoreGrad(const AttentionInputs &in, i32 head) : Score<Config>(in, head) {}

    // `by_weight` is do . v, `distance` the query's position less the key's, `bias` what is added.
    DEV Pair of(float product, float by_weight, i32 distance, float bias, float lse, float delta) const
    {
        float s = Config::scale * product, bend = 1.0f;
        if (Config::softcap != 0.0f) {
            s = map::softcap::apply(s, Config::softcap);
            const float part = s * (1.0f / Config::softcap);
            bend = fmaf(-part, part, 1.0f);
        }
        if (Config::slopes) s = fmaf(-this->slope, fabsf((float)distance), s);
        if (Score<Config>::biased) s += bias;
        if (s == unseen() || lse == unseen()) return {0.0f, 0.0f, 0.0f};
        const float p = math::exp2((s - lse) * math::LOG2_E), ds = p * (by_weight - delta);
        return {p, ds, ds * bend};
    }
    // What a query adds to the derivative by the sink.
    DEV float of_sink(float lse, float delta) const
    {
        return lse == unseen() ? 0.0f : -math::exp2((this->sink - lse) * math::LOG2_E) * delta;
    }
};

} // namespace coda
