/* codes.h -- weights of 8 bits of which each row has one code: a GPU shows what it takes that for. */
#ifndef CODES_H
#define CODES_H

#include "graph.h"

struct codes_case {
    const char *test;
    int rows, k;                   /* of activations, which are ones */
    bool (*takes)(const graph *g); /* NULL, or whether the plan has the main loop that is meant */
};

/* A case of a GPU test: all codes of `of` times activations of t are what they are on the host, bit for
 * bit. */
int gpu_codes(const struct codes_case *c, coda_dtype t, coda_dtype of);

#endif
