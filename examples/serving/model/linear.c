/*
 * linear.c -- products with weights as they are stored: of 16 or 32 bits; of 8 with a factor behind the
 * product.
 */
#include <stdio.h>
#include <string.h>

#include "build.h"

/* ---- Which parts may lie in one leaf ---- */

static bool alike(const struct stored_matrix *a, const struct stored_matrix *b)
{
    return a->layout == b->layout && (a->layout == STORED_PLAIN || !strcmp(a->codes->type, b->codes->type));
}

/* Of the parts from the first on, as many as one leaf can have. */
static int run_of(const struct stored_matrix *m, int n)
{
    int i = 1;
    while (i < n && alike(&m[0], &m[i])) i++;
    return i;
}

/* What a checkpoint has; without one all is plain. */
static bool find(struct build *b, const struct part *parts, int n, int64_t columns, struct stored_matrix *m)
{
    char name[160];
    for (int i = 0; i < n; i++) {
        m[i] = (struct stored_matrix){.rows = parts[i].rows, .columns = columns};
        snprintf(name, sizeof name, "%s%s", b->prefix, parts[i].name);
        if (b->from && !stored_find(&b->c->quant, b->from, name, parts[i].rows, columns, &m[i], b->fault))
            return false;
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

/* A weight of these parts, named by the first. */
static coda_value quantised(struct build *b, struct weight *w, const struct part *parts, int n,
                            const struct stored_matrix *m, const char *suffix)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s%s", b->prefix, parts[0].name, suffix);
    const struct weight *known = weights_find(b->weights, name);
    if (known) return known->value;
    for (int i = 0; i < n; i++) w->matrix[i] = m[i], w->part[i] = m[i].codes;
    w->parts = n;
    return build_leaf(b, w, name, rows_of(parts, n), w->columns);
}

static coda_dtype codes_dtype(const struct stored_tensor *t)
{
    return !strcmp(t->type, "F8_E4M3") ? CODA_F8E4M3 : !strcmp(t->type, "F8_E5M2") ? CODA_F8E5M2 : CODA_I8;
}

/* y times a number of each row of the weight. */
static coda_value scaled(struct build *b, coda_value y, const struct part *parts, int n,
                         const struct stored_matrix *m)
{
    struct weight w = {.kind = WEIGHT_FACTORS, .dtype = CODA_F32};
    return coda_mul(b->g, y, quantised(b, &w, parts, n, m, ".weight_scale"));
}

static coda_value product(struct build *b, coda_value x, const struct part *parts, int n,
                          const struct stored_matrix *m, int64_t columns)
{
    if (m->layout == STORED_PLAIN) return coda_matmul(b->g, x, build_weight(b, parts, n, ".weight", columns));
    if (m->layout != STORED_SCALED)
        return fault_set(b->fault, "tensor %.150s: %s of %d bits is not supported", m->codes->name,
                         m->codes->type, m->bits),
               build_fail(b);
    struct weight w = {.kind = WEIGHT_CODES, .dtype = codes_dtype(m->codes), .columns = columns};
    return scaled(b, coda_matmul(b->g, x, quantised(b, &w, parts, n, m, ".weight")), parts, n, m);
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
        y[runs] = product(b, x, parts + i, some, &m[i], columns);
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
    if (!b->adapter) return products(b, x, parts, n, columns, bias);
    coda_value y = adapted(b, x, products(b, x, parts, n, columns, false), parts, n, columns);
    return bias ? coda_bias(b->g, y, build_weight(b, parts, n, ".bias", 0)) : y;
}
