/* util_run.h -- compile a graph, run it with random arguments, compare with fp64. */
#ifndef UTIL_RUN_H
#define UTIL_RUN_H

#include "util_random.h"

/* How a graph may be compiled: the numbers are the same. Behind the others: one that needs a GPU. */
struct run_mode {
    const char *name;
    unsigned flags;
    coda_fold fold;
};
enum { RUN_MODES = 4, RUN_ON_CUBLASLT = RUN_MODES };
extern const struct run_mode run_modes[RUN_MODES + 1];

/* What coda_evaluate makes of the graph with the arguments of `seed`; NULL with the message set. */
void **run_reference(const graph *g, uint64_t seed);

/* |got - want| / (|want| + a tenth of 1 for each element), of a strided output against dense fp64; an
 * element that is not finite where the other is gives infinity. */
double run_error(const graph *g, int output, const void *got, const double *want);

/* The largest error of any output, or state, of what a run left in `got`. */
double run_worst_error(const graph *g, void **got, void **want);

/* The largest error of any output, or -1 with the message set. The plan is prepared and run as run_prepare()
 * and run_plan() say; with a fold, so is a second plan of the graph, on what the first one prepared. want
 * may be NULL: then 0. */
double run_on_cpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want);
double run_on_gpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want);

/* How far the reference's outputs go, measured in the same way, if the last bit of each 16-bit element of a
 * leaf is another: so far may a rounding take them. `want` is run_reference()'s. */
double run_sensitivity(const graph *g, uint64_t seed, void **want);

/* Does the graph hold what 16 bits can say nothing of: a row of few columns less its mean? */
bool run_ill_conditioned(const graph *g);

/* A graph of examples/graphs or test/golden, NULL with the message set. */
graph *run_load(const char *path);

/* ---- One plan, or several, on one set of weights ---- */

struct run_memory {
    void *at;
    size_t bytes, skipped; /* as many lie in front: arguments of the CPU device begin at an odd element */
    unsigned char poison;  /* what it begins as, and its margin stays */
};
struct run_device; /* the host, or the GPU */
struct run_buffers {
    const graph *g;
    const struct run_device *device;
    struct run_memory *memory; /* of all arguments, prepared memory, workspace */
    void **host, **args;
    void *prepared, *workspace;
    int n;
    const int64_t *dims; /* g's, for plans with symbols that run it */
};
/* Copies `host` (which stays the caller's) to memory of its own. All return false with the message set. */
bool run_upload(struct run_buffers *b, const graph *g, const coda_plan *p, void **host, bool on_gpu);
/* Takes weights of equal names, and prepared memory, of another's; outlives neither. */
void run_share(struct run_buffers *b, const struct run_buffers *with);
/* In a workspace that is gone afterwards. */
bool run_prepare(const struct run_buffers *b, const coda_plan *p);
/* Runs several times, each time with a workspace and outputs elsewhere that begin as other bytes: the
 * bits must be the same, go into host, and nothing else may have changed, leaves and gaps between
 * strided elements included. */
bool run_plan(const struct run_buffers *b, const coda_plan *p);
/* Runs another plan of the graph once, in such memory: it must give the bits that are in host. */
bool run_same(const struct run_buffers *b, const coda_plan *p);
bool run_download(const struct run_buffers *b); /* the outputs in args, into host */
void run_release(struct run_buffers *b);
/* The largest error of a plan of the graph, run on the host or a GPU with the arguments `got`, beside
 * coda_evaluate with `want`; -1 with the message set. */
double run_args_error(const graph *g, const coda_compile_options *opt, void **want, void **got, bool on_gpu);

#endif
