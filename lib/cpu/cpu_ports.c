/* cpu_ports.c -- the steps of a row that load and store: elements, rows of a table or a state, and states of
 * statistics. */
#include "cpu_frame.h"

#include <string.h>

enum { RUN = 64 }; /* neighbours that are stored at one time */

/* ---- Loads ---- */

static void gather(struct cpu_frame *f, const struct tensor_use *port, float *out, int64_t n)
{
    float id = row_value(f, port->index);
    if (!(id >= 0 && id < (float)port->table_rows)) {
        memset(out, 0, sizeof *out * (size_t)n);
        return;
    }
    int64_t at = port->offset + (int64_t)id * port->table_stride;
    cpu_read_use(out, port, cpu_buffer(f->cpu, port->buffer), at, column_stride(f, port), n);
}

/* Columns of segments: those of one by stride[2], from one to the next by stride[3]. */
static void load_segments(struct cpu_frame *f, const struct tensor_use *port, float *out, int64_t n)
{
    int64_t each = f->cpu->p->segment;
    for (int64_t c = 0; c < n; c += each)
        cpu_read(out + c, port->dtype, cpu_buffer(f->cpu, port->buffer),
                 row_offset(f, port) + c / each * port->stride[3], port->stride[2], MIN(each, n - c));
}

void cpu_load(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    int64_t n = step_width(f->cpu, s);
    if (f->cpu->plan->buffer[port->buffer].bytes == 0) { /* rows without columns: a row value is 0 */
        memset(out, 0, sizeof *out * (size_t)n);
        return;
    }
    if (port->role == USE_GATHER) {
        gather(f, port, out, n);
        return;
    }
    if (f->cpu->p->segment && s->cls != CLASS_ROW) {
        load_segments(f, port, out, n);
        return;
    }
    cpu_read(out, port->dtype, cpu_buffer(f->cpu, port->buffer), row_offset(f, port), column_stride(f, port),
             n);
}

void cpu_scalar(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    cpu_read(out, port->dtype, cpu_buffer(f->cpu, port->buffer), 0, 0, step_width(f->cpu, s));
}

float *row_in_place(const struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    return (float *)cpu_buffer(f->cpu, port->buffer) + row_offset(f, port);
}

float *partial_states(const struct cpu_frame *f, const struct tensor_use *port)
{
    float *base = cpu_buffer(f->cpu, port->buffer);
    return base + port->offset + f->row * port->blocks * port->reduce->state;
}

/* Merges `blocks` accumulators, which lie `apart` floats from each other, and finishes the result. */
static float merged(const struct tensor_use *port, const float *from, int64_t apart)
{
    const struct prim *prim = port->reduce;
    double state[PRIM_MAX_STATE], other[PRIM_MAX_STATE];
    prim->reduce->init(state);
    for (int b = 0; b < port->blocks; b++, from += apart) {
        for (int k = 0; k < prim->state; k++) other[k] = from[k];
        prim->reduce->merge(state, other);
    }
    return (float)prim->reduce->finish(state);
}

float *column_states(const struct cpu_frame *f, const struct tensor_use *port, int64_t part, int64_t columns)
{
    float *base = cpu_buffer(f->cpu, port->buffer);
    return base + port->offset + part * columns * port->reduce->state;
}

void cpu_partial(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    int64_t n = step_columns_of(f->cpu, s), state = port->reduce->state;
    if (s->axis == REDUCE_ROWS) {
        *out = merged(port, partial_states(f, port), state);
        return;
    }
    const float *from = column_states(f, port, f->row * port->blocks, n);
    for (int64_t c = 0; c < n; c++) out[c] = merged(port, from + c * state, n * state);
}

/* ---- Stores ---- */

/* A store of class ROW writes one element, any other one for each column, even of a row value. What the
 * domain names several times (stride 0) is stored once, by its first index. */
static bool is_repeat(const struct cpu_frame *f, const struct tensor_use *port)
{
    if (use_is_indexed(port)) return false;
    for (int d = 0; d + 1 < f->cpu->p->rank; d++)
        if (port->stride[d] == 0 && f->at[d] > 0 && f->cpu->p->dim[d] > 1) return true;
    return false;
}

/* Where the row of a state begins that the slot names; -1: there is none. */
static int64_t slot_offset(const struct cpu_frame *f, const struct tensor_use *port)
{
    float slot = row_value(f, port->index);
    if (!(slot >= 0 && slot < (float)port->table_rows)) return -1;
    int64_t row = (int64_t)slot, page = port->page ? port->page : port->table_rows;
    return port->offset + row / page * port->page_stride + row % page * port->table_stride;
}

/* How far column c of a row is from its first one, by the stride of columns. */
static int64_t column_offset(const struct tensor_use *port, int64_t c, int64_t stride)
{
    if (!port->head_dim) return c * stride;
    return c / port->head_dim * port->head_stride + c % port->head_dim * stride;
}

/* The scale that column c of so many is divided by when it is appended to a state. */
static float scale_of(const struct cpu_frame *f, const struct tensor_use *port, int64_t c, int64_t columns)
{
    float x = 1;
    if (!port->scale) return x;
    const struct tensor_use *scales = &f->cpu->p->port[port->scale - 1];
    int64_t at = scales->offset + c / (columns / scales->table_rows) * scales->table_stride;
    cpu_read(&x, CODA_F32, cpu_buffer(f->cpu, scales->buffer), at, 1, 1);
    return x;
}

/* What column c of n is stored as, but for its rounding. */
static float stored(const struct cpu_frame *f, const struct tensor_use *port, struct operand_view v,
                    int64_t c, int64_t n)
{
    return port->scale ? (float)(at(v, c) / (double)scale_of(f, port, c, n)) : at(v, c);
}

static void add_what_is_there(coda_dtype t, const void *base, int64_t place, float *x, int64_t n)
{
    float old[RUN];
    cpu_read(old, t, base, place, 1, n);
    for (int64_t k = 0; k < n; k++) x[k] += old[k];
}

void cpu_store(struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    if (is_repeat(f, port) || (use_is_indexed(port) && slot_offset(f, port) < 0)) return;
    struct operand_view v = operand_of_step(f, s->in[0], s);
    void *base = cpu_buffer(f->cpu, port->buffer);
    int64_t to = use_is_indexed(port) ? slot_offset(f, port) : row_offset(f, port),
            stride = column_stride(f, port), n = step_width(f->cpu, s);
    if (s->cls == CLASS_SEGMENT) stride = port->stride[3];
    if (stride == 0) n = MIN(n, 1);
    if (stride == 1 && v.stride == 1 && v.repeat == 1 && !(use_effect(port) & EFFECT_ADD) && !port->scale &&
        !port->head_dim) {
        cpu_write(port->dtype, base, to, v.x, n);
        return;
    }
    for (int64_t c = 0, some; c < n; c += some) {
        float x[RUN];
        int64_t place = to + column_offset(port, c, stride);
        some =
            stride == 1 ? MIN(RUN, MIN(n - c, port->head_dim ? port->head_dim - c % port->head_dim : n)) : 1;
        for (int64_t k = 0; k < some; k++) x[k] = stored(f, port, v, c + k, n);
        if (use_effect(port) & EFFECT_ADD) add_what_is_there(port->dtype, base, place, x, some);
        cpu_write(port->dtype, base, place, x, some);
    }
}
