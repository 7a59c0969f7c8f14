/*
 * cpu_scan.c -- a selective scan on the CPU device, token by token in fp32: a task has some columns of a
 * sequence, whose states it keeps. Tokens come in pieces, so that the rows of each operand are read together.
 */
#include "cpu_recurrent.h"
#include "scan.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 32, PIECE = 64 };

struct scan_job {
    const struct cpu *cpu;
    const struct scan_spec *s;
    int64_t tasks; /* of a sequence: no task has columns of two groups */
    atomic_bool failed;
};

/* Columns of a sequence while a task runs; rows of PIECE tokens. */
struct columns {
    int64_t batch, first, count, group;
    float state[COLUMNS][SCAN_MOST_STATES];
    float x[PIECE][COLUMNS], gate[PIECE][COLUMNS], dt[PIECE][COLUMNS]; /* dt of the heads from `head` on */
    float b[PIECE][SCAN_MOST_STATES], c[PIECE][SCAN_MOST_STATES];
    float bias[COLUMNS], skip[COLUMNS];
    int64_t head;
};

/* ---- Rows ---- */

static struct cpu_rows find_rows(const struct scan_job *j, int64_t batch)
{
    struct cpu_rows rows = {0, 0};
    if (!scan_has(j->s, SCAN_STARTS)) return (struct cpu_rows){0, j->s->tokens}; /* of its batch */
    for (int64_t b = -1; b <= batch; b++)
        rows = cpu_sequence(j->cpu, &j->s->use[SCAN_STARTS], rows, b, j->s->batch, j->s->tokens);
    return rows;
}

static void read_rows(const struct scan_job *j, int use, int64_t batch, int64_t row, int64_t rows,
                      int64_t column, int64_t n, float *to, int64_t pitch)
{
    const struct tensor_use *u = &j->s->use[use];
    for (int64_t i = 0; u->buffer >= 0 && i < rows; i++)
        cpu_read(to + i * pitch, u->dtype, cpu_buffer(j->cpu, u->buffer),
                 u->offset + batch * u->batch + (row + i) * u->time + column, 1, n);
}

/* Columns that are one behind the other, of whatever is dense. */
static void read_dense(const struct scan_job *j, int use, int64_t at, int64_t n, float *to)
{
    const struct tensor_use *u = &j->s->use[use];
    memset(to, 0, sizeof *to * (size_t)n);
    if (u->buffer >= 0) cpu_read(to, u->dtype, cpu_buffer(j->cpu, u->buffer), u->offset + at, 1, n);
}

/* Steps of heads from `head` on: read, or each a product. */
static void read_steps(const struct scan_job *j, int64_t batch, int64_t row, int64_t rows, int64_t head,
                       int64_t n, float (*to)[COLUMNS])
{
    float r[SCAN_MOST_RANK], w[SCAN_MOST_RANK];
    const struct tensor_use *u = &j->s->weights;
    if (!j->s->rank) read_rows(j, SCAN_DT, batch, row, rows, head, n, to[0], COLUMNS);
    for (int64_t i = 0; i < rows && j->s->rank; i++) {
        read_rows(j, SCAN_DT, batch, row + i, 1, 0, j->s->rank, r, 0);
        for (int64_t h = 0; h < n; h++) {
            cpu_read(w, u->dtype, cpu_buffer(j->cpu, u->buffer), u->offset + (head + h) * u->stride[0], 1,
                     j->s->rank);
            to[i][h] = 0;
            for (int64_t k = 0; k < j->s->rank; k++) to[i][h] += r[k] * w[k];
        }
    }
}

static void clear_rows(const struct scan_job *j, const struct columns *k, int64_t row, int64_t end)
{
    const struct tensor_use *u = &j->s->use[SCAN_Y];
    const float zero[COLUMNS] = {0};
    for (; u->buffer >= 0 && row < end; row++)
        cpu_write(u->dtype, cpu_buffer(j->cpu, u->buffer), u->offset + row * u->time + k->first, zero,
                  k->count);
}

/* ---- Steps ---- */

static float softplus(float v) { return v > 0 ? v + log1pf(expf(-v)) : log1pf(expf(v)); }

static float advance(float *restrict s, const float *restrict decay, float dx, const float *restrict b,
                     const float *restrict c, int64_t n)
{
    float y = 0;
    for (int64_t i = 0; i < n; i++) {
        s[i] = decay[i] * s[i] + dx * b[i];
        y += s[i] * c[i];
    }
    return y;
}

/* Token t of the piece: y of each column. */
static void step(const struct scan_job *j, struct columns *k, const float *a, int64_t t, float *y)
{
    const struct scan_spec *s = j->s;
    float decay[SCAN_MOST_STATES];
    int64_t last = -1;
    for (int64_t i = 0; i < k->count; i++) {
        int64_t head = (k->first + i) / s->head_dim;
        float d = k->dt[t][head - k->head] + k->bias[head - k->head], x = k->x[t][i];
        if (s->softplus) d = softplus(d);
        if (head != last && s->each)
            for (int64_t n = 0; n < s->states; n++) decay[n] = expf(d * a[(head - k->head) * s->states + n]);
        else if (head != last)
            for (int64_t n = 0; n < s->states; n++) decay[n] = n ? decay[0] : expf(d * a[head - k->head]);
        last = head;
        y[i] = advance(k->state[i], decay, d * x, k->b[t], k->c[t], s->states) + k->skip[head - k->head] * x;
        if (scan_has(s, SCAN_GATE)) y[i] *= k->gate[t][i] / (1 + expf(-k->gate[t][i]));
    }
}

static void walk(const struct scan_job *j, struct columns *k, const float *a)
{
    const struct scan_spec *s = j->s;
    const struct tensor_use *out = &s->use[SCAN_Y];
    const struct cpu_rows of = find_rows(j, k->batch);
    int64_t batch = scan_has(s, SCAN_STARTS) ? 0 : k->batch, row = of.first, end = of.end;
    int64_t heads = (k->first + k->count - 1) / s->head_dim - k->head + 1;
    float y[COLUMNS];
    if (scan_has(s, SCAN_STARTS) && k->batch == 0) clear_rows(j, k, 0, row);
    for (int64_t rows; row < end; row += rows) {
        rows = MIN(PIECE, end - row);
        read_rows(j, SCAN_X, batch, row, rows, k->first, k->count, k->x[0], COLUMNS);
        read_rows(j, SCAN_GATE, batch, row, rows, k->first, k->count, k->gate[0], COLUMNS);
        read_steps(j, batch, row, rows, k->head, heads, k->dt);
        read_rows(j, SCAN_B, batch, row, rows, k->group * s->states, s->states, k->b[0], SCAN_MOST_STATES);
        read_rows(j, SCAN_C, batch, row, rows, k->group * s->states, s->states, k->c[0], SCAN_MOST_STATES);
        for (int64_t t = 0; t < rows; t++) {
            step(j, k, a, t, y);
            if (out->buffer >= 0)
                cpu_write(out->dtype, cpu_buffer(j->cpu, out->buffer),
                          out->offset + batch * out->batch + (row + t) * out->time + k->first, y, k->count);
        }
    }
    if (scan_has(s, SCAN_STARTS) && k->batch == s->batch - 1) clear_rows(j, k, end, s->tokens);
}

/* ---- Tasks ---- */

static void run_task(void *ctx, int64_t task)
{
    struct scan_job *j = ctx;
    const struct scan_spec *s = j->s;
    int64_t columns = scan_columns(s), of_group = columns / s->groups, tiles = j->tasks / s->groups;
    int64_t group = task % j->tasks / tiles, tile = task % tiles;
    int64_t first = group * of_group + tile * COLUMNS;
    int64_t heads = MIN(COLUMNS, s->heads - first / s->head_dim), each = s->each ? s->states : 1;
    struct columns *k = malloc(sizeof *k);
    float *a = malloc(sizeof *a * (size_t)(COLUMNS * SCAN_MOST_STATES));
    if (k && a) {
        k->batch = task / j->tasks, k->group = group, k->first = first, k->head = first / s->head_dim;
        k->count = MIN(COLUMNS, (group + 1) * of_group - first);
        read_dense(j, SCAN_A, k->head * each, heads * each, a);
        read_dense(j, SCAN_DT_BIAS, k->head, heads, k->bias);
        read_dense(j, SCAN_SKIP, k->head, heads, k->skip);
        int64_t at = k->batch * columns + first;
        for (int64_t i = 0; i < k->count && s->batch; i++)
            read_dense(j, SCAN_STATE, (at + i) * s->states, s->states, k->state[i]);
        if (s->batch) walk(j, k, a);
        else clear_rows(j, k, 0, s->tokens);
        const struct tensor_use *after = &s->use[SCAN_AFTER];
        for (int64_t i = 0; i < k->count && after->buffer >= 0 && s->batch; i++)
            cpu_write(after->dtype, cpu_buffer(j->cpu, after->buffer), after->offset + (at + i) * s->states,
                      k->state[i], s->states);
    } else {
        j->failed = true;
    }
    free(k);
    free(a);
}

coda_status cpu_scan(const struct cpu *c)
{
    const struct scan_spec *s = c->p->spec;
    struct scan_job j = {.cpu = c, .s = s};
    j.tasks = s->groups * CEIL_DIV(scan_columns(s) / s->groups, COLUMNS);
    double operations = (double)scan_rows(s) * (double)scan_columns(s) * (double)s->states;
    int64_t sequences = scan_has(s, SCAN_STARTS) ? MAX(s->batch, 1) : s->batch;
    parallel_work(mul_counts(sequences, j.tasks), CPU_STEP_OPERATIONS * operations, run_task, &j);
    if (j.failed)
        return fail(CODA_E_MEMORY, "out of memory for %lld states of %d columns", (long long)s->states,
                    COLUMNS);
    return CODA_OK;
}
