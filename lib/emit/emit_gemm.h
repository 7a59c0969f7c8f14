/* emit_gemm.h -- between emit_gemm.c, which prints a GEMM kernel, and emit_gemm_maps.c, which describes its
 * tensors to TMA. */
#ifndef EMIT_GEMM_H
#define EMIT_GEMM_H

#include "kernel.h"
#include "schedule.h"

/* Appends the maps to k, in the order in which Args holds them. */
void emit_gemm_maps(const struct program *p, const struct schedule *s, struct kernel *k);

#endif
