/*
 * cpu_steps.c -- interprets a program's steps over one row of its domain.
 *
 * A value of class ROW is one float, of class COL or TILE one float for each column (of the N/2 output
 * columns if the step is `half`). Maps and reductions are the primitives' references, in double.
 */
#include "cpu.h"
#include "mainloop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cpu_frame {
    const struct cpu *cpu;
    int64_t row;
    int64_t at[CODA_MAX_RANK]; /* the row's index in each leading dimension */
    bool started;              /* the column values are there */
    float *value[];            /* of each step; the floats follow */
};

static bool is_row(const struct step *s)
{
    return s->cls == CLASS_ROW || s->kind == STEP_PARTIAL || s->kind == STEP_REDUCE;
}

static int64_t step_columns(const struct cpu *c, const struct step *s)
{
    return s->half ? c->columns / 2 : c->columns;
}

/* Floats of the step's value over one row. */
static int64_t step_width(const struct cpu *c, const struct step *s)
{
    return is_row(s) ? 1 : step_columns(c, s);
}

static int64_t stored_width(const struct cpu *c, const struct step *s)
{
    return s->kind == STEP_ACC || !step_has_value(c->p, s) ? 0 : step_width(c, s);
}

struct cpu_frame *cpu_frame_new(const struct cpu *c)
{
    size_t floats = 0, head = sizeof(struct cpu_frame) + sizeof(float *) * (size_t)c->p->steps;
    for (int i = 0; i < c->p->steps; i++) floats += (size_t)stored_width(c, &c->p->step[i]);
    struct cpu_frame *f = malloc(head + sizeof(float) * floats);
    if (!f) return NULL;
    *f = (struct cpu_frame){.cpu = c};
    float *next = (float *)((char *)f + head);
    for (int i = 0; i < c->p->steps; i++) {
        f->value[i] = next;
        next += stored_width(c, &c->p->step[i]);
    }
    return f;
}

/* ---- Operands and ports ---- */

/* A step's value as read by another: its columns `stride` apart, 0 for a row value. */
struct operand_view {
    const float *x;
    int64_t stride;
};

static struct operand_view view(const struct cpu_frame *f, int step)
{
    return (struct operand_view){f->value[step], is_row(&f->cpu->p->step[step]) ? 0 : 1};
}

static float row_value(const struct cpu_frame *f, int step) { return f->value[step][0]; }

static int64_t column_stride(const struct cpu_frame *f, const struct tensor_use *port)
{
    return f->cpu->p->rank ? port->stride[f->cpu->p->rank - 1] : 0;
}

/* The element at this row and column 0. */
static int64_t row_offset(const struct cpu_frame *f, const struct tensor_use *port)
{
    int64_t at = port->offset;
    for (int d = 0; d + 1 < f->cpu->p->rank; d++) at += f->at[d] * port->stride[d];
    return at;
}

/* ---- Loads ---- */

static void gather(struct cpu_frame *f, const struct tensor_use *port, float *out, int64_t n)
{
    float id = row_value(f, port->index);
    if (!(id >= 0 && id < (float)port->table_rows)) {
        memset(out, 0, sizeof *out * (size_t)n);
        return;
    }
    int64_t at = port->offset + (int64_t)id * port->table_stride;
    cpu_read(out, port->dtype, cpu_buffer(f->cpu, port->buffer), at, column_stride(f, port), n);
}

static void run_load(struct cpu_frame *f, const struct step *s, float *out)
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
    cpu_read(out, port->dtype, cpu_buffer(f->cpu, port->buffer), row_offset(f, port), column_stride(f, port),
             n);
}

/* The states that this row's tiles left, merged in their order. */
static float *partial_states(const struct cpu_frame *f, const struct tensor_use *port)
{
    float *base = cpu_buffer(f->cpu, port->buffer);
    return base + port->offset + f->row * port->blocks * port->reduce->state;
}

static void run_partial(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    const struct prim *prim = port->reduce;
    const float *from = partial_states(f, port);
    double state[PRIM_MAX_STATE], other[PRIM_MAX_STATE];
    prim->reduce->init(state);
    for (int b = 0; b < port->blocks; b++) {
        for (int k = 0; k < prim->state; k++) other[k] = *from++;
        prim->reduce->merge(state, other);
    }
    *out = (float)prim->reduce->finish(state);
}

/* ---- Arithmetic ---- */

static void run_map(struct cpu_frame *f, const struct step *s, float *out)
{
    struct operand_view v[PRIM_MAX_INPUTS];
    double in[PRIM_MAX_INPUTS] = {0}, param[PRIM_MAX_PARAMS];
    for (int k = 0; k < s->nin; k++)
        v[k] = s->in[k] == IMMEDIATE ? (struct operand_view){&s->immediate[k], 0} : view(f, s->in[k]);
    for (int k = 0; k < PRIM_MAX_PARAMS; k++) param[k] = s->param[k];
    int64_t n = step_width(f->cpu, s);
    for (int64_t c = 0; c < n; c++) {
        for (int k = 0; k < s->nin; k++) in[k] = v[k].x[c * v[k].stride];
        out[c] = (float)s->prim->reference(in, param);
    }
}

static void run_lane(struct cpu_frame *f, const struct step *s, float *out)
{
    struct operand_view v = view(f, s->in[0]);
    int64_t n = step_width(f->cpu, s), half = f->cpu->columns / 2;
    bool stacked = f->cpu->p->pair == PAIR_GLU_STACKED;
    for (int64_t c = 0; c < n; c++) out[c] = v.x[(stacked ? c + s->lane * half : 2 * c + s->lane) * v.stride];
}

/* Rotates pair i of every rotated head by one angle. */
static void rotate_pair(const struct rope_spec *r, int64_t i, double position, int64_t columns, float *x)
{
    double angle = position * pow(r->base, -2.0 * (double)i / (double)r->rotary);
    double cosine = cos(angle), sine = sin(angle);
    int64_t first = r->half ? i : 2 * i, second = r->half ? i + r->rotary / 2 : 2 * i + 1;
    for (int64_t h = 0; h < r->heads && (h + 1) * r->head_dim <= columns; h++, x += r->head_dim) {
        double a = x[first], b = x[second];
        x[first] = (float)(a * cosine - b * sine);
        x[second] = (float)(a * sine + b * cosine);
    }
}

static void run_rope(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct rope_spec *r = &f->cpu->p->rope;
    struct operand_view v = view(f, s->in[0]);
    int64_t n = step_width(f->cpu, s);
    double position = s->in[1] >= 0 ? row_value(f, s->in[1]) : (double)(f->row % MAX(r->period, 1));
    for (int64_t c = 0; c < n; c++) out[c] = v.x[c * v.stride];
    for (int64_t i = 0; i < r->rotary / 2; i++) rotate_pair(r, i, position, n, out);
}

/* ---- Reductions ---- */

static void reduce_columns(struct cpu_frame *f, const struct step *s, int64_t first, int64_t end,
                           double *state)
{
    struct operand_view v = view(f, s->in[0]);
    double key = s->in[1] >= 0 ? row_value(f, s->in[1]) : 0;
    s->prim->reduce->init(state);
    for (int64_t c = first; c < end; c++) s->prim->reduce->push(state, v.x[c * v.stride], c, key);
}

/* A GEMM sees one tile at a time: a state for each, left in memory. */
static void reduce_tiles(struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    const struct program *p = f->cpu->p;
    int64_t columns = step_columns(f->cpu, s), each = CEIL_DIV(columns, port->blocks), half = s->half ? 2 : 1;
    const struct tile *tile = &f->cpu->plan->schedule[p - f->cpu->plan->program].tile;
    bool streams = tile->mainloop->streams;
    float *to = partial_states(f, port);
    double state[PRIM_MAX_STATE] = {0};
    for (int64_t b = 0; b < port->blocks; b++) {
        int64_t first = streams ? b * each : program_tile_column(p, tile, b) / half;
        int64_t end = streams ? first + each : program_tile_column(p, tile, b + 1) / half;
        reduce_columns(f, s, MIN(first, columns), MIN(end, columns), state);
        for (int k = 0; k < s->prim->state; k++) *to++ = (float)state[k];
    }
}

static void run_reduce(struct cpu_frame *f, const struct step *s, float *out)
{
    if (f->cpu->p->kind == PROGRAM_GEMM) {
        reduce_tiles(f, s);
        return;
    }
    double state[PRIM_MAX_STATE] = {0};
    reduce_columns(f, s, 0, step_columns(f->cpu, s), state);
    *out = (float)s->prim->reduce->finish(state);
}

/* ---- Stores ---- */

/* A store of class ROW writes one element, any other one for each column, even of a row value. What the
 * domain names several times (stride 0) is stored once, by its first index. */
static bool is_repeat(const struct cpu_frame *f, const struct tensor_use *port)
{
    for (int d = 0; d + 1 < f->cpu->p->rank; d++)
        if (port->stride[d] == 0 && f->at[d] > 0) return true;
    return false;
}

static void run_store(struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    if (is_repeat(f, port)) return;
    struct operand_view v = view(f, s->in[0]);
    void *base = cpu_buffer(f->cpu, port->buffer);
    int64_t at = row_offset(f, port), stride = column_stride(f, port), n = step_width(f->cpu, s);
    if (stride == 0) n = MIN(n, 1);
    for (int64_t c = 0; c < n; c++) dtype_store(port->dtype, base, at + c * stride, v.x[c * v.stride]);
}

/* ---- A row ---- */

static void seek(struct cpu_frame *f, int64_t row)
{
    const struct program *p = f->cpu->p;
    f->row = row;
    for (int d = p->rank - 2; d >= 0; d--) {
        f->at[d] = row % p->dim[d];
        row /= p->dim[d];
    }
}

static void run_step(struct cpu_frame *f, const struct step *s, float *out)
{
    switch (s->kind) {
    case STEP_ACC: break; /* its value is set by cpu_frame_run */
    case STEP_LOAD: run_load(f, s, out); break;
    case STEP_PARTIAL: run_partial(f, s, out); break;
    case STEP_MAP: run_map(f, s, out); break;
    case STEP_LANE: run_lane(f, s, out); break;
    case STEP_PAIR: run_rope(f, s, out); break;
    case STEP_REDUCE: run_reduce(f, s, out); break;
    case STEP_STORE: run_store(f, s); break;
    }
}

void cpu_frame_run(struct cpu_frame *f, int64_t row, float *acc)
{
    seek(f, row);
    for (int i = 0; i < f->cpu->p->steps; i++) {
        const struct step *s = &f->cpu->p->step[i];
        bool kept = f->started && s->cls == CLASS_COL && step_has_value(f->cpu->p, s) && !is_row(s);
        if (s->kind == STEP_ACC) f->value[i] = acc;
        if (!kept) run_step(f, s, f->value[i]);
    }
    f->started = true;
}
