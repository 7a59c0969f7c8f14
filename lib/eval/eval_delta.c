/* eval_delta.c -- the gated delta rule, head by head and token by token, in fp64. */
#include "eval_recurrent.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct delta {
    const struct eval_call *c;
    int64_t time, sequences, heads, group, keys, values;
    bool by_row;
    const double *starts;
    atomic_bool failed;
};

/* One head's row of an operand that has `columns` for each. */
static const double *row_of(const struct delta *d, int operand, int64_t row, int64_t head, int64_t columns)
{
    return d->c->in[operand] + row * type_columns(d->c->type[operand]) + head * columns;
}

static double factor(const struct delta *d, const double *x)
{
    double sum = (double)d->c->n->attr.delta.eps;
    if (!d->c->n->attr.delta.norm) return 1;
    for (int64_t i = 0; i < d->keys; i++) sum += x[i] * x[i];
    return 1 / sqrt(sum);
}

/* One token; e has room for a row of values. */
static void step(const struct delta *d, int64_t row, int64_t head, double *s, double *e)
{
    const double *q = row_of(d, DELTA_Q, row, head / d->group, d->keys);
    const double *k = row_of(d, DELTA_K, row, head / d->group, d->keys);
    const double *v = row_of(d, DELTA_V, row, head, d->values);
    const double *decay = row_of(d, DELTA_DECAY, row, head, d->by_row ? d->keys : 1);
    double beta = *row_of(d, DELTA_BETA, row, head, 1), of_k = factor(d, k);
    double of_q = factor(d, q) * (double)d->c->n->attr.delta.scale;
    double *o = d->c->out + row * d->heads * d->values + head * d->values;
    for (int64_t i = 0; i < d->keys; i++)
        for (int64_t j = 0; j < d->values; j++) s[i * d->values + j] *= exp(decay[d->by_row ? i : 0]);
    memcpy(e, v, sizeof *e * (size_t)d->values);
    for (int64_t i = 0; i < d->keys; i++)
        for (int64_t j = 0; j < d->values; j++) e[j] -= of_k * k[i] * s[i * d->values + j];
    for (int64_t i = 0; i < d->keys; i++)
        for (int64_t j = 0; j < d->values; j++) s[i * d->values + j] += of_k * k[i] * (beta * e[j]);
    if (d->c->n->attr.delta.after) return;
    memset(o, 0, sizeof *o * (size_t)d->values);
    for (int64_t i = 0; i < d->keys; i++)
        for (int64_t j = 0; j < d->values; j++) o[j] += of_q * q[i] * s[i * d->values + j];
}

static void run_sequence(const struct delta *d, int64_t b, struct eval_rows rows, int64_t head, double *s)
{
    int64_t state = d->keys * d->values;
    const double *before = d->c->in[DELTA_BEFORE];
    if (before) memcpy(s, before + (b * d->heads + head) * state, sizeof *s * (size_t)state);
    else memset(s, 0, sizeof *s * (size_t)state);
    for (int64_t row = rows.first; row < rows.end; row++) step(d, row, head, s, s + state);
    if (d->c->n->attr.delta.after)
        memcpy(d->c->out + (b * d->heads + head) * state, s, sizeof *s * (size_t)state);
}

static void delta_heads(void *ctx, int64_t from, int64_t to)
{
    struct delta *d = ctx;
    double *s = malloc(sizeof *s * (size_t)((d->keys + 1) * d->values));
    if (!s) {
        d->failed = true;
        return;
    }
    for (int64_t head = from; head < to; head++) {
        struct eval_rows rows = {0, 0};
        for (int64_t b = -1; b <= d->sequences; b++) {
            rows = eval_sequence(rows, b, d->sequences, d->starts, d->time);
            bool none = b < 0 || b == d->sequences;
            if (!none) run_sequence(d, b, rows, head, s);
            for (int64_t row = rows.first; row < rows.end && none && !d->c->n->attr.delta.after; row++)
                memset(d->c->out + (row * d->heads + head) * d->values, 0, sizeof *s * (size_t)d->values);
        }
    }
    free(s);
}

coda_status eval_delta(const struct eval_call *c)
{
    const struct type *q = c->type[DELTA_Q], *starts = c->type[DELTA_STARTS];
    const struct attr_delta *a = &c->n->attr.delta;
    struct delta d = {.c = c, .time = q->dim[q->rank - 2], .heads = a->heads, .starts = c->in[DELTA_STARTS]};
    d.group = a->heads / a->key_heads;
    d.keys = type_columns(q) / a->key_heads;
    d.values = type_columns(c->type[DELTA_V]) / a->heads;
    d.by_row = type_columns(c->type[DELTA_DECAY]) != a->heads;
    d.sequences = starts ? type_columns(starts) - 1 : q->rank == 3 ? q->dim[0] : 1;
    eval_spread(d.heads, mul_counts(type_rows(q), 4 * d.keys * d.values), delta_heads, &d);
    return d.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory for a state") : CODA_OK;
}
