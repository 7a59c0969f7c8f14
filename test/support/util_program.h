/* util_program.h -- programs made by hand, with their memory, for tests of what runs or prints them. */
#ifndef UTIL_PROGRAM_H
#define UTIL_PROGRAM_H

#include "attention_kernel.h"
#include "emit.h"
#include "mainloop.h"

enum { RIG_BUFFERS = 24, RIG_PORTS = 24, RIG_STEPS = 48 };

/* One program, each of whose buffers is an argument. */
struct rig {
    struct plan plan; /* of p and s */
    struct program p;
    struct attention_spec attention;
    struct schedule s;
    struct kernel k;
    struct buffer buffer[RIG_BUFFERS];
    struct tensor_use port[RIG_PORTS];
    struct step step[RIG_STEPS];
    coda_dtype dtype[RIG_BUFFERS];
    int64_t elements[RIG_BUFFERS];
    void *args[RIG_BUFFERS];
};

#define DIMS(...)                                                                                            \
    (const int64_t[CODA_MAX_RANK]) { __VA_ARGS__ }

void rig_init(struct rig *r, enum program_kind kind, int rank, const int64_t *dim);
void rig_free(struct rig *r);

/* A buffer of elements in -2 .. 2 that depend on `seed`; i32: 0 .. most - 1 by rig_ids. */
int rig_buffer(struct rig *r, coda_dtype t, int64_t elements, unsigned seed);
int rig_ids(struct rig *r, int64_t elements, int most, unsigned seed);
double rig_get(const struct rig *r, int buffer, int64_t i);
void rig_set(struct rig *r, int buffer, int64_t i, double x);

/* Steps; each returns its index. The class of a load is that of its strides. */
int rig_acc(struct rig *r);
int rig_load(struct rig *r, int buffer, int64_t offset, const int64_t *stride);
int rig_gather(struct rig *r, int table, int64_t rows, int64_t pitch, int id);
int rig_partial(struct rig *r, const char *reduce, int buffer, int blocks);
int rig_map(struct rig *r, const char *prim, int a, int b, const float *params); /* b -1: unary */
int rig_lane(struct rig *r, int x, int lane);
int rig_rope(struct rig *r, int x, int position);
int rig_reduce(struct rig *r, const char *prim, int x, int key); /* ROWS */
void rig_reduce_tiles(struct rig *r, const char *prim, int x, int key, int buffer, int blocks);
/* Over rows: each leaves `blocks` states of a column; and finishes such, in a matrix of one row. */
void rig_reduce_columns(struct rig *r, const char *prim, int x, int buffer, int blocks);
int rig_partial_columns(struct rig *r, const char *reduce, int buffer, int blocks);
void rig_store(struct rig *r, int x, int buffer, int64_t offset, const int64_t *stride);
void rig_store_row(struct rig *r, int x, int buffer, int64_t offset, const int64_t *stride);

/* Operands of a GEMM, strides in elements. */
void rig_operand(struct rig *r, struct operand *o, int buffer, int64_t batch, int64_t row, int64_t k);

/* Completes the schedule for the target and emits the kernel. */
coda_status program_emit(struct plan *plan, struct program *p, struct schedule *s,
                         const struct target *target, struct kernel *k);
coda_status rig_emit(struct rig *r, const struct target *target);

/* On the CPU, twice, into memory that begins as different bytes: the results must be the same bits, and what
 * is not written is as it was. */
coda_status rig_run(struct rig *r);

#endif
