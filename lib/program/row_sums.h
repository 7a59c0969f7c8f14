/* row_sums.h -- programs that add rows by id. */
#ifndef ROW_SUMS_H
#define ROW_SUMS_H

#include "program.h"

/* Rows of one id that are added one after the other; sums of so many are then added in their order. So the
 * bits of a sum depend on its own rows alone. */
enum { ROW_SUMS_PIECE = 32 };

/* Rows of the result that a block of its kernel has at once, at most. */
enum { ROW_SUMS_MOST_ROWS = 256 };

/* Numbers of i32 that sorting leaves. */
int64_t sorted_ids(int64_t tokens, int64_t rows);

#endif
