/*
 * random.h -- weights for a model that has none: normal numbers, so that products keep their size.
 */
#ifndef RANDOM_H
#define RANDOM_H

#include "weights.h"

enum { RANDOM_KINDS = 4 };

struct random_weights {
    uint64_t state; /* the seed, at first; all else is 0 */
    float *normals; /* that large weights share */
    struct random_kind {
        coda_dtype dtype;
        int64_t columns;
        char *values;
    } kind[RANDOM_KINDS]; /* they again, as weights of the last few types and columns have them */
    unsigned next;
};

/* Writes a weight to the device's memory. Elements of a matrix are divided by the root of its columns; those
 * of a large weight are some that were drawn once, again and again, from another one on for each weight.
 * Quantised ones are the nearest to such numbers. */
bool random_weight(struct random_weights *r, const struct weight *w, const coda_arg_info *info,
                   struct device *d, char *to, struct fault *f);
void random_free(struct random_weights *r);

/* ---- Between random.c and random_packed.c ---- */

/* A packed weight, of r->normals, of which there are so many. */
bool random_packed(struct random_weights *r, const struct weight *w, int64_t normals, struct device *d,
                   char *to, struct fault *f);
/* `bytes` of `period` bytes again and again, from `first` on at first. */
bool random_fill(struct device *d, char *to, size_t bytes, const char *values, size_t period, size_t first);

#endif
