/* launches.h -- launches in words, and what CODA_DEBUG=launch prints. */
#ifndef LAUNCHES_H
#define LAUNCHES_H

#include "executable.h"

double launch_clock(void); /* ms */
/* "gemm batch=1 m=64 n=256 k=256: add, sum_sq" */
void launch_print(const struct program *q, struct text *t);
/* Names all programs for profilers, if one listens: "coda_gemm_add: gemm batch=1 m=64 n=256 k=256: add in
 * layers.17.mlp". A name that cannot be had is none. */
void launches_name(struct coda_plan *p);
/* "@3 gemm batch=1 m=64 n=256 k=256: add, sum_sq; 233472 bytes, 0.412 ms", and before that the kernel's name
 * where there is one. ms: what it took, or negative: not known, since the device has yet to run it. */
void launch_show(const struct coda_plan *p, int index, double ms);

#endif
