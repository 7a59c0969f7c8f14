/* emit_epilogue.h -- prints `struct Epilogue`; emit_epilogue.c, emit_levels.c and emit_printer.c. */
#ifndef EMIT_EPILOGUE_H
#define EMIT_EPILOGUE_H

#include "emit_text.h"

struct printer {
    const struct program *p;
    const struct epilogue_layout *l;
    struct text *t;
    enum level level; /* of the function being printed */
};

/* emit_epilogue.c: the steps of a GEMM. */
void emit_epilogue(const struct program *p, const struct epilogue_layout *l, struct text *t);

/* emit_printer.c */
/* Value `step` as the current function sees it on `lane`. */
struct word printer_value(const struct printer *e, int step, int lane);
/* " + stride * index", or nothing. */
struct word printer_term(int64_t stride, int64_t extent, const char *index);
/* Is it an argument of 4 bytes how far a port's batches are apart? How many rows its table has? */
bool printer_fits(int64_t n);
bool printer_passes_batch(const struct program *p, const struct tensor_use *port);
bool printer_passes_table(const struct tensor_use *port);
/* " + g.batch3 * index", or nothing; "g.table3". */
struct word printer_batch(const struct program *p, const struct tensor_use *port, const char *index);
struct word printer_table(const struct program *p, const struct tensor_use *port);
/* The period of rows' positions, where there are more rows; 0: a row's position is its number. */
int64_t printer_period(const struct program *p);
bool printer_passes_period(const struct program *p); /* as an argument, g.period */
/* The number of row m of `batch` among all rows. */
struct word printer_row(const struct program *p, const char *batch, const char *m);
/* The call of a step's map. */
void printer_call(const struct printer *e, const struct step *s, int lane);

/* The step's value in a slot. */
void printer_slot(const struct printer *e, int step);
/* Its number among the loads, or stores, of the slots. */
int printer_number(const struct printer *e, int step);
/* Does a STORE add to what is there? */
bool printer_adds(const struct printer *e, int step);
/* "Whole<bf16, 0>". */
void printer_move(const struct printer *e, const struct move *v);

/* emit_segments.c: ranges of columns, and statistics of their segments. */
void printer_segments(struct printer *e);
/* Prints the moves that are staged for each range of columns. */
void printer_stores(const struct printer *e);
/* Ranges in the text, those without steps of their own as one of them; and the number of a step's. */
int printer_ranges(const struct program *p);
/* " + stride * column" of what a step of a range has for column n. */
struct word printer_column(const struct program *p, const struct step *s, const struct tensor_use *port);

/* emit_levels.c: the struct `type` and the function `name` of a level other than slots. */
void printer_level(struct printer *e, enum level level, const char *type, const char *name,
                   const char *index);

/* emit_conv1d.c: what a STEP_CONV1D sees of the rows above, and the step. */
void printer_rows_above(struct printer *e);
void printer_conv1d(const struct printer *e, int i);

/* emit_pairs.c: the STEP_PAIR, if there is one. */
/* The type of Config that says where the tile's pairs are: "HalfHeads<128, 64, 64>;". */
void emit_pair_columns(const struct program *p, int bn, bool splits_heads, struct text *t);
/* Fields that it adds to the struct of a level, NULL for none; and the lines that fill them in. */
const char *printer_pair_fields(const struct printer *e, enum level level);
void printer_pair_values(const struct printer *e, enum level level);
/* The struct Cell and its functions: what a row and a column make together. */
void printer_cell(struct printer *e);
/* The step in a slot. */
void printer_pair(const struct printer *e, int step);

#endif
