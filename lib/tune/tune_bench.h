/* tune_bench.h -- the ways to compute one GEMM program of a plan, measured; between tune.c, tune_bench.c and
 * tune_tensors.c. */
#ifndef TUNE_BENCH_H
#define TUNE_BENCH_H

#include "tune.h"

/* tune_bench.c: figures of program `index`, without any but with the reason if it cannot be measured. */
coda_status benchmark(struct figures *out, const struct tuner *t, const struct plan *plan, int index);

/* tune_candidates.c: how many tiles it would measure. */
int benchmark_tiles(const struct tuner *t, const struct program *p);

/* ---- tune_tensors.c ---- */

enum content { CONTENT_NORMAL, CONTENT_POSITIVE, CONTENT_INTEGER };

/* What programs read and write, each value once, whichever candidate they are of. */
struct tensor {
    int arg, value;      /* an argument of the caller's graph, or -1 and the node */
    bool state, scratch; /* of a partial reduction; of cuBLASLt */
    bool scalar;         /* in host memory, here: */
    uint32_t number;
    enum content content;
    int64_t format; /* graph_format() of what is packed; 0 */
    coda_dtype dtype;
    double scale;
    size_t bytes, at; /* `at`: in a set; of scratch, before all sets */
};

struct tensors {
    struct tensor *tensor;
    int n;
    char *memory;
    size_t scratch, step; /* bytes before the first set; of a set */
    int sets;
};

/* Makes every buffer that the plan's programs touch an argument: the number of its tensor. */
coda_status tensors_bind(struct tensors *ts, struct plan *plan, const struct coda_arg_info *arg);
/* Memory for as many sets as are worth it on a card with so much L2, with random contents. CODA_OK without
 * memory and with the reason in `why` if there is too little. */
coda_status tensors_load(struct tensors *ts, int64_t l2_size, char *why, size_t size);
void *tensor_address(const struct tensors *ts, int index, int set);
coda_status tensor_poison(const struct tensors *ts, int index); /* in set 0 */
coda_status tensor_fill(const struct tensors *ts, int index);   /* anew, with its numbers */
/* The tensor in set 0, on the host: malloc'd. */
coda_status tensor_download(void **out, const struct tensors *ts, int index);
/* Is `got` what was wanted, but for rounding? */
bool tensor_agrees(const struct tensor *t, const void *got, const void *want, bool wide);
void tensors_free(struct tensors *ts);

#endif
