/*
 * util_spmd.h -- random graphs that are split over ranks, each beside the graph of the whole, which knows no
 * rank: leaves are shared out or equal on all ranks, exchanges add up or put together what ranks have. The
 * whole is the reference; a graph that a pass has made of the split one may take its place.
 */
#ifndef UTIL_SPMD_H
#define UTIL_SPMD_H

#include "util_random.h"

enum { SPMD_RANKS = 8, SPMD_LEAVES = 64, SPMD_OUTPUTS = 48, SPMD_TEXT = 1 << 14 };

/* How a leaf or an output of the whole lies on ranks. */
enum spmd_lies {
    SPMD_SAME,    /* all of it on each */
    SPMD_ROWS,    /* each has some of its rows */
    SPMD_COLUMNS, /* ... of its columns */
    SPMD_SUM,     /* each has as much, and they add up to it */
    SPMD_FIRST    /* a leaf that the whole has not: the first of a table's rows that are the rank's */
};

struct spmd_tensor {
    char name[16];
    enum spmd_lies lies;
    bool ids;       /* int32 */
    int64_t dim[2]; /* of the whole; of one dimension the first is 0 */
    float *values;  /* of a leaf, the whole's, multiples of 2^-16; of ids whole numbers */
};

struct spmd {
    int ranks, leaves, outputs;
    struct spmd_tensor leaf[SPMD_LEAVES],
        output[SPMD_OUTPUTS]; /* leaves but for the group, which is the first */
    bool alone;               /* nothing is exchanged: there is no group among the arguments */
    bool failed;              /* no room */
    /* Texts of the graphs; `loss` is that of the whole, but its one output is the sum of each output times a
     * leaf cotI, which the split graph has, too. */
    char whole[SPMD_TEXT], loss[SPMD_TEXT], split[SPMD_TEXT];
};

/* Of so many ranks; of `steps` operations and exchanges at least. */
void spmd_make(struct spmd *s, uint64_t seed, int ranks, int steps);
void spmd_free(struct spmd *s);

/* Arguments of the whole, or its loss, with room for doubles; for spmd_args_free. */
void **spmd_whole_args(const struct spmd *s, bool loss);
void spmd_args_free(const struct spmd *s, void **args);
/* Runs all ranks, threads that evaluate `g`, which has the leaves and the outputs of the split one, in fp64;
 * or run `p`, a plan of it, on the CPU device. out[rank][i] is output i: doubles, or a plan's floats; all for
 * free(). False with the message set. */
bool spmd_run(const struct spmd *s, const coda_graph *g, const coda_plan *p, void *out[][SPMD_OUTPUTS]);
void spmd_out_free(const struct spmd *s, void *out[][SPMD_OUTPUTS]);
/* How far output i on all ranks is from the whole's, over the size of its largest element. */
double spmd_distance(const struct spmd *s, int i, const double *whole, void *out[][SPMD_OUTPUTS],
                     bool floats);
/* Have all ranks equal bits of the outputs that all of them have? */
bool spmd_agree(const struct spmd *s, void *out[][SPMD_OUTPUTS], bool floats);
/* The sum over all ranks of output i times its part of `by`, in the order of the whole's elements: of those
 * that add up each rank's times all of it, and of what all have the first one's alone. */
double spmd_product(const struct spmd *s, int i, const double *by, void *out[][SPMD_OUTPUTS]);

#endif
