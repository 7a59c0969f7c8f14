/* util_unusual.h -- graphs that are well formed and that nobody would write: dimensions of 0, more of
 * everything than one kernel has room for, deep chains. And models made of equal layers. */
#ifndef UTIL_UNUSUAL_H
#define UTIL_UNUSUAL_H

#include "util_random.h"

struct unusual {
    const char *name;
    graph *(*make)(int n);
    int most[6]; /* sizes: at a limit, one beyond, far beyond; 0 ends them */
    bool light;  /* its kernels are few enough to be compiled one by one in a test */
};
extern const struct unusual unusual[];
extern const int unusuals;

/* One operation on operands with dimensions of 0, 1 and more; NULL for an index out of range. */
graph *unusual_empty(int index, const char **name);

/* n copies of a block, each with weights of its own: the block's first input is the output before it. */
graph *unusual_layers(const graph *block, int n);
/* MiniLM: the sum of three embeddings (word, position, token type), normed; so many BERT layers; the mean of
 * each sequence's tokens, as a product with the caller's weights of them. */
graph *unusual_minilm(coda_dtype t, int layers, int64_t batch, int64_t tokens, int64_t columns);
/* The same graph with other names, its leaves in another order. */
graph *unusual_renamed(const graph *g, uint64_t seed);

#endif
