/*
 * api_loss.c -- the calls of losses: the cross-entropy of logits, and that of a product whose logits are
 * never all there, a chunk of rows after the other, out of nothing but calls of coda.h:
 *
 *     losses of rows r .. r + n = cross_entropy(cap(x[r .. r + n] w^T), targets[r .. r + n])
 *
 * Its gradient is that of these operations. A plan takes the chunks one by one: the gradient of a chunk's
 * logits takes their place, and what it adds to w's gradient is added where that ends (lib/plan). Liger
 * Kernel (Hsu et al., arXiv 2410.10989) has it by chunks, too.
 */
#include "api.h"

#include <math.h>
#include <stdlib.h>

static const enum loss loss[] = {
    [CODA_REDUCE_MEAN] = LOSS_MEAN, [CODA_REDUCE_NONE] = LOSS_ROWS, [CODA_REDUCE_SUM] = LOSS_SUM};

CODA_API coda_value coda_cross_entropy(coda_graph *g, coda_value logits, coda_value targets,
                                       const coda_cross_entropy_options *opt)
{
    coda_cross_entropy_options o;
    if (!BUILD_OPTIONS(g, "cross_entropy", coda_cross_entropy_options, &o, opt)) return CODA_NONE;
    coda_status s = CODA_OK;
    if ((int)o.reduction < 0 || o.reduction > CODA_REDUCE_SUM)
        s = fail(CODA_E_INVALID, "cross_entropy: reduction is %d; must be 0..%d", (int)o.reduction,
                 CODA_REDUCE_SUM);
    else if (o.ignore_zero && o.ignore_index)
        s = fail(CODA_E_INVALID, "cross_entropy: ignore_zero is set, but ignore_index is %d",
                 (int)o.ignore_index);
    if (s != CODA_OK) return build_refuse(g, NAMES("logits", "targets"), OPERANDS(logits, targets));
    int ignored = o.ignore_zero || o.ignore_index ? o.ignore_index : DEFAULT_IGNORED;
    struct node n = {.op = OP_CROSS_ENTROPY, .attr.cross_entropy = {ignored, loss[o.reduction]}};
    return build_node(g, "cross_entropy", n, OPERANDS(logits, targets));
}

/* ---- Of a product, by chunks ---- */

enum { MOST_ROWS = 4096, MOST_CHUNKS = 1024 };

struct chunked {
    graph *g;
    coda_value x, w, targets; /* x [M, D], targets [M] */
    int64_t rows, chunk;
    coda_linear_cross_entropy_options opt;
};

/* ---- Arguments ---- */

static bool read_options(struct chunked *l, const coda_linear_cross_entropy_options *given)
{
    if (!build_ready(l->g, "linear_cross_entropy")) return false;
    coda_status s = SIZED_READ("linear_cross_entropy", coda_linear_cross_entropy_options, &l->opt, given);
    const coda_linear_cross_entropy_options *o = &l->opt;
    if (s == CODA_OK && ((int)o->reduction < 0 || o->reduction > CODA_REDUCE_SUM))
        s = fail(CODA_E_INVALID, "linear_cross_entropy: reduction is %d; must be 0..%d", (int)o->reduction,
                 CODA_REDUCE_SUM);
    else if (s == CODA_OK && o->ignore_zero && o->ignore_index)
        s = fail(CODA_E_INVALID, "linear_cross_entropy: ignore_zero is set, but ignore_index is %d",
                 (int)o->ignore_index);
    else if (s == CODA_OK && (!isfinite(o->softcap) || o->softcap < 0))
        s = fail(CODA_E_INVALID, "linear_cross_entropy: softcap is %g; must be finite, and 0 or more",
                 (double)o->softcap);
    else if (s == CODA_OK && o->rows < 0)
        s = fail(CODA_E_INVALID, "linear_cross_entropy: a chunk has %lld rows; must be 0 or more",
                 (long long)o->rows);
    if (s == CODA_OK) return true;
    build_refuse(l->g, NAMES("x", "w", "targets"), OPERANDS(l->x, l->w, l->targets));
    return false;
}

static const struct type *type_of(const struct chunked *l, coda_value v)
{
    return build_type(l->g, "linear_cross_entropy", v);
}

/* Is it more than one chunk of so many rows as there are numbers for? What is wrong, or symbolic, is one, of
 * which the product and the loss say what is wrong with it. */
static bool has_chunks(struct chunked *l)
{
    const struct type *x = type_of(l, l->x), *w = type_of(l, l->w), *t = type_of(l, l->targets);
    if (!x || !w || !t || x->rank < 2 || w->rank != 2 || t->rank != x->rank - 1) return false;
    if (w->dim[1] != type_columns(x)) return false;
    for (int d = 0; d < t->rank; d++)
        if (!dim_is_number(x->dim[d]) || t->dim[d] != x->dim[d]) return false;
    l->rows = type_rows(x);
    l->chunk = l->opt.rows ? l->opt.rows : MOST_ROWS;
    return l->rows > l->chunk;
}

/* Each chunk appends operations of its own. */
static bool has_too_many(const struct chunked *l)
{
    int64_t chunks = CEIL_DIV(l->rows, l->chunk);
    if (chunks <= MOST_CHUNKS) return false;
    fail(CODA_E_INVALID, "linear_cross_entropy: x has %lld rows, %lld chunks of %lld; the most are %d",
         (long long)l->rows, (long long)chunks, (long long)l->chunk, MOST_CHUNKS);
    build_refuse(l->g, NAMES("x", "w", "targets"), OPERANDS(l->x, l->w, l->targets));
    return true;
}

/* ---- Nodes ---- */

/* 1 for each row that counts, 0 for one that is ignored. */
static coda_value counts(const struct chunked *l, coda_value targets)
{
    int ignored = l->opt.ignore_zero || l->opt.ignore_index ? l->opt.ignore_index : DEFAULT_IGNORED;
    return coda_apply(l->g, "valid", &targets, 1, (float[]){(float)ignored});
}

/* Logits of ignored rows become 0 first: their gradient is 0 times that of the cap, which may be NaN. */
static coda_value capped(const struct chunked *l, coda_value logits, coda_value targets)
{
    const struct type *t = type_of(l, logits), *of_rows = type_of(l, targets);
    if (!t || !of_rows || of_rows->rank != t->rank - 1) return logits; /* the loss says what is wrong */
    struct type row = *of_rows;
    row.dim[row.rank++] = 1;
    coda_value valid = coda_reshape(l->g, counts(l, targets), row.rank, row.dim);
    coda_value z = coda_where(l->g, valid, logits, coda_constant(l->g, t->dtype, 0));
    return coda_apply(l->g, "softcap", &z, 1, &l->opt.softcap);
}

/* The loss of some rows. */
static coda_value loss_of(const struct chunked *l, coda_value x, coda_value targets, coda_reduction reduction)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    coda_value logits = coda_matmul(l->g, x, l->w);
    o.ignore_index = l->opt.ignore_index;
    o.ignore_zero = l->opt.ignore_zero;
    o.reduction = reduction;
    if (l->opt.softcap > 0) logits = capped(l, logits, targets);
    return coda_cross_entropy(l->g, logits, targets, &o);
}

/* As rows of one matrix. */
static void flatten(struct chunked *l)
{
    const struct type x = *type_of(l, l->x);
    if (x.rank == 2) return;
    l->x = coda_reshape(l->g, l->x, 2, (int64_t[]){l->rows, x.dim[x.rank - 1]});
    l->targets = coda_reshape(l->g, l->targets, 1, &l->rows);
}

/* Chunk i of them. */
static coda_value chunk(const struct chunked *l, int64_t i, coda_reduction reduction)
{
    int64_t first = i * l->chunk, end = MIN(first + l->chunk, l->rows);
    return loss_of(l, coda_slice(l->g, l->x, 0, first, end, 1),
                   coda_slice(l->g, l->targets, 0, first, end, 1), reduction);
}

/* The losses of all rows, [M]. */
static coda_value of_rows(const struct chunked *l)
{
    int64_t chunks = CEIL_DIV(l->rows, l->chunk);
    coda_value *part = calloc((size_t)chunks, sizeof *part), all = CODA_NONE;
    if (!part)
        return graph_poison(l->g, CODA_E_MEMORY, "linear_cross_entropy: out of memory for %lld chunks",
                            (long long)chunks),
               all;
    for (int64_t i = 0; i < chunks; i++) part[i] = chunk(l, i, CODA_REDUCE_NONE);
    all = coda_concat(l->g, 0, part, (int)chunks);
    free(part);
    return all;
}

static coda_value sum(const struct chunked *l)
{
    coda_value sum = chunk(l, 0, CODA_REDUCE_SUM);
    for (int64_t i = 1; i * l->chunk < l->rows; i++) sum = coda_add(l->g, sum, chunk(l, i, CODA_REDUCE_SUM));
    return sum;
}

/* How many rows count, as [1]. */
static coda_value count(const struct chunked *l)
{
    coda_value line = coda_reshape(l->g, counts(l, l->targets), 2, (int64_t[]){1, l->rows});
    return coda_reshape(l->g, coda_row_sum(l->g, line), 1, (int64_t[]){1});
}

CODA_API coda_value coda_linear_cross_entropy(coda_graph *g, coda_value x, coda_value w, coda_value targets,
                                              const coda_linear_cross_entropy_options *opt)
{
    struct chunked l = {.g = g, .x = x, .w = w, .targets = targets};
    if (!read_options(&l, opt)) return CODA_NONE;
    if (!has_chunks(&l)) return g->status ? CODA_NONE : loss_of(&l, x, targets, l.opt.reduction);
    if (has_too_many(&l)) return CODA_NONE;
    const struct type shape = *type_of(&l, targets);
    flatten(&l);
    if (l.opt.reduction == CODA_REDUCE_SUM) return sum(&l);
    if (l.opt.reduction == CODA_REDUCE_NONE) return coda_reshape(g, of_rows(&l), shape.rank, shape.dim);
    return coda_div(g, sum(&l), count(&l));
}
