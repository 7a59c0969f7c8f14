/* tune.h -- decisions about the GEMMs of a plan, from figures that are kept or measured now. */
#ifndef TUNE_H
#define TUNE_H

#include "executable.h"
#include "tune_record.h"

struct tuner {
    coda_status (*build)(struct plan *p, const graph *g, const struct plan_options *opt); /* plan_build */
    const graph *graph;          /* rewritten: what plan_build takes */
    struct plan_options options; /* of the plan; without decisions */
    const struct coda_arg_info *arg;
    const struct jit_device *gpu;
    struct jit_options jit;
    bool by_price;       /* figures are not asked for: what loses by price is taken apart, and no more */
    bool measure;        /* what is not known */
    bool thorough;       /* what is known of few tiles, too */
    struct arena *arena; /* for what tune_plan returns */
    int measured;        /* programs */
    const char **tuned;  /* keys of which there are figures */
    int tuneds;
};

/* tune.c: one decision for each GEMM of the plan of which something is known. */
coda_status tune_plan(struct tuner *t, const struct plan *plan, struct decision **out, int *n);

#endif
