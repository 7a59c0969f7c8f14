// log_sum_exp.cuh -- log(sum of e^x over a row), online: m is the largest x so far, s the sum of e^(x - m).
//
// Milakov & Gimelshein, arXiv 1805.02867. -inf if the row is empty or holds nothing else. A NaN stays in m.
//
// coda: reduce log_sum_exp(x) state 2 grad(x = exp_sub)
#pragma once
#include "math.cuh"

namespace coda::reduce {
struct log_sum_exp {
    static constexpr int state = 2;
    struct State { float v[state]; }; // m, s

    // e^d for d <= 0. NaN for two infinite values: the sum is of no use then, and finish() knows.
    DEV static float weight(float d) { return math::exp2(math::LOG2_E * d); }

    DEV static void init(State &s)
    {
        s.v[0] = -3.40282347e38f; // finite: -inf below it has no weight
        s.v[1] = 0.0f;
    }
    DEV static void push(State &s, float x, int, float)
    {
        float w = weight(-fabsf(x - s.v[0])); // the larger one's is 1
        s.v[1] = x > s.v[0] ? fmaf(s.v[1], w, 1.0f) : s.v[1] + w;
        s.v[0] = math::max(s.v[0], x);
    }
    DEV static void merge(State &s, const State &o)
    {
        float m = math::max(s.v[0], o.v[0]);
        s.v[1] = s.v[1] * weight(s.v[0] - m) + o.v[1] * weight(o.v[0] - m);
        s.v[0] = m;
    }
    DEV static float finish(const State &s)
    {
        float l = s.v[0] + math::log(s.v[1]);
        return s.v[0] < math::infinity() ? l : s.v[0];
    }
};
} // namespace coda::reduce
