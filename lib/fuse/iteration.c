/*
 * iteration.c -- how a value lies over the domain of a program: [batch, M, N] of a product, or the tensor
 * that a rows program walks.
 */
#include "fuse.h"
#include "plan_sizes.h"

#include <string.h>

static int64_t rows_of(const struct group *q)
{
    return q->p.kind == PROGRAM_GEMM ? q->p.dim[0] * q->p.dim[1] : type_rows(&q->domain);
}

bool domain_rows_match(const struct group *q, const struct type *t)
{
    return extents_equal(type_rows(t), rows_of(q));
}

bool domain_is_column(const struct group *q)
{
    return q->p.kind == PROGRAM_ROWS && extent_is_one(q->p.dim[q->p.rank - 1]);
}

const struct type *domain_walked(const graph *g, const struct node *n)
{
    int operand = n->op == OP_REDUCE ? 0 : n->op == OP_APPEND ? 1 : -1;
    return operand >= 0 ? &g->node[n->in[operand]].type : &n->type;
}

struct type domain_operand_type(const graph *g, const struct node *n, int i)
{
    const struct type *t = &g->node[n->in[i]].type;
    bool key = (op_combines_pairs(n->op) && i == ROPE_POSITIONS) ||
               (n->op == OP_EMBEDDING && i == EMBEDDING_IDS) || (n->op == OP_REDUCE && i == REDUCE_KEY);
    if (i == APPEND_SLOTS && n->op == OP_APPEND) return type_as_rows(t);
    if (!key) return *t;
    if (node_has_sections(n)) {
        struct type axis = *t;
        axis.dim[t->rank - 1] = 1;
        return axis;
    }
    if (n->op == OP_REDUCE && t->rank == g->node[n->in[REDUCE_X]].type.rank) return *t;
    return type_as_rows(t);
}

/* [batch, M, N] of a value of the epilogue: its leading dimensions are M, or batch and M. */
static bool gemm_split(const struct group *q, const struct type *t, int *first)
{
    bool one = extent_is_one(q->p.dim[0]);
    *first = one ? 0 : t->rank - 2;
    if (*first < 0 || !domain_rows_match(q, t)) return false;
    return one || extents_equal(t->dim[t->rank - 2], q->p.dim[1]);
}

/* Rows for which a value stays the same: those of its inner dimensions over which it is broadcast. */
static int64_t rows_alike(const struct type *t, const int64_t *s, int *outer)
{
    int64_t rows = 1;
    for (*outer = MAX(t->rank - 1, 0); *outer > 0 && s[*outer - 1] == 0; (*outer)--)
        rows *= t->dim[*outer - 1];
    return rows;
}

/* A value of each sample, where batches and rows are one dimension. */
static bool sample_strides(const struct group *q, const struct type *t, const int64_t *s, int64_t *out)
{
    int outer;
    int64_t rows = rows_alike(t, s, &outer);
    if (!extent_is_one(q->p.dim[0]) || !extent_reaches(rows, 2)) return false;
    if (q->p.sample && !extents_equal(q->p.sample, rows)) return false;
    out[1] = 0;
    return view_collapse(t, s, 0, outer, &out[0]);
}

/* [.., segments, columns] as [.., segments * columns], with the stride from one segment to the next. */
static bool joins_segments(const struct group *q, const struct type *t, struct type *joined)
{
    int rows, rank = t->rank;
    if (!q->p.segment || rank < 2 || gemm_split(q, t, &rows)) return false;
    int64_t columns = t->dim[rank - 1];
    if (!extents_equal(columns, q->p.segment) && !extent_is_one(columns)) return false;
    *joined = *t;
    joined->rank--;
    joined->dim[rank - 2] = t->dim[rank - 2] * q->p.segment;
    return gemm_split(q, joined, &rows);
}

static bool gemm_strides(const struct group *q, const struct type *t, const int64_t *s, int64_t *out)
{
    int rows;
    struct type joined;
    bool segments = joins_segments(q, t, &joined);
    bool several = segments && extent_reaches(t->dim[t->rank - 2], 2); /* else there is no next one */
    out[3] = several ? s[t->rank - 2] : t->rank ? q->p.segment * s[t->rank - 1] : 0;
    out[2] = t->rank ? s[t->rank - 1] : 0;
    if (segments) t = &joined;
    if (!gemm_split(q, t, &rows)) return false;
    bool fits =
        view_collapse(t, s, 0, rows, &out[0]) && view_collapse(t, s, rows, MAX(t->rank - 1, rows), &out[1]);
    return fits || sample_strides(q, t, s, out);
}

/* ---- Lines: values of a few rows, with one dimension, at most, that is not 1 ---- */

int64_t line_length(const struct type *t)
{
    int64_t elements = 1;
    bool several = false;
    for (int d = 0; d < t->rank; d++) {
        if (extent_is_one(t->dim[d])) continue;
        if (several) return -1;
        several = true;
        elements = t->dim[d];
    }
    return extent_reaches(elements, 1) ? elements : -1;
}

int64_t line_elements(const struct type *t)
{
    int64_t elements = line_length(t);
    bool fits = extent_reaches(elements, 1) && !extent_reaches(elements, MOST_IN_LINE + 1);
    return fits ? elements : -1;
}

int line_value(const graph *g, int value)
{
    while (g->node[value].op == OP_RESHAPE && line_length(&g->node[value].type) > 0)
        value = g->node[value].in[RESHAPE_X];
    return value;
}

/* Strides of a line: its one dimension that is not 1 has all the elements. */
static void line_strides(const struct group *q, const struct type *t, const int64_t *s, int64_t *out)
{
    for (int d = 0; d < t->rank; d++)
        if (!extent_is_one(t->dim[d])) out[q->finishes ? 1 : 0] = s[d];
}

/* Lines that finish statistics have ranges, one for each length. */
static bool is_its_line(const struct group *q, const struct type *t)
{
    int64_t elements = line_length(t);
    if (!q->finishes) return extents_equal(elements, q->domain.dim[0]);
    for (int r = 0; r < q->p.ranges; r++)
        if (extents_equal(elements, q->p.range[r].end - q->p.range[r].first)) return true;
    return !q->p.ranges && extents_equal(elements, q->domain.dim[1]);
}

void domain_use_samples(struct group *q, const struct type *t, const int64_t *s, const struct type *as,
                        const int64_t *stride)
{
    int64_t wide[CODA_MAX_RANK] = {0};
    int outer;
    if (q->p.kind != PROGRAM_GEMM || !extent_is_one(q->p.dim[0])) return;
    if (extents_equal(stride[0], 0)) return;
    view_broadcast(t, s, as, wide);
    q->p.sample = rows_alike(as, wide, &outer);
}

/* What has a single row lies as several rows would, and has a kernel with their strides. */
static void keep_units(const struct type *t, const int64_t *s, const struct type *as, int64_t *out)
{
    int absent = as->rank - t->rank;
    for (int d = 0; d + 1 < t->rank; d++)
        if (extent_is_one(as->dim[absent + d])) out[absent + d] = s[d];
}

bool domain_strides(const struct group *q, const struct type *t, const int64_t *s, const struct type *as,
                    int64_t *out)
{
    int64_t wide[CODA_MAX_RANK] = {0};
    if (t->rank > as->rank) return false;
    if (as->rank == 0) {
        memset(out, 0, sizeof *out * CODA_MAX_RANK);
        return true;
    }
    view_broadcast(t, s, as, wide);
    memset(out, 0, sizeof *out * CODA_MAX_RANK);
    if (q->p.kind == PROGRAM_GEMM) return gemm_strides(q, as, wide, out);
    if (q->line) {
        line_strides(q, as, wide, out);
        return is_its_line(q, as);
    }
    if (q->flat) {
        out[1] = wide[as->rank - 1];
        return extents_equal(type_rows(as), q->domain.dim[0]) &&
               view_collapse(as, wide, 0, as->rank - 1, &out[0]);
    }
    if (as->rank != q->domain.rank) return false;
    memcpy(out, wide, sizeof wide);
    keep_units(t, s, as, out);
    return true;
}

static enum shape gemm_shape(const struct group *q, const struct type *t)
{
    int rows;
    if (t->rank == 0 || !gemm_split(q, t, &rows)) return SHAPE_NO;
    int64_t columns = type_columns(t), n = q->p.dim[2];
    if (extents_equal(columns, n)) return SHAPE_TILE;
    return program_is_gated(&q->p) && extents_equal(columns * 2, n) ? SHAPE_HALF : SHAPE_NO;
}

static bool has_its_rows(const struct group *q, const struct type *t)
{
    if (q->flat) return t->rank > 0 && extents_equal(type_rows(t), q->domain.dim[0]);
    return t->rank == q->domain.rank && t->rank > 0 && extents_all_equal(t->dim, q->domain.dim, t->rank - 1);
}

static enum shape rows_shape(const struct group *q, const struct type *t)
{
    if (!has_its_rows(q, t)) return SHAPE_NO;
    int64_t columns = type_columns(t);
    if (extents_equal(columns, type_columns(&q->domain))) return SHAPE_TILE;
    return extent_is_one(columns) ? SHAPE_ROW : SHAPE_NO;
}

enum shape domain_shape(const struct group *q, const struct type *t)
{
    return q->p.kind == PROGRAM_GEMM ? gemm_shape(q, t) : rows_shape(q, t);
}
