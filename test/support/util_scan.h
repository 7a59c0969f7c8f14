/* util_scan.h -- graphs of selective scans, and what plain loops in fp64 say of them. */
#ifndef UTIL_SCAN_H
#define UTIL_SCAN_H

#include "util_run.h"

enum {
    SCAN_EACH = 1, /* a decay for each state, as Mamba has it; else one for a head */
    SCAN_SOFTPLUS = 2,
    SCAN_BIASED = 4,
    SCAN_SKIPS = 8,
    SCAN_GATED = 16,
    SCAN_ONE_ROW = 32,  /* x, dt, b, c and the gate are columns of one tensor; else tensors of their own */
    SCAN_BEGINS = 64,   /* with states; else with zeros */
    SCAN_KEEPS = 128,   /* these are a state, which it is left in; else an output has what is left */
    SCAN_BY_HEADS = 256 /* of rank 4 */
};

struct scan_case {
    const char *name;
    coda_dtype dtype, dt, state;
    int64_t batch, tokens, heads, head_dim, groups, states; /* batch 0: of rank 2 */
    int64_t sequences;                                      /* that are packed; 0: they are not */
    unsigned flags;
};
extern const struct scan_case scan_cases[];
extern const int scan_case_count;
struct scan_case scan_draw(uint64_t seed); /* a small one of any kind */

graph *scan_graph(const struct scan_case *c);
/* Arguments with decays from next to none to fast ones, and with starts. */
void **scan_args(const struct scan_case *c, const graph *g, uint64_t seed, bool evaluate);

/* What the loops make of arguments, before a run. */
struct scan_expected {
    double *y, *after;
};
struct scan_expected scan_expect(const struct scan_case *c, const graph *g, void **args);
void scan_expected_free(struct scan_expected *e);
/* The largest error, in parts of what is allowed: of y 2e-2 in 16 bits and 2e-5 in fp32, of states 1e-5, and
 * as much for every 64 tokens, each of which multiplies by a power that may be off by 2^-22, in bf16 2e-2, of
 * evaluate 1e-12; each of the rms, and as much of the number. */
double scan_error(const struct scan_case *c, const graph *g, void **args, const struct scan_expected *e,
                  bool evaluate);

/* A sequence in runs of so many tokens each, whose states go from run to run, on the host or a GPU: bytes of
 * y, and of the state in the end, that are not those of one run; -1 with the message set. */
int64_t scan_cut(const struct scan_case *c, const int64_t *tokens, int runs, uint64_t seed, bool on_gpu);
/* Bits differ where a run has so many tokens that its kernel goes by chunks. */
extern const struct scan_case scan_cut_cases[];
extern const int scan_cut_case_count;

#endif
