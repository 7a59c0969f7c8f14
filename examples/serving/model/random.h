/*
 * random.h -- weights for a model that has none: normal numbers, so that products keep their size.
 */
#ifndef RANDOM_H
#define RANDOM_H

#include "device.h"
#include "fault.h"

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
 * of a large weight are some that were drawn once, again and again, from another one on for each weight. */
bool random_weight(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                   struct fault *f);
void random_free(struct random_weights *r);

#endif
