/* cpu_frame.h -- what the steps of a program work in over one row: their values, states and operands. */
#ifndef CPU_FRAME_H
#define CPU_FRAME_H

#include "cpu.h"

struct cpu_frame {
    const struct cpu *cpu;
    int64_t row;
    int64_t at[CODA_MAX_RANK]; /* the row's index in each leading dimension */
    bool started;              /* the column values are there, ... */
    int64_t sample;            /* ... of this sample or batch */
    double *states;            /* of the columns or the row, for one reducing step after the other */
    bool *in_place;            /* for each step: its value is where the port is */
    float *value[];            /* of each step; the floats follow */
};

/* Floats of a step's value over one row; columns that it is of. */
int64_t step_width(const struct cpu *c, const struct step *s);
int64_t step_columns_of(const struct cpu *c, const struct step *s);
/* Numbers of the states of all columns that a step folds, or of the row's; and where they are. */
size_t state_numbers(const struct cpu *c, const struct step *s);
double *states_of(const struct cpu_frame *f, const struct step *s);

/* A step's value as read by another: its columns `stride` apart, 0 for a row value; each is that of
 * `repeat` columns. */
struct operand_view {
    const float *x;
    int64_t stride, repeat;
};

static inline float at(struct operand_view v, int64_t column)
{
    return v.x[(v.repeat > 1 ? column / v.repeat : column) * v.stride];
}

/* The value of step `step` as step s reads it: from the first column of its range, if it has one, on. */
struct operand_view operand_of_step(const struct cpu_frame *f, int step, const struct step *s);

static inline float row_value(const struct cpu_frame *f, int step) { return f->value[step][0]; }

/* The element of a port at this row and column 0, and how far columns are apart. */
int64_t row_offset(const struct cpu_frame *f, const struct tensor_use *port);
int64_t column_stride(const struct cpu_frame *f, const struct tensor_use *port);

/* cpu_ports.c -- `out` is the step's value. */
void cpu_load(struct cpu_frame *f, const struct step *s, float *out);
void cpu_scalar(struct cpu_frame *f, const struct step *s, float *out);
void cpu_partial(struct cpu_frame *f, const struct step *s, float *out);
void cpu_store(struct cpu_frame *f, const struct step *s);
/* A load's value where it is, if it is read there. */
float *row_in_place(const struct cpu_frame *f, const struct step *s);
/* The states that this row's tiles left; those of the columns of a part, counted through all matrices. */
float *partial_states(const struct cpu_frame *f, const struct tensor_use *port);
float *column_states(const struct cpu_frame *f, const struct tensor_use *port, int64_t part, int64_t columns);

/* cpu_conv1d.c: of this row and those above it, which the frame has had before: they are behind the value. */
void cpu_convolve(struct cpu_frame *f, const struct step *s, float *out);

/* cpu_reduce.c */
void cpu_reduce(struct cpu_frame *f, const struct step *s, float *out);

#endif
