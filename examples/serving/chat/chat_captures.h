/*
 * chat_captures.h -- steps of a few fixed shapes as CUDA graphs: what changes from one step to the next lies
 * in device memory, so that the same launches, captured once, make all of them.
 */
#ifndef CHAT_CAPTURES_H
#define CHAT_CAPTURES_H

#include <stdbool.h>

#include "gpu.h"

enum { CAPTURES_MOST = 8 };

struct capture {
    int64_t dims[2]; /* rows, sequences */
    gpu_replay replay;
    bool best; /* of the best kernels; else of those that serve any shape */
};

/* What the runs of all of them have in common, and the graphs. */
struct captures {
    const struct gpu *gpu;
    const coda_plan *plan;
    void *const *args;
    void *workspace;
    coda_stream stream;
    struct capture of[CAPTURES_MOST];
    int count;
    _Atomic int64_t made; /* graphs, with those that replaced others; read by others, too */
};

/* Runs a step with these dims and the inputs that are there, waits for it, and captures it. false: it failed;
 * coda_error() says why, if it was the library. */
bool captures_add(struct captures *c, const int64_t *dims);
/* The one with these dims, or NULL. */
struct capture *captures_find(struct captures *c, const int64_t *dims);
/* Launches it; captured anew before, if there are better kernels than it has. */
bool captures_launch(struct captures *c, struct capture *one);
void captures_free(struct captures *c);

#endif
