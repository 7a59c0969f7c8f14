/* emit_rows.h -- between emit_rows.c, which prints a rows kernel's frame and walks, emit_rows_starts.c, which
 * says how many rows there are and where they start, emit_rows_steps.c, which prints steps, and what they
 * share. */
#ifndef EMIT_ROWS_H
#define EMIT_ROWS_H

#include "emit_text.h"

struct emitter {
    struct plan *plan;
    const struct program *p;
    const struct rows_walk *w;
    struct kernel *k;
    struct text *t;
    bool *needed, *scratch;               /* steps: the column values of a walk */
    int *argument;                        /* of each port: index in k->pointer, -1 if no live step uses it */
    const struct exchange_spec *exchange; /* schedule.h */
    int summed;                           /* the port that it is loaded by; -1 */
    bool passes;                          /* numbers of rows, and what follows from them, are arguments */
    int depth;                            /* of indentation */
};

/* emit_rows_printer.c */
void rows_line(struct emitter *e, const char *format, ...) PRINTF(2, 3);
void rows_open(struct emitter *e, const char *format, ...) PRINTF(2, 3);
void rows_close(struct emitter *e);
const char *rows_index_type(const struct emitter *e);   /* of pieces of the domain */
int64_t rows_stride(const struct emitter *e, int port); /* from column to column */
struct word rows_load(const struct emitter *e, int i);  /* the name of column load i's piece */
struct word rows_times(int64_t n);                      /* " * 8", or nothing for 1 */
void rows_open_walk(struct emitter *e);                 /* over the pieces of a row, at c */

/* emit_pairs.c: the STEP_PAIR, if it is live. */
bool rows_has_pairs(const struct emitter *e);
coda_status rows_check_pairs(const struct emitter *e);
void rows_pair_tables(struct emitter *e); /* ahead of the kernel */
/* Can it find the other element of each pair, in memory or in the piece at hand? */
bool rows_has_partner(const struct emitter *e, int step);
void rows_pair_partners(struct emitter *e, int step); /* where the piece stands in its pairs, and the
                                                         other elements if they are not in it */
void rows_pair(struct emitter *e, int step);
/* Are a row's turns the same for so many heads that its team makes them once, in shared memory? Then: makes
 * them, ahead of the walks; and what a thread takes of them ahead of the walk that turns. */
bool rows_shares_turns(const struct emitter *e);
void rows_make_turns(struct emitter *e);
void rows_take_turns(struct emitter *e);

/* emit_rows_walk.c: the walks of a team over its row, and between them the row's values. */
void rows_walk_team(struct emitter *e);
/* What all rows share, asked for once, ahead of the wait: is there any, and its walk, by lanes. */
bool rows_are_early(const struct emitter *e);
void rows_walk_early(struct emitter *e);
void rows_lane(struct emitter *e);

/* emit_columns.c: kernels whose threads fold columns, or finish what was folded. */
int rows_shared_floats(const struct emitter *e); /* for states of a block; 0: it needs none */
void rows_fold_columns(struct emitter *e);
void rows_finish_columns(struct emitter *e);

/* emit_rows_starts.c */
bool rows_may_pass(const struct emitter *e); /* do numbers fit among the arguments? */
void rows_pass_numbers(struct emitter *e);   /* prints them, as the last arguments */
struct word rows_count(const struct emitter *e);
struct word rows_pieces(const struct emitter *e, const char *suffix); /* of all rows; of a constant: " u" */
struct word
rows_blocks_word(const struct emitter *e);           /* of all columns, where these are folded or finished */
struct word rows_of_matrix(const struct emitter *e); /* where its columns are folded, and ... */
struct word rows_of_part(const struct emitter *e);   /* ... of each of its parts but the last; */
struct word rows_matrix(const struct emitter *e);    /* the matrix of part `part` of all, ... */
struct word rows_part(const struct emitter *e);      /* ... and which of its parts that is */
bool rows_divides_pieces(const struct emitter *e);   /* are a row's pieces a divisor? */
bool rows_has_divisors(const struct emitter *e);
struct word rows_of_table(const struct emitter *e, int port);
struct word rows_states(const struct emitter *e, int port);  /* that tiles have left of a row */
struct word rows_position(const struct emitter *e);          /* of this row in its sequence */
void rows_starts(struct emitter *e);                         /* where this row starts in each port */
void rows_matrix_indices(struct emitter *e);                 /* of `matrix`, ahead of its rows */
struct word rows_row_index(const struct emitter *e);         /* what a row's index in its matrix is called */
struct word rows_index_word(const struct emitter *e, int d); /* and that in a dimension */
void rows_pointers(struct emitter *e);                       /* where the row of these indices starts */

/* emit_rows_mean.c: is the REDUCE a mean of elements that the team keeps, or squares about it? Then: room for
 * its sum, an element of this, and its value. */
bool rows_has_mean(const struct emitter *e, int step);
void rows_begin_mean(struct emitter *e, int step);
void rows_push_mean(struct emitter *e, int step);
void rows_finish_mean(struct emitter *e, int step);

/* emit_rows_steps.c */
void rows_partials(struct emitter *e);              /* states of the row, to be finished */
void rows_row_values(struct emitter *e, int phase); /* and the stores of such */
void rows_kept(struct emitter *e);                  /* room for kept loads */
void rows_early_room(struct emitter *e);            /* for loads of what all rows share; and these, at c */
void rows_read_early(struct emitter *e);
/* Into it, what the first walk needs at c: sums over ranks, or all else. */
void rows_read_ahead(struct emitter *e, bool summed);
void rows_piece(struct emitter *e, int phase); /* the walk's column values at c */

#endif
