/*
 * chat_random.h -- weights for a model that has none: normal numbers, so that products keep their size.
 */
#ifndef CHAT_RANDOM_H
#define CHAT_RANDOM_H

#include "device.h"
#include "fault.h"

struct random_weights {
    uint64_t state; /* the seed, at first */
    float *normals; /* that large weights share, or NULL; free() it at the end */
};

/* Writes a weight to the device's memory. Elements of a matrix are divided by the root of its columns; those
 * of a large weight are some that were drawn once, again and again, from another one on for each weight. */
bool random_weight(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                   struct fault *f);

#endif
