/* emit_gemm.h -- between emit_gemm.c, which prints a GEMM kernel, and what prints its parts. */
#ifndef EMIT_GEMM_H
#define EMIT_GEMM_H

#include "kernel.h"
#include "schedule.h"

/* The product that is being printed, and where to. */
struct gemm {
    const struct program *p;
    const struct schedule *s;
    struct kernel *k;
    struct text *t;
};

/* emit_gemm_maps.c: describes its tensors to TMA: appends the maps to k, in the order of `struct Args`. */
void emit_gemm_maps(const struct program *p, const struct schedule *s, struct kernel *k);

/* ---- emit_gemm_args.c ---- */

/* A kernel has the number of rows as an argument, so that the products of all of them which have the same
 * tile share a text; but where the main loop unrolls them it is a constant. */
bool gemm_passes_rows(const struct gemm *g);
/* A tile for any number of rows is walked in one way or another, as the launch says. */
bool gemm_passes_walk(const struct gemm *g);
bool gemm_is_batched(const struct gemm *g);
/* From one batch of an operand to the next, in elements of the type that `struct Args` points at. */
int64_t gemm_batch_stride(const struct tensor_use *o);
/* Prints `struct Args`, and adds to the kernel what a launch fills it with. */
void gemm_print_args(const struct gemm *g);

/* ---- emit_gemm_config.c ---- */

/* The column layout of the tile, or of the share that each block drains. */
void gemm_print_columns(const struct gemm *g, int bn);
void gemm_print_config(const struct gemm *g);

#endif
