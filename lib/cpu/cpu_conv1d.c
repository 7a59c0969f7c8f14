/* cpu_conv1d.c -- a causal convolution of each column on the CPU device: some columns at a time, whose last
 * rows wander through a ring. */
#include "cpu_frame.h"
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

/* Where EDGES of so many columns have element n of row r in a place: rows_above.cuh. */
static int64_t edge_at(int64_t place, int64_t columns, int64_t above, int64_t r, int64_t n)
{
    return (place * columns + n / 8 * 8) * above + r * 8 + n % 8;
}

static void read_edge(const struct conv1d_job *j, int64_t place, int64_t r, const struct block *k, float *to)
{
    const struct tensor_use *u = &j->s->use[CONV1D_X];
    for (int64_t n = 0; n < k->n; n += 8)
        cpu_read(to + n, u->dtype, cpu_buffer(j->cpu, u->buffer),
                 edge_at(place, j->s->columns, j->s->taps - 1, r, k->column + n), 1, MIN(8, k->n - n));
}

/* The first rows of each period of sequence b, and what that leaves, of edges: tile/rows_above.cuh. */
static void run_edges(const struct conv1d_job *j, int64_t b, struct block *k)
{
    const struct conv1d_spec *s = j->s;
    int64_t above = s->taps - 1, parts = CEIL_DIV(s->time, EDGE_PERIOD);
    float y[BLOCK];
    for (int64_t in = 0; in < parts; in++) {
        int64_t part = b * parts + in, first = in * EDGE_PERIOD;
        if (in == 0) read_before(j, b, k);
        for (int64_t i = 1; i < s->taps && in; i++) read_edge(j, 2 * part, i - 1, k, k->row[i]);
        for (int64_t t = 0; t < MIN(above, s->time - first); t++) {
            read_edge(j, 2 * part + 1, t, k, k->row[t % s->taps]);
            convolve(j, t, k, y);
            write_row(j, CONV1D_Y, b, first + t, k, y);
        }
    }
    for (int64_t i = 0; i < above && s->use[CONV1D_AFTER].buffer >= 0; i++) {
        read_edge(j, 2 * (b + 1) * parts, i, k, y);
        write_row(j, CONV1D_AFTER, b, i, k, y);
    }
}

static void run_columns(void *ctx, int64_t index)
{
    const struct conv1d_job *j = ctx;
    struct block k = {.column = index * BLOCK, .n = MIN(BLOCK, j->s->columns - index * BLOCK)};
    float zero[BLOCK] = {0};
    struct cpu_rows rows = {0, 0};
    read_weights(j, &k);
    map_row(j->s, k.n, zero);
    for (int64_t b = 0; b < j->s->sequences && j->s->edges; b++) run_edges(j, b, &k);
    for (int64_t b = -1; !j->s->edges && b <= j->s->sequences; b++) {
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

/* ---- In an epilogue ---- */

/* Where the row has a place among the edges. */
static void save_edges(const struct cpu_frame *f, const struct step *s, const float *x, int64_t n)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    int64_t rows = f->cpu->p->dim[1], above = step_rows_above(s), parts = CEIL_DIV(rows, EDGE_PERIOD);
    int64_t m = f->row, part = m / EDGE_PERIOD, i = m % EDGE_PERIOD, end = m - (rows - above);
    const struct {
        int64_t place, row;
        bool has;
    } to[] = {{2 * part + 1, i, i < above},
              {2 * part + 2, i - (EDGE_PERIOD - above), i >= EDGE_PERIOD - above && part + 1 < parts},
              {2 * parts, end, end >= 0}};
    for (int k = 0; k < ARRAY_SIZE(to); k++)
        for (int64_t c = 0; c < n && to[k].has; c += 8)
            cpu_write(port->dtype, cpu_buffer(f->cpu, port->buffer),
                      edge_at(to[k].place, n, above, to[k].row, c), x + c, 8);
}

/* Rows, and what is above the first one of a period, are rounded as edges are. */
void cpu_convolve(struct cpu_frame *f, const struct step *s, float *out)
{
    int64_t n = step_width(f->cpu, s), above = step_rows_above(s);
    coda_dtype type = f->cpu->p->port[s->port].dtype;
    struct operand_view x = operand_of_step(f, s->in[READS_X], s), bias = {0};
    float *row = out + n; /* that many, the last of which is this one */
    if (f->row % EDGE_PERIOD == 0) memset(row, 0, sizeof *row * (size_t)(n * (above + 1)));
    memmove(row, row + n, sizeof *row * (size_t)(n * above));
    for (int64_t c = 0; c < n; c++) {
        float number = at(x, c);
        uint16_t bits;
        cpu_write(type, &bits, 0, &number, 1);
        cpu_read(row + above * n + c, type, &bits, 0, 1, 1);
    }
    save_edges(f, s, row + above * n, n);
    if (s->in[READS_BIAS] >= 0) bias = operand_of_step(f, s->in[READS_BIAS], s);
    for (int64_t c = 0; c < n; c++) out[c] = bias.x ? at(bias, c) : 0;
    for (int64_t j = 0; j <= above; j++) {
        struct operand_view w = operand_of_step(f, s->in[READS_TAPS + j], s);
        for (int64_t c = 0; c < n; c++) out[c] += at(w, c) * row[j * n + c];
    }
}
