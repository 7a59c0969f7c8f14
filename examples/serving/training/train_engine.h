/*
 * train_engine.h -- what a step runs: the plan of a loss and its gradients, that of the loss alone, and that
 * of the optimiser.
 */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "train_corpus.h"
#include "train_parameters.h"
#include "train_queue.h"

/* Of AdamW's moments, and Muon's. */
#define BETA_M 0.9
#define BETA_V 0.95
#define MOMENTUM 0.95

/* How the optimiser is made. In fp16 the loss is multiplied by a power of two, so that small gradients are
 * not lost below what fp16 has: half of it behind a step whose gradient is not finite, twice as much behind
 * `scale_steps` others (Micikevicius et al., arXiv 1710.03740). */
struct improvement {
    bool muon;
    double decay, clip;
    double scale; /* at first */
    int64_t scale_steps;
};

/* The numbers of one step. */
struct rates {
    float rate;               /* of the step */
    float unbias_m, unbias_v; /* 1 / (1 - beta^step) */
};

enum plan_of { PLAN_LEARN, PLAN_JUDGE, PLAN_IMPROVE, PLANS };

struct engine {
    struct device *device;
    const struct config *config;
    const struct family *family;
    const struct checkpoint *from; /* NULL: random weights */
    coda_dtype dtype;
    int adapter;
    int64_t rows, tokens; /* of a run */
    bool accumulates; /* a step has several runs, whose gradients are added up; else a run leaves its own */
    bool whole; /* a step is one plan, which has AdamW in it: gradients are in its workspace, where they take
                 * the place of what the forward has kept. Without Muon, and with one run a step */
    struct improvement how;
    int64_t chunk;  /* rows whose logits are there at a time; 0: by the vocabulary */
    bool only_plan; /* no memory: nothing runs, and a GPU need not be there */

    struct parameters params;
    struct queue queue;
    struct program program[PLANS];
    void *workspace;
    char *inputs;            /* as a batch has them */
    char *numbers;           /* of a step: `share`, the rates */
    char *sums;              /* of a step: the loss over its runs, the norm's square, the scale */
    double share[DOWNLOADS]; /* 1 / targets of a step: what each counts in the gradient */
    int begun, taken;        /* steps; their results */
    double flops;            /* of a run that learns, for a multiply-add 2 */
};

/* The fields above `params` are there. `learn` false: only the losses of a text are wanted. */
bool engine_open(struct engine *e, struct fault *f);
void engine_close(struct engine *e);

/* A step: begin, learn of each batch, improve. `targets` of all of them. A GPU may be as far behind as
 * DOWNLOADS steps whose results nobody has taken. */
bool engine_begin(struct engine *e, int64_t targets, const struct rates *r, struct fault *f);
bool engine_learn(struct engine *e, const struct batch *b, struct fault *f);
bool engine_improve(struct engine *e, struct fault *f);

/* Of the oldest step whose result has not been taken: it is waited for. */
struct result {
    double loss;  /* the mean over the targets */
    double norm;  /* of the gradient before it is clipped; where it is inf or NaN nothing has changed */
    double scale; /* of the loss; 0: it has none */
};
bool engine_result(struct engine *e, struct result *r, struct fault *f);

/* Adds up the losses of b's targets. */
bool engine_judge(struct engine *e, const struct batch *b, double *sum, struct fault *f);

/* ---- optimizer.c ---- */

/* The step of an optimiser on flat memory: leaves grad, p, m, v and w, and numbers. */
coda_graph *optimizer_graph(const struct engine *e, struct fault *f);

/* Appends AdamW to a graph that has made gradients of its states: leaves p.NAME, m.NAME, v.NAME, and numbers.
 * `scale` is the state of that name, or CODA_NONE. */
struct moved {
    const struct weight *w;
    coda_value gradient;
};
void optimizer_append(const struct engine *e, coda_graph *g, coda_value scale, const struct moved *all,
                      int n);

#endif
