/*
 * train_engine.h -- what a step runs: the plan of a loss and its gradients, that of the loss alone, and that
 * of the optimiser.
 */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "train_corpus.h"
#include "train_parameters.h"

/* Of AdamW's moments, and Muon's. */
#define BETA_M 0.9
#define BETA_V 0.95
#define MOMENTUM 0.95

/* How the optimiser is made. */
struct improvement {
    bool muon;
    double decay, clip;
};

/* The numbers of one step, which a plan takes as scalars. */
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
    struct improvement how;
    bool only_plan; /* no memory: nothing runs, and a GPU need not be there */

    struct parameters params;
    coda_plan *plan[PLANS];
    void **args[PLANS];
    void *workspace;
    char *inputs; /* as a batch has them */
    char *sums;   /* the loss, and the norm's square: a sum over the runs of a step */
    float share;  /* 1 / targets of a step: what each counts in the gradient */
    struct rates rates;
    double flops; /* of a run that learns, for a multiply-add 2 */
};

/* The fields above `params` are there. `learn` false: only the losses of a text are wanted. */
bool engine_open(struct engine *e, struct fault *f);
void engine_close(struct engine *e);

/* A step: begin, learn of each batch, improve. `targets` of all of them. */
bool engine_begin(struct engine *e, int64_t targets, struct fault *f);
bool engine_learn(struct engine *e, const struct batch *b, struct fault *f);
/* *loss is the mean over the targets, *norm that of the gradient before it is clipped. Where that is inf or
 * NaN nothing has changed. */
bool engine_improve(struct engine *e, const struct rates *r, double *loss, double *norm, struct fault *f);

/* Adds up the losses of b's targets. */
bool engine_judge(struct engine *e, const struct batch *b, double *sum, struct fault *f);

/* ---- optimizer.c ---- */

/* Appends the step of an optimiser to g: leaves grad, p, m, v and w, and scalars. */
coda_graph *optimizer_graph(const struct engine *e, struct fault *f);

#endif
