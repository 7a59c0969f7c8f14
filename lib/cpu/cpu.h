/* cpu.h -- the CPU device: runs a program on the host, rounding where the kernels round. The rest is what
 * its files share. */
#ifndef CPU_H
#define CPU_H

#include "own.h"
#include "plan.h"

coda_status cpu_run(const struct plan *plan, const struct program *p, void *const *args, void *prepared,
                    void *workspace);

/* A program bound to the memory of one call. */
struct cpu {
    const struct plan *plan;
    const struct program *p;
    void *const *args;
    char *prepared, *workspace;
    int64_t rows, columns; /* of the domain; rows: the product of all dimensions but the last */
};

/* cpu_memory.c */
void *cpu_buffer(const struct cpu *c, int buffer);
/* Elements at, at + stride, ... as floats. */
void cpu_read(float *out, coda_dtype t, const void *base, int64_t at, int64_t stride, int64_t n);
/* The same of a use, in whose offset and strides `at` and `stride` are counted: decoded if it is packed. */
void cpu_read_use(float *out, const struct tensor_use *u, const void *base, int64_t at, int64_t stride,
                  int64_t n);

/* n elements from `at` on, one behind the other. */
void cpu_write(coda_dtype t, void *base, int64_t at, const float *x, int64_t n);

/* The cost of a step for each element, in multiply-adds of a product. */
enum { CPU_STEP_OPERATIONS = 8 };

/* cpu_steps.c -- the values of a program's steps over one row; one frame for each thread at work.
 * `acc` is the row of the GEMM's accumulator. Rows of one frame share its column values. */
struct cpu_frame;
struct cpu_frame *cpu_frame_new(const struct cpu *c); /* NULL if memory runs out; free() it */
void cpu_frame_run(struct cpu_frame *f, int64_t row, float *acc);

/* In a program that folds columns a frame runs one part of a matrix's rows after the other. The
 * accumulators of a part begin empty, and are left in memory as those of `part`, counted through all
 * matrices. */
int cpu_parts(const struct program *p); /* of each matrix; 0: it folds no columns */
void cpu_frame_begin_part(struct cpu_frame *f);
void cpu_frame_end_part(struct cpu_frame *f, int64_t part);

/* cpu_gemm.c, and cpu_NAME.c of an own_kind */
coda_status cpu_gemm(const struct cpu *c);
#define X(NAME, name) coda_status cpu_##name(const struct cpu *c);
OWN_KERNELS(X)
#undef X

#endif
