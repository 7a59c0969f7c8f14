/* infer.h -- the rules that find types, one for each operation, and what they are made of. */
#ifndef INFER_H
#define INFER_H

#include "graph.h"

/* Sets n's type and completes its attributes; a failure names the numbers that do not fit. */
#define OP(NAME, name, ...) coda_status infer_##name(const graph *g, struct node *n);
#include "ops.def"

/* infer_needs.c */
/* What messages call it: a primitive's name, the call of coda.h, else the text form's word. */
const char *node_word(const struct node *n);
const struct type *operand_type(const graph *g, const struct node *n, int i); /* NULL: absent */
bool dims_equal(const struct type *a, const struct type *b, int rank);        /* the first `rank` of them */
/* Failures that name the operand or the attribute, and what it must be. */
coda_status need_any_float(const struct node *n, int operand, const struct type *t, int rank);
/* The same, and columns that are known to the kernels that add along them. */
coda_status need_float(const struct node *n, int operand, const struct type *t, int rank);
coda_status need_fixed_columns(const struct node *n, const char *name, const struct type *t);
/* An optional vector over x's columns. */
coda_status need_columns(const graph *g, const struct node *n, int operand, const struct type *x);
coda_status need_range(const struct node *n, const char *name, int64_t value, int64_t least, int64_t most);
coda_status need_eps(const struct node *n, float eps);
coda_status need_dtype(const struct node *n, int64_t t);

/* infer_view.c -- an axis of an operand by its name: one below 0 counts from the end, -1 is the last. */
coda_status find_axis(const struct node *n, const char *name, const struct type *x, int64_t *axis);

/* infer_exchange.c -- refuses a group as an operand of anything but an exchange. */
coda_status check_groups(const graph *g, const struct node *n);

#endif
