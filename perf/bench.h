/*
 * bench.h -- what every measurement shares.
 *
 * A figure is one question: how long does a plan of libcoda take beside another way to do the same
 * work? Its sides run in turns in one process, as replays of CUDA graphs that hold several runs, each
 * on its own set of buffers, so that more than three times the L2 passes between two uses of a set.
 * Data are random-normal. Every figure is checked against fp64 on a sample of rows before it is timed.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdio.h>

#include "machine.h"
#include "power.h"
#include "report.h"

enum { SIDES = 5, TENSORS = 128, ARGS = 256, ROUNDS = 101, ROWS = 4, MOST_KERNELS = 16, MOST_REPLAYS = 1000 };

/* ---- Tensors: the same numbers on the device and, element by element, for the reference ---- */

struct tensor {
    char name[32];
    coda_dtype dtype;
    int64_t count, columns; /* of a matrix; a vector has one */
    float *values;          /* what element i is: values[i % period]; NULL for outputs */
    int64_t period;
    int copies;  /* "w.7" is the eighth copy of "w": the same numbers in memory of its own */
    bool scalar; /* in host memory: `number` */
    uint32_t number;
    address at;  /* of the first set: its copies, one behind the other */
    size_t step; /* bytes from copy to copy, and from set to set */
};

/* Random values: 16-bit ones and f8e4m3 normal, matrices of 16-bit weights over the root of their columns; i8
 * 32 times normal; fp32 around 1 and positive; int32 in 0 .. ints-1. `pool` chooses the numbers. */
void tensor_make(struct tensor *t, const coda_arg_info *a, int pool, int64_t ints);
/* Instead: these bytes, again and again. */
void tensor_repeat(struct tensor *t, const uint8_t *bytes, int64_t period);
void tensor_fill(const struct tensor *t, const struct machine *m, int copies);
void tensor_row(const struct tensor *t, int64_t row, double *out);
static inline double tensor_at(const struct tensor *t, int64_t i) { return t->values[i % t->period]; }

/* ---- Figures ---- */

/* How a side's graph is compiled. */
struct way {
    const char *name;
    unsigned flags;
    coda_fold fold;
};

struct kernel_time { /* of one kernel in many runs; ms */
    char name[64];
    double median, min, max;
};

struct side {
    const char *name;
    coda_plan *plan;
    int args, arg[ARGS], copy[ARGS]; /* which of the figure's tensors */
    address work, prepared;
    replay replay;
    double ms[ROUNDS];
    /* Of sustained runs: each round's power and clock; what the replays of the last round took, and in it,
     * each kernel; `kernels` is 0 where they were not timed one by one. */
    struct draw draw[ROUNDS];
    double replay_ms[MOST_REPLAYS];
    struct kernel_time all, kernel[MOST_KERNELS];
    int kernels;
};

struct figure {
    char name[64];
    int64_t m, n, k;       /* of the product */
    int variant;           /* free for the builders */
    const struct way *way; /* of each side; NULL: libcoda as it is, and unfused on cuBLASLt */
    /* The graph of side s; a NULL graph: no such side. */
    coda_graph *(*build)(const struct figure *f, int s);
    /* Compares the outputs with fp64, given the product's row; or checks every side by itself. */
    void (*expect)(struct figure *f, int64_t row, const double *product);
    void (*check)(struct figure *f);
    /* Element i of an input that is not random; false: it is. */
    bool (*number)(const struct figure *f, const char *tensor, int64_t i, float *out);
    /* The bytes of a packed weight (CODA_U8), and after how many they begin anew. */
    const uint8_t *(*bytes)(const struct figure *f, int64_t *period);
    /* What makes inputs of the sides, its outputs of the same names, in each set before anything is checked.
     * The sides' names are whole then: kept.3 is no copy. NULL: nothing. */
    coda_graph *(*before)(const struct figure *f);
    /* Milliseconds that it takes at a card's TFLOP/s and TB/s, every operand moved once. NULL: unknown */
    double (*floor)(const struct figure *f, double tflops, double tbytes);
    double flops;      /* of the question, where a plan counts others; 0: the plan's */
    bool small;        /* its shape is one for the CPU device, of --check */
    bool tuned;        /* products may be rounded before their epilogue */
    bool first_kernel; /* time the first kernel of a run alone: the rest finishes a row statistic,
                          which a reader in a larger graph does in its own kernel */
    bool last_kernel;  /* time the second kernel of two alone, on what the first one has left */

    struct side side[SIDES], first; /* `first` has the plan of `before` */
    int sides, tensors, sets, runs, rounds;
    struct tensor tensor[TENSORS];
    double error;  /* largest of the outputs: |y - r| / |r|, Euclidean */
    double excess; /* largest error over what it may be */
    const struct machine *machine;
};

/* Measures all that the command line chooses, prints a table and writes its JSON; side 0 is libcoda, the
 * others are what it is compared with. Exit status. */
int bench_main(int argc, char **argv, const char *name, struct figure *f, int n);

bool figure_has(const struct figure *f, const char *name); /* a tensor */
struct tensor *figure_tensor(struct figure *f, const char *name);
/* Compares row `row` of an output of side 0 with what it should be. */
void figure_judge(struct figure *f, const char *output, int64_t row, const double *want);

/* A row of an output of side s. */
void figure_row(const struct figure *f, int s, const char *output, int64_t row, double *out);
int64_t figure_columns(const struct figure *f, int s, const char *output);

/* x [rows, K], at most ROWS of them, times the transpose of w [N, K], in fp64 and on all cores. */
void product(const struct tensor *w, int rows, const double *x, double *out);
/* The same of w [K, N], not transposed. */
void product_kn(const struct tensor *w, int rows, const double *x, double *out);

/* Calls fn(ctx, i) for i in 0 .. n-1 from as many threads as there are cores. */
void in_parallel(int64_t n, void (*fn)(void *ctx, int64_t i), void *ctx);

/* A case of a figure that has been timed, on the screen as well; false: its results are wrong. */
bool report_figure(struct report *r, struct figure *f, bool sustained);

double median(double *v, int n); /* sorts v */

#endif
