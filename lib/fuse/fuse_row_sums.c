/* fuse_row_sums.c -- the two programs of rows added by id: one sorts the ids into memory of their own, which
 * the other reads in their place. */
#include "fuse_own.h"
#include "row_sums.h"

#include <string.h>

static const struct type *type_of(const struct writer *w, int operand)
{
    const graph *g = w->gr->g;
    return &g->node[g->node[w->p->root].in[operand]].type;
}

/* One stride for `leading` dimensions, behind it that of columns: insert_copies.c has seen to it. */
static void by_rows(struct tensor_use *u, const struct type *t, int leading)
{
    const struct tensor_use from = *u;
    memset(u->stride, 0, sizeof u->stride);
    if (leading < t->rank) u->stride[1] = from.stride[leading];
    if (!extent_is_one(type_elements(t))) view_collapse(t, from.stride, 0, leading, &u->stride[0]);
}

/* What sorting leaves of the ids. */
static struct tensor_use sorted(struct writer *w, enum use_role role, int64_t tokens, int64_t rows)
{
    int buffer = accumulator_buffer(w->gr, w->p->root), ids = w->gr->g->node[w->p->root].in[ROW_SUMS_IDS];
    w->gr->plan->buffer[buffer].bytes = mul_counts(4, sorted_ids(tokens, rows));
    struct tensor_use u = port_new(role, buffer, 0, CODA_I32, ids);
    u.stride[0] = 1;
    return u;
}

/* The program that sorts is of the same node. It is written when those that are there have been. */
static void add_sort(struct writer *w)
{
    int root = w->p->root, ids = w->gr->g->node[root].in[ROW_SUMS_IDS];
    struct group *sort = group_new(w->gr, PROGRAM_OWN, root);
    if (!sort) return;
    sort->p.own = &own_sort_ids;
    refuse_note(w->gr, sort, ids, REASON_OWN_READS, root, 0, 0);
}

static void read_sums(struct writer *w)
{
    const struct type *x = type_of(w, ROW_SUMS_X), *sums = &w->gr->g->node[w->p->root].type;
    struct row_sums_spec *s = w->p->spec;
    s->tokens = type_elements(type_of(w, ROW_SUMS_IDS));
    s->rows = sums->dim[0];
    s->columns = sums->dim[1];
    w->p->rank = 2;
    w->p->dim[0] = s->tokens, w->p->dim[1] = s->columns;
    by_rows(&s->use[ROW_SUMS_X], x, x->rank - 1);
    s->use[ROW_SUMS_IDS] = sorted(w, USE_BESIDE, s->tokens, s->rows);
    add_sort(w);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec, (void)result;
    dense_strides(t, to->stride);
}

const struct own_fusion fuse_row_sums = {.kind = &own_row_sums, .read = read_sums, .place = place};

static void read_sort(struct writer *w)
{
    const struct type *ids = type_of(w, ROW_SUMS_IDS);
    struct sort_ids_spec *s = w->p->spec;
    s->tokens = type_elements(ids);
    s->rows = w->gr->g->node[w->p->root].type.dim[0];
    w->p->rank = 1;
    w->p->dim[0] = s->tokens;
    by_rows(&s->use[ROW_SUMS_IDS], ids, ids->rank);
    s->use[ROW_SUMS_X] = port_new(USE_OPERAND, -1, 0, CODA_I32, -1);
    s->use[ROW_SUMS_SUMS] = sorted(w, USE_RESULT, s->tokens, s->rows);
}

const struct own_fusion fuse_sort_ids = {.kind = &own_sort_ids, .read = read_sort, .place = place};
