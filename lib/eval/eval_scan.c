/*
 * eval_scan.c -- a selective scan in fp64, token by token:
 *
 *     d = dt + bias, or log(1 + e^(dt + bias));  s = e^(d a) s + d x b;  y = (s . c + skip x) silu(gate)
 *
 * (Gu and Dao, arXiv 2312.00752, algorithm 2, the discretised b being d b; Dao and Gu, arXiv 2405.21060.)
 */
#include "eval_recurrent.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct scan_job {
    const struct eval_call *c;
    int64_t sequences, tokens, heads, head_dim, groups, states;
    atomic_bool failed;
};

static const double *operand(const struct scan_job *j, int i)
{
    return i < j->c->n->nin && j->c->n->in[i] >= 0 ? j->c->in[i] : NULL;
}

/* Rows of sequence i. */
static struct eval_rows find_rows(const struct scan_job *j, int64_t i)
{
    struct eval_rows rows = {0, 0};
    for (int64_t b = -1; b <= i; b++)
        rows = eval_sequence(rows, b, j->sequences, operand(j, SCAN_STARTS), j->tokens);
    return rows;
}

static double step_of(const struct scan_job *j, int64_t row, int64_t head)
{
    const double *bias = operand(j, SCAN_DT_BIAS);
    double d = j->c->in[SCAN_DT][row * j->heads + head] + (bias ? bias[head] : 0);
    if (!j->c->n->attr.scan.softplus) return d;
    return d > 0 ? d + log1p(exp(-d)) : log1p(exp(d));
}

static double decay_rate(const struct scan_job *j, int64_t head, int64_t n)
{
    const double *a = j->c->in[SCAN_A];
    return j->c->type[SCAN_A]->rank == 2 ? a[head * j->states + n] : a[head];
}

/* One column of x at one token. */
static void step(const struct scan_job *j, int64_t row, int64_t column, double *s)
{
    int64_t head = column / j->head_dim, group = head / (j->heads / j->groups);
    int64_t columns = j->heads * j->head_dim, at = row * columns + column;
    const double *b = j->c->in[SCAN_B] + (row * j->groups + group) * j->states;
    const double *c = j->c->in[SCAN_C] + (row * j->groups + group) * j->states;
    const double *skip = operand(j, SCAN_SKIP), *gate = operand(j, SCAN_GATE);
    double d = step_of(j, row, head), x = j->c->in[SCAN_X][at], y = 0;
    for (int64_t n = 0; n < j->states; n++) {
        s[n] = exp(d * decay_rate(j, head, n)) * s[n] + d * x * b[n];
        y += s[n] * c[n];
    }
    if (node_result(j->c->n)) return;
    if (skip) y += skip[head] * x;
    if (gate) y *= gate[at] / (1 + exp(-gate[at]));
    j->c->out[at] = y;
}

/* Columns of all sequences, in their order. */
static void scan_columns(void *ctx, int64_t from, int64_t to)
{
    struct scan_job *j = ctx;
    int64_t columns = j->heads * j->head_dim;
    const double *state = operand(j, SCAN_STATE);
    double *s = malloc(sizeof *s * (size_t)j->states);
    if (!s) j->failed = true;
    for (int64_t i = from; s && i < to; i++) {
        const struct eval_rows rows = find_rows(j, i / columns);
        for (int64_t n = 0; n < j->states; n++) s[n] = state ? state[i * j->states + n] : 0;
        for (int64_t row = rows.first; row < rows.end; row++) step(j, row, i % columns, s);
        if (node_result(j->c->n)) memcpy(j->c->out + i * j->states, s, sizeof *s * (size_t)j->states);
    }
    free(s);
}

coda_status eval_scan(const struct eval_call *c)
{
    const struct type *x = c->type[SCAN_X];
    int64_t columns = type_columns(x), batch = x->rank == 3 ? x->dim[0] : 1;
    struct scan_job j = {.c = c, .heads = type_columns(c->type[SCAN_DT]), .groups = c->n->attr.scan.groups};
    j.tokens = x->dim[x->rank - 2];
    j.sequences = operand(&j, SCAN_STARTS) ? type_columns(c->type[SCAN_STARTS]) - 1 : batch;
    j.head_dim = columns / j.heads;
    j.states = type_columns(c->type[SCAN_B]) / j.groups;
    if (!node_result(c->n)) memset(c->out, 0, sizeof *c->out * (size_t)type_elements(&c->n->type));
    int64_t work = mul_counts(j.tokens, j.states * (EVAL_TRANSCENDENTAL + 4));
    eval_spread(mul_counts(j.sequences, columns), MAX(work, 1), scan_columns, &j);
    return j.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory for the states of a column") : CODA_OK;
}
