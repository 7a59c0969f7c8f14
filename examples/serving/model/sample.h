/*
 * sample.h -- draws the next token from its logits.
 */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdint.h>

#include "fault.h"

struct sampling {
    double temperature; /* 0: the likeliest token, the first of equals */
    int top_k;          /* of the k likeliest alone, and what equals the last of them; 0: of all */
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

/* The key under which coda_sample draws the tokens of a text: 48 bits of both numbers, in two below 2^24. */
void sample_seeds(uint64_t seed, uint64_t text, int32_t out[2]);

/* The Gumbel noise of a token at a place under that key. */
double sample_noise(const int32_t seeds[2], uint64_t place, int32_t id);

/* Draws as coda_sample does under that key: noise by the tokens' ids and the place, so that what else runs,
 * and when, does not matter. False if no logit is finite, if the greatest is not, or if there is no memory.
 * */
bool sample(const struct sampling *s, const struct logits *l, uint64_t text, uint64_t place,
            struct sampled *out, struct fault *f);

#endif
