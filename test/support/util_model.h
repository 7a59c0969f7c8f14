/* util_model.h -- models as text for any number of rows: what is folded may not depend on it. */
#ifndef UTIL_MODEL_H
#define UTIL_MODEL_H

#include "graph.h"

/* Blocks of well-known models, small; [M] stands for the rows. */
struct model {
    const char *name, *text;
};
extern const struct model models[];
extern const int model_count;

/* The graph for so many rows; NULL with the message set. */
graph *model_graph(const char *text, int64_t rows);
/* A random stack of norms, gains, biases, factors of all shapes, casts, concats and products; free() it. */
char *model_random(uint64_t seed);

#endif
