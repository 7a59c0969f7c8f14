/* tool_args.h -- a graph, its plan, and what it is run on: between tool_args.c, tool_run.c, tool_bench.c. */
#ifndef TOOL_ARGS_H
#define TOOL_ARGS_H

#include "gpu.h"
#include "tensor.h"
#include "tool.h"

/* One run: the graph, its arguments in host memory, the exact outputs if they are asked for. */
struct run {
    const struct options *opt;
    coda_graph *g;
    coda_plan *p;
    struct tensors t;
    double **exact; /* for each argument; NULL where the run writes nothing */
    bool repeats;   /* random numbers may, in large tensors */
};

/* Fills r->t, as the options say; 0, or 1 after a complaint, as all that follows. */
int make_inputs(struct run *r);
bool is_result(const struct run *r, int i);
int find_arg(const struct run *r, const char *name, bool is_output); /* -1: there is none */

/* What coda_run takes, prepared. */
struct memory {
    void **args, *work, *prepared;
};
int memory_host(const struct run *r, struct memory *m);
void memory_free_host(struct memory *m);
/* It goes back with the process. */
int memory_gpu(const struct run *r, struct memory *m, const struct gpu *gpu);

/* The line that shows progress, of another part of the work. */
void show_work(const struct run *r, const char *what);

#endif
