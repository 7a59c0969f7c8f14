/* eval.h -- the fp64 evaluator: its one call for others, and what its files share. */
#ifndef EVAL_H
#define EVAL_H

#include "graph.h"

/* eval.c -- fp64, no rounding. args: leaves in their dtype and strides, outputs dense double. */
coda_status graph_evaluate(const graph *g, void *const *args);

/* eval_matmul.c */

/* Element (i, j) is at[i * row + j * col]. */
struct matrix {
    const double *at;
    int64_t row, col;
};
struct multiply_space; /* packed blocks of one thread's product */
struct multiply_space *multiply_space_new(void); /* NULL: no memory; freed with free()             */
/* c = a b, or c += a b; a [m,k], b [k,n], c with `pitch` elements between rows. One thread. */
void multiply(struct multiply_space *space, int64_t m, int64_t n, int64_t k, struct matrix a,
              struct matrix b, double *c, int64_t pitch, bool add);
coda_status eval_matmul(const struct node *n, const struct type *xt, const struct type *wt,
                        const double *x, const double *w, double *out);

/* eval_attention.c: in[] = q, k, v, lengths or NULL; type[] theirs. */
coda_status eval_attention(const struct node *n, const struct type *const type[4],
                           const double *const in[4], double *out);

/* eval_rows.c: operations that work row by row, or move data. */
coda_status eval_rowwise(const struct node *n, const struct type *const type[], const double *const in[],
                         double *out);
/* Gathers a strided tensor into dense doubles; dtype 0 stands for double itself. */
void eval_gather(const struct type *t, int dtype, const void *base, const int64_t *stride, double *out);

#endif
