/* eval.h -- the fp64 evaluator: its one call for others, the rules of the operations, and what they share. */
#ifndef EVAL_H
#define EVAL_H

#include "graph.h"

/* eval.c -- fp64, no rounding. args: leaves in their dtype and strides, outputs dense double. */
coda_status graph_evaluate(const graph *g, void *const *args);

/* What an operation is computed from, and where its result goes: dense doubles. An absent operand is NULL. */
struct eval_call {
    const graph *g;
    const struct node *n;           /* of g */
    const struct type *const *type; /* of the operands */
    const double *const *in;
    const void *data; /* of a leaf: in its own dtype and strides */
    double *out;      /* it has at least one element */
};
/* The rule of each operation. Its formula is the textbook's, not that of the rewrites. */
#define OP(NAME, name, ...) coda_status eval_##name(const struct eval_call *c);
#include "ops.def"

/* eval_matmul.c */

/* Element (i, j) is at[i * row + j * col]. */
struct matrix {
    const double *at;
    int64_t row, col;
};
struct multiply_space;                           /* packed blocks of one thread's product */
struct multiply_space *multiply_space_new(void); /* NULL: no memory; freed with free() */
/* c = a b, or c += a b; a [m,k], b [k,n], c with `pitch` elements between rows. One thread. */
void multiply(struct multiply_space *space, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b,
              double *c, int64_t pitch, bool add);

/* eval_rows.c: what works row by row. */

/* Rows from..to-1 of the result. */
typedef void eval_some_rows(void *ctx, int64_t from, int64_t to);
/* Calls fn over all rows, on several threads when there is enough to do; a row costs about `work`
 * multiply-adds, of which an element's exponential or logarithm counts as so many. */
void eval_spread(int64_t rows, int64_t work, eval_some_rows *fn, void *ctx);
enum { EVAL_TRANSCENDENTAL = 32 };
/* Offset of row `row` of a tensor of type t, under strides that need not be t's own. */
int64_t eval_row_offset(const struct type *t, const int64_t *stride, int64_t row);
double eval_row_max(const double *x, int64_t n); /* NaN if there is one; -inf of nothing */

/* eval_move.c: what moves data. */
/* Rounds dense doubles into the memory of a state. */
void eval_scatter(const struct node *state, const double *from, void *base);

#endif
