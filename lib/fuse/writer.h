/* writer.h -- lowering: what writes the ports and steps of one program. Steps are in SSA form, each behind
 * those that it reads; what is equal is there once. */
#ifndef WRITER_H
#define WRITER_H

#include "fuse.h"

struct level_view {
    const struct level_view *outer; /* the view is an operand of what that one is of; NULL */
    int view;                       /* reshapes of a map that is computed again */
};
struct writer {
    int range;                      /* of the steps at hand */
    int short_row;                  /* 1 + the row of a short column that is written; 0 */
    const struct level_view *level; /* what is written is read through these views; NULL: none */
    struct grouper *gr;
    struct group *q;
    struct program *p;
    coda_status status;
};

/* lower_ports.c */
/* A port with zero strides; add_port and add_step return the new one's index, add_port that of an equal port
 * if there is one, and 0 if memory runs out, which the plan's arena remembers. */
struct tensor_use port_new(enum use_role role, int buffer, int64_t offset, coda_dtype dtype, int value);
int add_port(struct writer *w, struct tensor_use port);
/* A port to all of a value, by the strides of its view; absent of -1. */
struct tensor_use port_of(struct writer *w, enum use_role role, int value);
int add_step(struct writer *w, struct step step);
/* The step that holds a value; -1 if the program has not computed it. */
int step_of(const struct writer *w, int value);
/* The first step of the kind with the port, for both halves of a gated tile or for one; -1. */
int find_step(const struct writer *w, enum step_kind kind, int port, bool half);
/* The step that loads elements of a value, as if its type were t, from `first` on; by other strides. */
int load_by(struct writer *w, int value, int64_t first, const struct type *t, const int64_t *by,
            const struct type *as);
int load_from(struct writer *w, int value, int64_t first, const struct type *t, const struct type *as);

/* levels.c */
/* Can the program compute again what `view` is of, for a reader that walks elements of type `as`? */
bool level_fits(struct writer *w, int view, const struct type *as);
/* Type and strides of a tensor, as they are seen through the views at hand; false: no strides say it. */
bool level_strides(const struct writer *w, struct type *t, int64_t *stride);

/* lower_again.c: may the program compute the value again for such a reader, instead of reading it? */
bool is_computed_again(struct writer *w, int value, const struct type *as);

/* lower_operands.c: each returns the step that holds what it has written. */
/* Operand i of node n, for elements of type `as`. */
int write_operand(struct writer *w, const struct node *n, int i, const struct type *as);
/* A value that other programs compute too: an INLINE map, a NUMBER, a partial statistic, whose states it
 * merges and finishes. Its reader walks elements of type `as`. */
int write_again(struct writer *w, int value, const struct type *as);
/* A map, a cast or columns' numbers. */
int write_map(struct writer *w, int value, const struct type *as);
/* A row of a value of short columns; what folds them. */
int short_value(struct writer *w, int value, int row);
int write_short_fold(struct writer *w, int value);
/* The map that makes of a value what a tensor of dtype t would hold; NULL if there is none. */
const struct prim *map_to(coda_dtype t);

/* conv1d_step.c: the steps of a convolution, or the one that has its last row; the stores of its state. */
int write_conv1d_step(struct writer *w, int value);
void store_conv1d_state(struct writer *w, int version, int buffer);

/* conv1d_rows.c: the steps of a product that computes rows of a convolution, and their store; what the
 * program that computes the others has in the place of x. */
void write_conv1d_rows(struct writer *w);
struct tensor_use conv1d_edges(struct writer *w, enum use_role role);
/* Is of a value of all columns only that wanted which is ahead of the range, or behind it? */
bool conv1d_stores_rest(const struct writer *w, int value, struct column_range *rest);

/* lower_stores.c: stores a value wherever it is wanted. */
void lower_stores(struct writer *w, int value);

/* lower_steps.c */
/* Writes the steps of a member; returns the step that holds its value. */
int write_member(struct writer *w, int value);
/* Writes the step that leaves the best of each tile's rows. */
void write_best(struct writer *w, const struct best *best);

#endif
