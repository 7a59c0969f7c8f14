/*
 * linear.c -- products with weights as they are stored: of 16 or 32 bits; of 8 with a factor behind the
 * product; packed in groups. And tables of tokens, which may be packed, too.
 */
#include <stdio.h>
#include <string.h>

#include "adapter.h"
#include "cut.h"
#include "packing.h"

/* ---- Which parts may lie in one leaf ---- */

static bool same_format(const coda_pack_format *a, const coda_pack_format *b)
{
    return a->codes == b->codes && a->scales == b->scales && a->zeros == b->zeros && a->group == b->group;
}

static bool is_packed(const struct stored_matrix *m)
{
    return m->layout != STORED_PLAIN && m->layout != STORED_SCALED;
}

/* Whether b may follow a. Records have 16 rows. */
static bool alike(const struct stored_matrix *a, const struct stored_matrix *b)
{
    if (is_packed(a) && is_packed(b))
        return a->rows % 16 == 0 && same_format(&a->format, &b->format) && packing_same_order(a, b);
    return a->layout == b->layout && a->dtype == b->dtype;
}

/* Of the parts from the first on, as many as one leaf can have. */
static int run_of(const struct stored_matrix *m, int n)
{
    int i = 1;
    while (i < n && alike(&m[i - 1], &m[i])) i++;
    return i;
}

/* What a checkpoint has; without one all is as `b` wants it. */
static bool find(struct build *b, const struct part *parts, int n, int64_t columns, struct stored_matrix *m)
{
    char name[160];
    for (int i = 0; i < n; i++) {
        m[i] = (struct stored_matrix){.rows = parts[i].rows, .columns = columns};
        snprintf(name, sizeof name, "%s%s", b->prefix, parts[i].name);
        if (!b->from && !stored_draw(&b->c->quant, name, b->c->layers, &m[i], b->fault)) return false;
        enum cut cut = build_cut(b, parts[i].name);
        int64_t rows = parts[i].rows, all = columns;
        if (cut) build_uncut(b, cut, &rows, &all);
        if (b->from && !stored_find(&b->c->quant, b->from, name, rows, all, &m[i], b->fault)) return false;
        m[i].rows = parts[i].rows, m[i].columns = columns;
        if (b->from && cut && !build_cut_matrix(b, cut, name, &m[i])) return false;
        if (b->from && !packing_format(&m[i], b->fault)) return false;
    }
    return true;
}

/* ---- One leaf ---- */

static int64_t rows_of(const struct part *parts, int n)
{
    int64_t rows = 0;
    for (int i = 0; i < n; i++) rows += parts[i].rows;
    return rows;
}

/* A weight of these parts, named by the first; [rows] if columns is 0. */
static coda_value quantised(struct build *b, enum weight_kind kind, coda_dtype t, const struct part *parts,
                            int n, const struct stored_matrix *m, const char *suffix, int64_t rows,
                            int64_t columns)
{
    char name[160];
    struct weight w = {.kind = kind, .dtype = t, .columns = columns};
    snprintf(name, sizeof name, "%s%s%s%s", b->prefix, parts[0].name, suffix,
             build_cut(b, parts[0].name) ? ".part" : "");
    const struct weight *known = weights_find(b->weights, name);
    if (known) return known->value;
    for (int i = 0; i < n; i++) w.matrix[i] = m[i], w.part[i] = m[i].codes;
    w.parts = b->from ? n : 0;
    return build_leaf(b, &w, name, rows, columns);
}

/* y times a number of each row of the weight. */
static coda_value scaled(struct build *b, coda_value y, const struct part *parts, int n,
                         const struct stored_matrix *m)
{
    int64_t rows = rows_of(parts, n);
    return coda_mul(b->g, y, quantised(b, WEIGHT_FACTORS, CODA_F32, parts, n, m, ".weight_scale", rows, 0));
}

/* x's columns as those of the weight lie: numbers of x, one behind the other, are a table's rows, which
 * row * columns + order[column] names. */
static coda_value ordered(struct build *b, coda_value x, const struct part *parts, int n,
                          const struct stored_matrix *m)
{
    int64_t dims[CODA_MAX_RANK], k = m->columns, rows = 1;
    int rank = coda_value_shape(b->g, x, dims, NULL);
    if (rank < 1) return CODA_NONE;
    for (int d = 0; d < rank - 1; d++) rows = d ? coda_dim_mul(b->g, rows, dims[d]) : dims[d];
    coda_value order = quantised(b, WEIGHT_ORDER, CODA_I32, parts, n, m, ".order", k, 0);
    coda_value row = coda_reshape(b->g, coda_iota(b->g, rows), DIMS(rows, 1));
    coda_value ids = coda_add(b->g, coda_scale(b->g, row, (float)k), coda_reshape(b->g, order, DIMS(1, k)));
    coda_value table = coda_reshape(b->g, x, DIMS(coda_dim_mul(b->g, rows, k), 1));
    return coda_reshape(b->g, coda_embedding(b->g, table, coda_cast(b->g, ids, CODA_I32)), rank, dims);
}

static coda_value packed(struct build *b, const struct part *parts, int n, const struct stored_matrix *m)
{
    return quantised(b, WEIGHT_PACKED, b->dtype, parts, n, m, ".weight", rows_of(parts, n), m->columns);
}

static coda_value product(struct build *b, coda_value x, const struct part *parts, int n,
                          const struct stored_matrix *m)
{
    int64_t columns = m->columns;
    bool factor = m->layout == STORED_SCALED;
    if (m->layout == STORED_PLAIN) return coda_matmul(b->g, x, build_weight(b, parts, n, ".weight", columns));
    for (int i = 0; i < n; i++) factor |= m[i].factor != NULL;
    if (m->order) x = ordered(b, x, parts, n, m);
    coda_value w = is_packed(m) ? packed(b, parts, n, m)
                                : quantised(b, WEIGHT_CODES, m->dtype, parts, n, m, ".weight",
                                            rows_of(parts, n), columns);
    coda_value y = coda_matmul(b->g, x, w);
    return factor ? scaled(b, y, parts, n, m) : y;
}

/* ---- All of them ---- */

/* Products of parts that are stored alike are one; the others follow one another. */
static coda_value products(struct build *b, coda_value x, const struct part *parts, int n, int64_t columns,
                           bool bias)
{
    struct stored_matrix m[MOST_PARTS];
    coda_value y[MOST_PARTS];
    int runs = 0;
    if (b->failed) return CODA_NONE;
    if (!find(b, parts, n, columns, m)) return build_fail(b);
    for (int i = 0, some; i < n; i += some, runs++) {
        some = run_of(&m[i], n - i);
        y[runs] = product(b, x, parts + i, some, &m[i]);
        if (bias) y[runs] = coda_bias(b->g, y[runs], build_weight(b, parts + i, some, ".bias", 0));
    }
    return runs == 1 ? y[0] : coda_concat(b->g, -1, y, runs);
}

coda_value build_product(struct build *b, coda_value x, const struct part *parts, int n, int64_t columns)
{
    return products(b, x, parts, n, columns, false);
}

static coda_value adapted(struct build *b, coda_value x, coda_value y, const struct part *parts, int n,
                          int64_t columns)
{
    const struct checkpoint *from = b->from;
    int64_t rows = rows_of(parts, n);
    b->from = NULL; /* which has none */
    coda_value down = build_weight(b, PART({parts[0].name, b->adapter}), ".adapter.a", columns);
    coda_value up = build_weight(b, PART({parts[0].name, rows}), ".adapter.b", b->adapter);
    b->from = from;
    return coda_add(b->g, y, coda_matmul(b->g, coda_matmul(b->g, x, down), up));
}

coda_value build_linear(struct build *b, coda_value x, const struct part *parts, int n, int64_t columns,
                        bool bias)
{
    enum cut cut = build_cut(b, parts[0].name);
    if (cut == CUT_INPUTS) {
        coda_value y = build_summed(b, products(b, x, parts, n, columns, false), cut);
        return bias ? coda_bias(b->g, y, build_weight(b, parts, n, ".bias", 0)) : y;
    }
    if (!b->adapter) {
        coda_value y = products(b, x, parts, n, columns, bias);
        return b->from && b->from->adapted ? adapter_add(b, x, y, parts, n, columns) : y;
    }
    coda_value y = adapted(b, x, products(b, x, parts, n, columns, false), parts, n, columns);
    return bias ? coda_bias(b->g, y, build_weight(b, parts, n, ".bias", 0)) : y;
}

coda_value build_embedding(struct build *b, const char *name, int64_t rows, coda_value ids)
{
    struct stored_matrix m[1];
    const struct part one[] = {{name, rows}};
    if (b->failed) return CODA_NONE;
    if (!find(b, one, 1, b->c->hidden, m)) return build_fail(b);
    if (m->layout == STORED_PLAIN)
        return coda_embedding(b->g, build_weight(b, one, 1, ".weight", b->c->hidden), ids);
    if (!is_packed(m) || m->order)
        return fault_set(b->fault, "tensor %.120s: a table of %s is not supported", m->codes->name,
                         m->codes->type),
               build_fail(b);
    coda_value x = coda_embedding(b->g, packed(b, one, 1, m), ids);
    float factor = m->factor ? stored_number(m->factor, 0) : 1;
    return factor == 1 ? x : coda_scale(b->g, x, m->divisor ? 1 / factor : factor);
}
