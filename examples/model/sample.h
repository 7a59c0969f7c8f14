/*
 * sample.h -- draws the next token from its logits.
 */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdint.h>

#include "fault.h"

struct sampling {
    double temperature; /* 0: the likeliest token, the first of equals */
    int top_k;          /* of the k likeliest alone, of equals those of lower ids; 0: of all */
    double top_p;       /* of these the likeliest whose shares make up top_p, with the one that reaches it */
    uint64_t seed;
};

struct logits {
    const float *value;
    const int32_t *id; /* of the token of each; NULL: their places */
    int n;
    double log_sum; /* log(sum(exp)) of all tokens' logits, also of those that are not here; NAN: add up */
};

struct sampled {
    int32_t id;
    double logprob; /* of the model: temperature, top_k and top_p have no part in it */
};

/* A number in [0, 1) for a token, by its text's number and its place there: what else runs, and when, does
 * not matter. */
double sample_uniform(uint64_t seed, uint64_t text, uint64_t place);

/* The tokens that may be drawn stand in the order of their logits, of equals the first in front, and the
 * draw is where the number falls among their shares. False if no logit is finite, if the greatest is not, or
 * if there is no memory. */
bool sample(const struct sampling *s, const struct logits *l, uint64_t text, uint64_t place,
            struct sampled *out, struct fault *f);

/* The same by some of the likeliest alone, in descending order, where `warm_sum` is log(sum(exp((logit -
 * greatest) / temperature))) of all tokens: false if the draw may fall on another one, or sample() fails. */
bool sample_likeliest(const struct sampling *s, const struct logits *l, double warm_sum, uint64_t text,
                      uint64_t place, struct sampled *out);

#endif
