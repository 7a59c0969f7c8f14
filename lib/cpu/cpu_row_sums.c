/* cpu_row_sums.c -- rows added by id on the CPU device: a counting sort of the ids, then each block of rows
 * and columns by itself. */
#include "cpu.h"
#include "row_sums.h"

#include <string.h>

/* ---- Sorting ---- */

struct ids {
    coda_dtype dtype;
    const void *base;
    int64_t offset, stride, rows;
};

/* A row of the result, or -1. */
static int64_t id_of(const struct ids *of, int64_t token)
{
    double id = dtype_load(of->dtype, of->base, of->offset + token * of->stride);
    return id >= 0 && id < (double)of->rows ? (int64_t)id : -1;
}

/* Counts of ids become where those of each begin; as tokens take their places, these move on, each to where
 * the next one's begin. */
coda_status cpu_sort_ids(const struct cpu *c)
{
    const struct sort_ids_spec *s = c->p->spec;
    const struct tensor_use *u = &s->use[ROW_SUMS_IDS];
    struct ids ids = {u->dtype, cpu_buffer(c, u->buffer), u->offset, u->stride[0], s->rows};
    int32_t *start = cpu_buffer(c, s->use[ROW_SUMS_SUMS].buffer), *order = start + s->rows + 1,
            *sorted = order + s->tokens;
    memset(start, 0, sizeof *start * (size_t)(s->rows + 1));
    for (int64_t t = 0; t < s->tokens; t++) {
        int64_t id = id_of(&ids, t);
        if (id >= 0) start[id + 1]++;
    }
    for (int64_t i = 0; i < s->rows; i++) start[i + 1] += start[i];
    for (int64_t t = 0; t < s->tokens; t++) {
        int64_t id = id_of(&ids, t);
        if (id < 0) continue;
        order[start[id]] = (int32_t)t;
        sorted[start[id]++] = (int32_t)id;
    }
    memmove(start + 1, start, sizeof *start * (size_t)s->rows);
    start[0] = 0;
    return CODA_OK;
}

/* ---- Sums ---- */

enum { BLOCK_ROWS = 64, BLOCK_COLUMNS = 256 };

struct sums_job {
    const struct row_sums_spec *s;
    const void *x;
    const int32_t *start, *order;
    float *sums;
    int64_t across; /* blocks of columns */
};

/* Adds tokens from..to-1 of the order, one after the other. */
static void add_piece(const struct sums_job *j, int64_t from, int64_t to, int64_t column, int64_t n,
                      float *sum)
{
    const struct tensor_use *u = &j->s->use[ROW_SUMS_X];
    float x[BLOCK_COLUMNS];
    memset(sum, 0, sizeof *sum * (size_t)n);
    for (int64_t i = from; i < to; i++) {
        int64_t at = u->offset + j->order[i] * u->stride[0] + column * u->stride[1];
        cpu_read(x, u->dtype, j->x, at, u->stride[1], n);
        for (int64_t k = 0; k < n; k++) sum[k] += x[k];
    }
}

static void add_row(const struct sums_job *j, int64_t row, int64_t column, int64_t n)
{
    float sum[BLOCK_COLUMNS] = {0}, piece[BLOCK_COLUMNS], *out = j->sums + row * j->s->columns + column;
    int64_t from = j->start[row], end = j->start[row + 1];
    bool add = use_effect(&j->s->use[ROW_SUMS_SUMS]) & EFFECT_ADD;
    if (add && from == end) return;
    for (; from < end; from += ROW_SUMS_PIECE) {
        add_piece(j, from, MIN(from + ROW_SUMS_PIECE, end), column, n, piece);
        for (int64_t k = 0; k < n; k++) sum[k] += piece[k];
    }
    for (int64_t k = 0; k < n; k++) out[k] = add ? out[k] + sum[k] : sum[k];
}

static void run_block(void *ctx, int64_t block)
{
    const struct sums_job *j = ctx;
    int64_t column = block % j->across * BLOCK_COLUMNS, row = block / j->across * BLOCK_ROWS;
    int64_t end = MIN(row + BLOCK_ROWS, j->s->rows), n = MIN(j->s->columns - column, BLOCK_COLUMNS);
    for (; row < end; row++) add_row(j, row, column, n);
}

coda_status cpu_row_sums(const struct cpu *c)
{
    const struct row_sums_spec *s = c->p->spec;
    const int32_t *start = cpu_buffer(c, s->use[ROW_SUMS_IDS].buffer);
    struct sums_job j = {.s = s,
                         .x = cpu_buffer(c, s->use[ROW_SUMS_X].buffer),
                         .start = start,
                         .order = start + s->rows + 1,
                         .sums = cpu_buffer(c, s->use[ROW_SUMS_SUMS].buffer),
                         .across = CEIL_DIV(s->columns, BLOCK_COLUMNS)};
    double elements = (double)(s->rows + s->tokens) * (double)s->columns;
    parallel_work(CEIL_DIV(s->rows, BLOCK_ROWS) * j.across, CPU_STEP_OPERATIONS * elements, run_block, &j);
    return CODA_OK;
}
