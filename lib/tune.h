/* tune.h -- decisions about the GEMMs of a plan, from figures that are kept or measured now. */
#ifndef TUNE_H
#define TUNE_H

#include "compiled.h"
#include "tuning.h"

struct tuner {
    const graph *graph;            /* rewritten: what plan_build takes                             */
    struct plan_options options;   /* of the plan; without decisions                               */
    const struct coda_arg_info *arg;
    const struct jit_device *gpu;
    struct jit_options jit;
    bool measure;                  /* what is not known                                            */
    struct arena *arena;           /* for what tune_plan returns                                   */
    int measured;                  /* programs                                                     */
    const char **tuned;            /* keys of which there are figures                              */
    int tuneds;
};

/* tune.c: one decision for each GEMM of the plan of which something is known. */
coda_status tune_plan(struct tuner *t, const struct plan *plan, struct decision **out, int *n);

/* ---- contest.c, contest_data.c: one program, measured ---- */

enum content { CONTENT_NORMAL, CONTENT_POSITIVE, CONTENT_INTEGER };

/* What programs read and write, each value once, whatever the way. */
struct tensor {
    int arg, value;      /* an argument of the caller's graph, or -1 and the node                  */
    bool state, scratch; /* of a partial reduction; of cuBLASLt                                    */
    enum content content;
    coda_dtype dtype;
    double scale;
    size_t bytes, at;    /* `at`: in a set; of scratch, before all sets                            */
};

struct tensors {
    struct tensor *tensor;
    int n;
    char *memory;
    size_t scratch, step; /* bytes before the first set; of a set                                  */
    int sets;
};

/* Makes every buffer that the plan's programs touch an argument: the number of its tensor. */
coda_status tensors_bind(struct tensors *ts, struct plan *plan, const struct coda_arg_info *arg);
/* Memory for as many sets as are worth it, with random contents. CODA_OK without memory and with the
 * reason in `why` if there is too little. */
coda_status tensors_load(struct tensors *ts, char *why, size_t size);
void *tensor_address(const struct tensors *ts, int index, int set);
coda_status tensor_poison(const struct tensors *ts, int index); /* in set 0                        */
/* The tensor in set 0, on the host: malloc'd. */
coda_status tensor_download(void **out, const struct tensors *ts, int index);
/* Is `got` what was wanted, but for rounding? */
bool tensor_agrees(const struct tensor *t, const void *got, const void *want, bool wide);
void tensors_free(struct tensors *ts);

coda_status contest(struct figures *out, const struct tuner *t, const struct plan *plan, int index);

#endif
