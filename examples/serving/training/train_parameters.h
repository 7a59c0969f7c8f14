/*
 * train_parameters.h -- all that a model learns, flat: the weights, their gradients and what an optimiser
 * keeps of them are one memory each, and a weight of a graph is a pointer into it.
 */
#ifndef TRAIN_PARAMETERS_H
#define TRAIN_PARAMETERS_H

#include "build.h"

/* What is done to a parameter. In memory the groups stand in this order. */
enum group {
    GROUP_VECTOR, /* AdamW, without decay: gains and biases */
    GROUP_TABLE,  /* AdamW: matrices */
    GROUP_MUON,   /* Muon: matrices between the table of tokens and the head */
    GROUP_FROZEN, /* not learned, as a weight beside its adapter, or the frequencies of RoPE */
    GROUPS
};

enum { SCALE_STEPS = 64, SCALE_BYTES = 2 * SCALE_STEPS };
enum { PARAMETER_ROW = 1024 }; /* elements; groups are whole rows of them */

struct parameter {
    const struct weight *w;
    enum group group;
    int64_t first, count; /* elements; of a frozen one in the memory of these, in bytes */
};

struct parameters {
    struct weights weights; /* of the graph that learns */
    struct parameter *all;
    int n;
    struct device *device;
    int64_t begin[GROUPS + 1]; /* of each group, in elements */
    int64_t count;             /* that are learned, and what fills rows */
    int64_t learned;           /* without these */
    bool rounded;              /* products read 16 bits: there is a w */
    bool scaled;               /* these are fp16: there is a scale */
    char *p, *g, *m, *v;       /* fp32 */
    char *w;                   /* p in the dtype that products have, or NULL */
    char *scale; /* fp32: of the loss; SCALE_STEPS bytes behind it the steps that it has been so */
    char *frozen;
    size_t frozen_bytes;
};

/* Of the weights that a graph was built with, which become the parameters' own. */
struct parameters_how {
    bool muon;         /* has m alone for matrices */
    bool adapters;     /* all others are frozen */
    bool nowhere;      /* places without memory */
    bool no_gradients; /* these have no memory of their own */
};
bool parameters_open(struct parameters *p, struct weights *weights, struct device *d,
                     struct parameters_how how, struct fault *f);
void parameters_close(struct parameters *p);

/* The memory of a graph's leaf, of its gradient ("d.NAME"), of its fp32 states ("p.NAME", "m.NAME",
 * "v.NAME"); NULL if there is none. */
void *parameters_leaf(const struct parameters *p, const char *name);
void *parameters_gradient(const struct parameters *p, const char *output);
void *parameters_state(const struct parameters *p, const char *name);

/* Values from a checkpoint where the weights have tensors, else random ones by the seed. */
bool parameters_fill(struct parameters *p, uint64_t seed, int layers, struct fault *f);
/* w of p, rounded. */
bool parameters_round(struct parameters *p, struct fault *f);

/* `n` elements of a parameter from its element `at` on, in fp32, to host memory: as a checkpoint has them,
 * with what its adapter adds. `scratch` is of n floats. */
bool parameters_read(const struct parameters *p, const struct parameter *of, int64_t at, int64_t n, float *to,
                     struct fault *f);
const struct parameter *parameters_find(const struct parameters *p, const char *name);

#endif
