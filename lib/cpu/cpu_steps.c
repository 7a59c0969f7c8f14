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
    bool started;              /* the column values are there, ... */
    int64_t sample;            /* ... of this sample or batch */
    double *states;            /* of the columns or the row, for one reducing step after the other */
    bool *in_place;            /* for each step: its value is where the port is */
    float *value[];            /* of each step; the floats follow */
};

static int64_t columns_of(const struct cpu *c, const struct step *s)
{
    if (s->range || s->store_columns.end) return step_columns(c->p, s).end - step_columns(c->p, s).first;
    return s->half ? c->columns / 2 : c->columns;
}

/* Floats of the step's value over one row. */
static int64_t step_width(const struct cpu *c, const struct step *s)
{
    if (s->cls == CLASS_SEGMENT) return columns_of(c, s) / c->p->segment;
    return step_is_of_row(s) ? 1 : columns_of(c, s);
}

static int64_t stored_width(const struct cpu *c, const struct step *s)
{
    return s->kind == STEP_ACC || !step_has_value(c->p, s) ? 0 : step_width(c, s);
}

/* Numbers of the states of all columns that a step folds, or of the row's. */
static size_t state_numbers(const struct cpu *c, const struct step *s)
{
    if (s->kind != STEP_REDUCE) return 0;
    return (step_folds_columns(s) ? (size_t)columns_of(c, s) : 1) * (size_t)s->prim->state;
}

/* Floats that lie one behind the other, and are not written by the program, are read where they are. */
static bool reads_in_place(const struct cpu *c, const struct step *s)
{
    const struct tensor_use *port = &c->p->port[s->port];
    if (s->kind != STEP_LOAD || s->cls != CLASS_TILE || port->dtype != CODA_F32 || port->role == USE_GATHER ||
        c->p->segment || !c->p->rank || port->stride[c->p->rank - 1] != 1)
        return false;
    for (const struct step *t = c->p->step; t < c->p->step + c->p->steps; t++)
        if (t->kind == STEP_STORE && c->p->port[t->port].buffer == port->buffer) return false;
    return c->plan->buffer[port->buffer].bytes > 0;
}

struct cpu_frame *cpu_frame_new(const struct cpu *c)
{
    size_t floats = 0, doubles = 0, head = sizeof(struct cpu_frame) + sizeof(float *) * (size_t)c->p->steps;
    for (int i = 0; i < c->p->steps; i++) {
        floats += (size_t)stored_width(c, &c->p->step[i]);
        doubles += state_numbers(c, &c->p->step[i]);
    }
    struct cpu_frame *f =
        malloc(head + sizeof(double) * doubles + sizeof(float) * floats + sizeof(bool) * (size_t)c->p->steps);
    if (!f) return NULL;
    *f = (struct cpu_frame){.cpu = c, .states = (double *)((char *)f + head)};
    float *next = (float *)(f->states + doubles);
    for (int i = 0; i < c->p->steps; i++) {
        f->value[i] = next;
        next += stored_width(c, &c->p->step[i]);
    }
    f->in_place = (bool *)next;
    for (int i = 0; i < c->p->steps; i++) f->in_place[i] = reads_in_place(c, &c->p->step[i]);
    return f;
}

/* ---- Operands and ports ---- */

/* A step's value as read by another: its columns `stride` apart, 0 for a row value; each is that of
 * `repeat` columns. */
struct operand_view {
    const float *x;
    int64_t stride, repeat;
};

static float at(struct operand_view v, int64_t column)
{
    return v.x[(v.repeat > 1 ? column / v.repeat : column) * v.stride];
}

/* The value of step `step` as step s reads it: from the first column of its range, if it has one, on. */
static struct operand_view view(const struct cpu_frame *f, int step, const struct step *s)
{
    const struct program *p = f->cpu->p;
    const struct step *from = &p->step[step];
    bool repeats = from->cls == CLASS_SEGMENT && s->cls != CLASS_SEGMENT;
    struct operand_view v = {f->value[step], step_is_of_row(from) ? 0 : 1, repeats ? p->segment : 1};
    if ((s->range || s->store_columns.end) && !from->range && !step_is_of_row(from))
        v.x += step_columns(p, s).first;
    return v;
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
    if (f->cpu->p->segment && s->cls != CLASS_ROW) {
        load_segments(f, port, out, n);
        return;
    }
    cpu_read(out, port->dtype, cpu_buffer(f->cpu, port->buffer), row_offset(f, port), column_stride(f, port),
             n);
}

static void run_scalar(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    cpu_read(out, port->dtype, cpu_buffer(f->cpu, port->buffer), 0, 0, step_width(f->cpu, s));
}

static float *row_in_place(const struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    return (float *)cpu_buffer(f->cpu, port->buffer) + row_offset(f, port);
}

/* The states that this row's tiles left, merged in their order. */
static float *partial_states(const struct cpu_frame *f, const struct tensor_use *port)
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

/* The states of the columns of part `part`, counted through all matrices. */
static float *column_states(const struct cpu_frame *f, const struct tensor_use *port, int64_t part,
                            int64_t columns)
{
    float *base = cpu_buffer(f->cpu, port->buffer);
    return base + port->offset + part * columns * port->reduce->state;
}

static void run_partial(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    int64_t n = columns_of(f->cpu, s), state = port->reduce->state;
    if (s->axis == REDUCE_ROWS) {
        *out = merged(port, partial_states(f, port), state);
        return;
    }
    const float *from = column_states(f, port, f->row * port->blocks, n);
    for (int64_t c = 0; c < n; c++) out[c] = merged(port, from + c * state, n * state);
}

/* ---- Arithmetic ---- */

enum { BLOCK = 256 }; /* columns that operands are laid out for */

/* n values of v from column c on, one behind the other: where they are, or copied to `room`. */
static const float *laid_out(struct operand_view v, int64_t c, int64_t n, float *room)
{
    if (v.stride == 1 && v.repeat == 1) return v.x + c;
    if (v.stride == 0)
        for (int64_t i = 0; i < n; i++) room[i] = v.x[0];
    else
        for (int64_t i = 0; i < n; i++) room[i] = at(v, c + i);
    return room;
}

/* A value that is the same in all columns is laid out once. */
static bool is_same(struct operand_view v) { return v.stride == 0; }

static void run_loops(const struct prim *prim, const struct operand_view *v, int inputs, const double *param,
                      float *out, int64_t n)
{
    float room[PRIM_MAX_INPUTS][BLOCK];
    const float *in[PRIM_MAX_INPUTS];
    for (int64_t c = 0; c < n; c += BLOCK) {
        int64_t part = MIN(BLOCK, n - c);
        for (int k = 0; k < PRIM_MAX_INPUTS; k++) {
            if (k >= inputs) in[k] = in[0];
            else if (c == 0 || !is_same(v[k])) in[k] = laid_out(v[k], c, part, room[k]);
        }
        prim->loops->row[vectors()](out + c, in, param, part);
    }
}

static void run_map(struct cpu_frame *f, const struct step *s, float *out)
{
    struct operand_view v[PRIM_MAX_INPUTS];
    double in[PRIM_MAX_INPUTS] = {0}, param[PRIM_MAX_PARAMS];
    for (int k = 0; k < s->nin; k++)
        v[k] = s->in[k] == IMMEDIATE ? (struct operand_view){&s->immediate[k], 0, 1} : view(f, s->in[k], s);
    for (int k = 0; k < PRIM_MAX_PARAMS; k++) param[k] = s->param[k];
    int64_t n = step_width(f->cpu, s);
    if (s->prim->loops && n > 1) {
        run_loops(s->prim, v, s->nin, param, out, n);
        return;
    }
    for (int64_t c = 0; c < n; c++) {
        for (int k = 0; k < s->nin; k++) in[k] = at(v[k], c);
        out[c] = (float)s->prim->reference(in, param);
    }
}

static void run_column(struct cpu_frame *f, const struct step *s, float *out)
{
    for (int64_t c = 0; c < step_width(f->cpu, s); c++) out[c] = (float)c;
}

static void run_lane(struct cpu_frame *f, const struct step *s, float *out)
{
    struct operand_view v = view(f, s->in[0], s);
    int64_t n = step_width(f->cpu, s), half = f->cpu->columns / 2;
    bool stacked = f->cpu->p->pair == PAIR_GLU_STACKED;
    for (int64_t c = 0; c < n; c++) out[c] = v.x[(stacked ? c + s->lane * half : 2 * c + s->lane) * v.stride];
}

static double frequency(const struct cpu_frame *f, const struct step *s, int64_t i)
{
    const struct pairing *r = &f->cpu->p->pairing;
    float x;
    if (s->port < 0) return pow(r->base, -2.0 * (double)i / (double)r->rotary);
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    cpu_read(&x, port->dtype, cpu_buffer(f->cpu, port->buffer), port->offset + i * port->table_stride, 1, 1);
    return x;
}

/* Combines pair i of every head that has pairs, by one angle. */
static void combine_pair(const struct pairing *r, int64_t i, double angle, int64_t columns, float *x)
{
    double scale = r->scale != 0 ? (double)r->scale : 1, sign = r->inverse ? -1 : 1;
    double cosine = scale * cos(angle), sine = sign * scale * sin(angle);
    int64_t first = r->half ? i : 2 * i, second = r->half ? i + r->rotary / 2 : 2 * i + 1;
    for (int64_t h = 0; h < r->heads && (h + 1) * r->head_dim <= columns; h++, x += r->head_dim) {
        double a = x[first], b = x[second];
        r->op->reference(&a, &b, cosine, sine);
        x[first] = (float)a;
        x[second] = (float)b;
    }
}

static void run_pair(struct cpu_frame *f, const struct step *s, float *out)
{
    const struct pairing *r = &f->cpu->p->pairing;
    struct operand_view v = view(f, s->in[0], s);
    int64_t n = step_width(f->cpu, s);
    double position[MOST_AXES] = {(double)(f->row % MAX(r->period, 1))};
    for (int axis = 0; 1 + axis < s->nin && s->in[1 + axis] >= 0; axis++)
        position[axis] = row_value(f, s->in[1 + axis]);
    for (int64_t c = 0; c < n; c++) out[c] = at(v, c);
    for (int64_t i = 0; i < r->rotary / 2; i++)
        combine_pair(r, i, position[pair_axis(r, i)] * frequency(f, s, i), n, out);
}

/* ---- Reductions ---- */

static void reduce_columns(struct cpu_frame *f, const struct step *s, int64_t first, int64_t end,
                           double *state)
{
    struct operand_view v = view(f, s->in[0], s);
    double key = s->in[READS_KEY] >= 0 ? row_value(f, s->in[READS_KEY]) : 0;
    s->prim->reduce->init(state);
    if (s->prim->reduce->fold && first < end && v.stride == 1 && v.repeat == 1) {
        s->prim->reduce->fold(state, v.x + first, end - first, (int)vectors());
        return;
    }
    for (int64_t c = first; c < end; c++) s->prim->reduce->push(state, at(v, c), c, key);
}

/* A GEMM sees one tile at a time: a state for each, left in memory. */
static void reduce_tiles(struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    const struct program *p = f->cpu->p;
    int64_t columns = columns_of(f->cpu, s), each = CEIL_DIV(columns, port->blocks), half = s->half ? 2 : 1;
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

static void reduce_segments(struct cpu_frame *f, const struct step *s, float *out)
{
    double state[PRIM_MAX_STATE] = {0};
    int64_t each = f->cpu->p->segment, n = step_width(f->cpu, s);
    for (int64_t i = 0; i < n; i++) {
        reduce_columns(f, s, i * each, (i + 1) * each, state);
        out[i] = (float)s->prim->reduce->finish(state);
    }
}

/* ---- Reductions of columns ---- */

int cpu_parts(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (step_folds_columns(&p->step[i])) return p->port[p->step[i].port].blocks;
    return 0;
}

static double *states_of(const struct cpu_frame *f, const struct step *step)
{
    double *states = f->states;
    for (const struct step *s = f->cpu->p->step; s < step; s++) states += state_numbers(f->cpu, s);
    return states;
}

void cpu_frame_begin_part(struct cpu_frame *f)
{
    const struct program *p = f->cpu->p;
    for (const struct step *s = p->step; s < p->step + p->steps; s++) {
        double *state = states_of(f, s);
        if (!step_folds_columns(s)) continue;
        for (int64_t c = 0; c < columns_of(f->cpu, s); c++) s->prim->reduce->init(state + c * s->prim->state);
    }
}

void cpu_frame_end_part(struct cpu_frame *f, int64_t part)
{
    const struct program *p = f->cpu->p;
    for (const struct step *s = p->step; s < p->step + p->steps; s++) {
        const double *state = states_of(f, s);
        if (!step_folds_columns(s)) continue;
        float *to = column_states(f, &p->port[s->port], part, columns_of(f->cpu, s));
        for (size_t i = 0; i < state_numbers(f->cpu, s); i++) to[i] = (float)state[i];
    }
}

static void fold_row(struct cpu_frame *f, const struct step *s)
{
    struct operand_view v = view(f, s->in[0], s);
    double *state = states_of(f, s);
    int64_t row = f->at[f->cpu->p->rank - 2];
    for (int64_t c = 0; c < columns_of(f->cpu, s); c++, state += s->prim->state)
        s->prim->reduce->push(state, at(v, c), row, 0);
}

/* A step before s whose state of this row is that of s: another reading of it. NULL: there is none. */
static const struct step *same_state(const struct cpu_frame *f, const struct step *s)
{
    for (const struct step *t = f->cpu->p->step; t < s; t++)
        if (t->kind == STEP_REDUCE && t->axis == s->axis && t->in[0] == s->in[0] &&
            t->in[READS_KEY] == s->in[READS_KEY] && columns_of(f->cpu, t) == columns_of(f->cpu, s) &&
            prim_states_equal(t->prim, s->prim) && !s->range && !s->store_columns.end && !t->range &&
            !t->store_columns.end && !step_folds_segments(t))
            return t;
    return NULL;
}

static void run_reduce(struct cpu_frame *f, const struct step *s, float *out)
{
    if (step_folds_columns(s)) {
        fold_row(f, s);
        return;
    }
    if (step_folds_segments(s)) {
        reduce_segments(f, s, out);
        return;
    }
    if (f->cpu->p->kind == PROGRAM_GEMM) {
        reduce_tiles(f, s);
        return;
    }
    double *state = states_of(f, s);
    const struct step *same = same_state(f, s);
    if (same) memcpy(state, states_of(f, same), sizeof *state * (size_t)s->prim->state);
    else reduce_columns(f, s, 0, columns_of(f->cpu, s), state);
    *out = (float)s->prim->reduce->finish(state);
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

static void run_store(struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    if (is_repeat(f, port) || (use_is_indexed(port) && slot_offset(f, port) < 0)) return;
    struct operand_view v = view(f, s->in[0], s);
    void *base = cpu_buffer(f->cpu, port->buffer);
    int64_t to = use_is_indexed(port) ? slot_offset(f, port) : row_offset(f, port),
            stride = column_stride(f, port), n = step_width(f->cpu, s);
    if (s->cls == CLASS_SEGMENT) stride = port->stride[3];
    if (stride == 0) n = MIN(n, 1);
    bool add = use_effect(port) & EFFECT_ADD;
    if (stride == 1 && v.stride == 1 && v.repeat == 1 && !add && !port->scale && !port->head_dim) {
        cpu_write(port->dtype, base, to, v.x, n);
        return;
    }
    for (int64_t c = 0; c < n; c++) {
        int64_t place = to + column_offset(port, c, stride);
        double x =
            port->scale ? (double)(float)(at(v, c) / (double)scale_of(f, port, c, n)) : (double)at(v, c);
        dtype_store(port->dtype, base, place, add ? dtype_load(port->dtype, base, place) + x : x);
    }
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
    if (p->sample) f->at[0] = f->at[1] / p->sample;
}

static void run_step(struct cpu_frame *f, const struct step *s, float *out)
{
    switch (s->kind) {
    case STEP_ACC: break; /* its value is set by cpu_frame_run */
    case STEP_LOAD: run_load(f, s, out); break;
    case STEP_SCALAR: run_scalar(f, s, out); break;
    case STEP_PARTIAL: run_partial(f, s, out); break;
    case STEP_COLUMN: run_column(f, s, out); break;
    case STEP_MAP: run_map(f, s, out); break;
    case STEP_LANE: run_lane(f, s, out); break;
    case STEP_PAIR: run_pair(f, s, out); break;
    case STEP_REDUCE: run_reduce(f, s, out); break;
    case STEP_STORE: run_store(f, s); break;
    }
}

void cpu_frame_run(struct cpu_frame *f, int64_t row, float *acc)
{
    seek(f, row);
    f->started = f->started && f->sample == f->at[0];
    f->sample = f->at[0];
    for (int i = 0; i < f->cpu->p->steps; i++) {
        const struct step *s = &f->cpu->p->step[i];
        bool kept = f->started && s->cls == CLASS_COL && step_has_value(f->cpu->p, s) && !step_is_of_row(s);
        if (s->kind == STEP_ACC) f->value[i] = acc;
        if (f->in_place[i]) f->value[i] = row_in_place(f, s);
        else if (!kept) run_step(f, s, f->value[i]);
    }
    f->started = true;
}
