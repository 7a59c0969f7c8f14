/* cpu_conv1d.c -- a causal convolution of each column on the CPU device: some columns at a time, whose last
 * rows wander through a ring. */
#include "cpu_recurrent.h"

#include <string.h>

enum { BLOCK = 64, MOST_TAPS = 16 };

struct conv1d_job {
    const struct cpu *cpu;
    const struct conv1d_spec *s;
};

/* What one block of columns has at hand. */
struct block {
    int64_t column, n;
    float w[MOST_TAPS][BLOCK], bias[BLOCK];
    float row[MOST_TAPS][BLOCK]; /* row t of x in place t % taps */
};

static void read_row(const struct conv1d_job *j, int use, int64_t b, int64_t t, const struct block *k,
                     float *to)
{
    const struct tensor_use *u = &j->s->use[use];
    int64_t at = u->offset + b * u->stride[0] + t * u->stride[1] + k->column;
    cpu_read(to, u->dtype, cpu_buffer(j->cpu, u->buffer), at, 1, k->n);
}

static void write_row(const struct conv1d_job *j, int use, int64_t b, int64_t t, const struct block *k,
                      const float *from)
{
    const struct tensor_use *u = &j->s->use[use];
    int64_t at = u->offset + b * u->stride[0] + t * u->stride[1] + k->column;
    cpu_write(u->dtype, cpu_buffer(j->cpu, u->buffer), at, from, k->n);
}

static void read_weights(const struct conv1d_job *j, struct block *k)
{
    const struct tensor_use *w = &j->s->use[CONV1D_W], *bias = &j->s->use[CONV1D_BIAS];
    for (int64_t i = 0; i < j->s->taps; i++)
        cpu_read(k->w[i], w->dtype, cpu_buffer(j->cpu, w->buffer),
                 w->offset + k->column * w->stride[0] + i * w->stride[1], w->stride[0], k->n);
    memset(k->bias, 0, sizeof k->bias);
    if (bias->buffer >= 0)
        cpu_read(k->bias, bias->dtype, cpu_buffer(j->cpu, bias->buffer),
                 bias->offset + k->column * bias->stride[0], bias->stride[0], k->n);
}

/* Rows -(taps - 1) to -1. */
static void read_before(const struct conv1d_job *j, int64_t b, struct block *k)
{
    memset(k->row, 0, sizeof k->row);
    for (int64_t i = 1; i < j->s->taps && j->s->use[CONV1D_BEFORE].buffer >= 0; i++)
        read_row(j, CONV1D_BEFORE, b, i - 1, k, k->row[i]);
}

static void map_row(const struct conv1d_spec *s, int64_t n, float *y)
{
    double param[PRIM_MAX_PARAMS], in[PRIM_MAX_INPUTS] = {0};
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) param[i] = (double)s->param[i];
    for (int64_t c = 0; c < n && s->map; c++)
        in[0] = (double)y[c], y[c] = (float)s->map->reference(in, param);
}

static void convolve(const struct conv1d_job *j, int64_t t, const struct block *k, float *y)
{
    const struct conv1d_spec *s = j->s;
    int64_t taps = s->taps;
    memcpy(y, k->bias, sizeof k->bias);
    for (int64_t i = 0; i < taps; i++) {
        const float *row = k->row[(t + 1 + i) % taps];
        for (int64_t c = 0; c < k->n; c++) y[c] += k->w[i][c] * row[c];
    }
    map_row(s, k->n, y);
}

/* Row t of sequence b is row `first` + t of x, or row t of batch b. */
static void run_sequence(const struct conv1d_job *j, int64_t b, struct cpu_rows rows, struct block *k)
{
    bool packed = j->s->use[CONV1D_STARTS].buffer >= 0;
    int64_t batch = packed ? 0 : b, first = packed ? rows.first : 0, n = rows.end - rows.first;
    int64_t taps = j->s->taps;
    float y[BLOCK];
    read_before(j, b, k);
    for (int64_t t = 0; t < n; t++) {
        read_row(j, CONV1D_X, batch, first + t, k, k->row[t % taps]);
        convolve(j, t, k, y);
        if (j->s->use[CONV1D_Y].buffer >= 0) write_row(j, CONV1D_Y, batch, first + t, k, y);
    }
    for (int64_t i = 0; i < taps - 1 && j->s->use[CONV1D_AFTER].buffer >= 0; i++)
        write_row(j, CONV1D_AFTER, b, i, k, k->row[(n + 1 + i) % taps]);
}

static void run_columns(void *ctx, int64_t index)
{
    const struct conv1d_job *j = ctx;
    struct block k = {.column = index * BLOCK, .n = MIN(BLOCK, j->s->columns - index * BLOCK)};
    float zero[BLOCK] = {0};
    struct cpu_rows rows = {0, 0};
    read_weights(j, &k);
    map_row(j->s, k.n, zero);
    for (int64_t b = -1; b <= j->s->sequences; b++) {
        rows = cpu_sequence(j->cpu, &j->s->use[CONV1D_STARTS], rows, b, j->s->sequences, j->s->time);
        bool none = b < 0 || b == j->s->sequences, stored = j->s->use[CONV1D_Y].buffer >= 0;
        if (!none) run_sequence(j, b, rows, &k);
        for (int64_t t = rows.first; t < rows.end && none && stored; t++)
            write_row(j, CONV1D_Y, 0, t, &k, zero);
    }
}

coda_status cpu_conv1d(const struct cpu *c)
{
    const struct conv1d_spec *s = c->p->spec;
    struct conv1d_job j = {c, s};
    double elements = (double)c->rows * (double)s->columns * (double)s->taps;
    parallel_work(CEIL_DIV(s->columns, BLOCK), CPU_STEP_OPERATIONS * elements, run_columns, &j);
    return CODA_OK;
}
