/*
 * modules.h -- what becomes of a sentence's states by the files of sentence-transformers: modules.json, and a
 * folder for each module that has files.
 */
#ifndef MODULES_H
#define MODULES_H

#include "checkpoint.h"

enum { MOST_DENSE = 4 };

/* What becomes of a sentence's states. */
enum pooling {
    POOLING_OF_FILES, /* by modules.json, or POOLING_MEAN */
    POOLING_MEAN,
    POOLING_FIRST,
    POOLING_LAST
};

/* act(W x + bias); its tensors are modules.PATH.linear.weight [out, in] and .bias. */
struct dense {
    char path[32];
    int in, out;
    bool bias, tanh;
};

struct modules {
    bool given;           /* there is modules.json */
    enum pooling pooling; /* not POOLING_OF_FILES */
    struct dense dense[MOST_DENSE];
    int dense_count;
    bool normalize; /* vectors are of length 1 */
    int limit;      /* tokens of a text that count, the last one among them; 0: as many as the model has */
    bool lower;     /* texts are put in lower case before they become tokens */
};

/* Of the folder of a model whose states have `width` numbers; tensors go to `c`. */
bool modules_read(struct modules *m, struct checkpoint *c, const char *folder, int width, struct fault *f);
/* Of a GGUF file: its pooling, and EmbeddingGemma's dense layers, if it has them. */
bool modules_of_gguf(struct modules *m, const struct checkpoint *c, int width, struct fault *f);

#endif
