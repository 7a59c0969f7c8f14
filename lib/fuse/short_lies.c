/*
 * short_lies.c -- columns of a few rows, as tensors have them: how many rows, and where each of them lies
 * over the domain of a program whose elements are such columns (short_columns.c).
 */
#include "fuse.h"

#include <string.h>

enum { MOST_ROWS = 16 };

/* The rows of a matrix, if they are 2 to MOST_ROWS; else 0. */
int short_rows(const struct type *t)
{
    if (t->rank < 2 || extent_reaches(t->dim[t->rank - 2], MOST_ROWS + 1)) return 0;
    for (int height = 2; height <= MOST_ROWS; height++)
        if (extents_equal(t->dim[t->rank - 2], height)) return height;
    return 0;
}

int short_height(const struct type *t)
{
    return t->rank < 2 || extent_is_one(t->dim[t->rank - 2]) ? 1 : short_rows(t);
}

struct type short_row(const struct type *t)
{
    struct type row = *t;
    if (row.rank > 1) row.dim[row.rank - 2] = 1;
    return row;
}

const char *short_map(const struct prim *fold)
{
    if (!strcmp(fold->name, "sum") || !strcmp(fold->name, "mean")) return "add";
    return !strcmp(fold->name, "max") ? "maximum" : NULL;
}

/* Do strides over the program's domain lead to each row of what it loads, and writes? */
bool short_lies(const struct grouper *gr, const struct group *q)
{
    const struct short_columns *s = q->short_columns;
    const struct type *as = &gr->g->node[q->p.root].type;
    int64_t out[CODA_MAX_RANK];
    for (int i = 0; i < s->loads; i++) {
        struct type t = short_row(&gr->g->node[s->loaded[i]].type);
        if (!domain_strides(q, &t, gr->view[s->loaded[i]].stride, as, out)) return false;
    }
    return s->version < 0 || domain_strides(q, as, gr->g->node[s->version].stride, as, out);
}

bool short_has(const struct group *q, int value)
{
    return q->short_columns && (value == q->p.root || value == q->short_columns->version);
}
