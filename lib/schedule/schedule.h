/* schedule.h -- from what a program computes to how it runs on one machine. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "plan.h"

enum { CUBLASLT_WORKSPACE = 64 << 20 }; /* bytes, as jit.h's JIT_LT_WORKSPACE                      */

/* ---- schedule.c ---- */

/* Tiles of all programs, and the sizes of what depends on them. */
coda_status schedule(struct plan *p, const struct plan_options *opt);
/* Leaves bare products to cuBLASLt, where opt or a decision wants it. The programs are in order. */
coda_status schedule_cublaslt(struct plan *p, const struct plan_options *opt);

/* ---- plan_print.c: a plan with its schedule ---- */

void plan_print(const struct plan *p, struct text *t);
/* One program; p NULL: without names, places and tile, so that equal programs have equal texts. */
void program_print(const struct plan *p, const struct program *q, struct text *t);

#endif
