/* cpu_top_k.c -- the k largest of each row on the CPU device: a list in order, which a better one enters. */
#include "cpu.h"
#include "top_k.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct top_k_job {
    const struct cpu *cpu;
    const struct top_k_spec *s;
    atomic_bool failed;
};

struct entry {
    float x;
    int64_t column;
};

/* NaN is above all; of equal ones the one further left is better. */
static bool is_better(struct entry a, struct entry b)
{
    if (isnan(a.x) != isnan(b.x)) return isnan(a.x);
    if (!isnan(a.x) && a.x != b.x) return a.x > b.x;
    return a.column < b.column;
}

static void enter(struct entry *list, int64_t *count, int64_t k, struct entry e)
{
    if (*count == k && !is_better(e, list[k - 1])) return;
    int64_t i = *count < k ? (*count)++ : k - 1;
    for (; i > 0 && is_better(e, list[i - 1]); i--) list[i] = list[i - 1];
    list[i] = e;
}

static int64_t row_start(const struct cpu *c, const struct tensor_use *x, int64_t row)
{
    int64_t at = x->offset;
    for (int d = c->p->rank - 2; d >= 0; row /= c->p->dim[d--]) at += row % c->p->dim[d] * x->stride[d];
    return at;
}

/* Enters the candidates that tiles have left of a row: elements and columns. A column that is infinite
 * marks a place without a candidate. */
static void enter_parts(const struct top_k_job *j, int64_t row, struct entry *list, int64_t *count)
{
    int64_t n = top_k_candidates(j->s);
    const float *part = (const float *)cpu_buffer(j->cpu, j->s->use[TOP_K_X].buffer) + 2 * row * n;
    for (int64_t i = 0; i < n; i++, part += 2)
        if (isfinite(part[1])) enter(list, count, j->s->k, (struct entry){part[0], (int64_t)part[1]});
}

/* Elements of a row. */
static void enter_row(const struct top_k_job *j, int64_t row, float *x, struct entry *list, int64_t *count)
{
    const struct top_k_spec *s = j->s;
    cpu_read(x, s->use[TOP_K_X].dtype, cpu_buffer(j->cpu, s->use[TOP_K_X].buffer),
             row_start(j->cpu, &s->use[TOP_K_X], row), s->use[TOP_K_X].stride[j->cpu->p->rank - 1],
             s->columns);
    for (int64_t i = 0; i < s->columns; i++) enter(list, count, s->k, (struct entry){x[i], i});
}

static void write_row(const struct top_k_job *j, int64_t row, const struct entry *list)
{
    for (int o = TOP_K_OPERANDS; o < TOP_K_USES; o++) {
        const struct tensor_use *out = &j->s->use[o];
        if (out->buffer < 0) continue;
        void *base = cpu_buffer(j->cpu, out->buffer);
        for (int64_t i = 0; i < j->s->k; i++)
            dtype_store(out->dtype, base, row * j->s->k + i,
                        o == TOP_K_INDICES ? (double)list[i].column : (double)list[i].x);
    }
}

static void run_row(void *ctx, int64_t row)
{
    struct top_k_job *j = ctx;
    struct entry list[TOP_K_MOST] = {{0}};
    int64_t count = 0;
    float *x = malloc(sizeof *x * (size_t)j->s->columns);
    if (x) {
        if (j->s->use[TOP_K_X].reduce) enter_parts(j, row, list, &count);
        else enter_row(j, row, x, list, &count);
        write_row(j, row, list);
    } else {
        j->failed = true;
    }
    free(x);
}

coda_status cpu_top_k(const struct cpu *c)
{
    struct top_k_job j = {.cpu = c, .s = c->p->spec};
    parallel_work(j.s->rows, CPU_STEP_OPERATIONS * (double)j.s->rows * (double)j.s->columns, run_row, &j);
    if (j.failed)
        return fail(CODA_E_MEMORY, "out of memory for a row of %lld columns", (long long)j.s->columns);
    return CODA_OK;
}
