/*
 * cpu_steps.c -- interprets a program's steps over one row of its domain.
 *
 * A value of class ROW is one float, of class COL or TILE one float for each column (of the N/2 output
 * columns if the step is `half`). Maps and reductions are the primitives' references, in double.
 */
#include "cpu_frame.h"

#include <math.h>

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
        v[k] = s->in[k] == IMMEDIATE ? (struct operand_view){&s->immediate[k], 0, 1}
                                     : operand_of_step(f, s->in[k], s);
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
    struct operand_view v = operand_of_step(f, s->in[0], s);
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
    struct operand_view v = operand_of_step(f, s->in[0], s);
    int64_t n = step_width(f->cpu, s);
    double position[MOST_AXES] = {(double)(f->row % MAX(r->period, 1))};
    for (int axis = 0; 1 + axis < s->nin && s->in[1 + axis] >= 0; axis++)
        position[axis] = row_value(f, s->in[1 + axis]);
    for (int64_t c = 0; c < n; c++) out[c] = at(v, c);
    for (int64_t i = 0; i < r->rotary / 2; i++)
        combine_pair(r, i, position[pair_axis(r, i)] * frequency(f, s, i), n, out);
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
    case STEP_LOAD: cpu_load(f, s, out); break;
    case STEP_SCALAR: cpu_scalar(f, s, out); break;
    case STEP_PARTIAL: cpu_partial(f, s, out); break;
    case STEP_COLUMN: run_column(f, s, out); break;
    case STEP_MAP: run_map(f, s, out); break;
    case STEP_LANE: run_lane(f, s, out); break;
    case STEP_PAIR: run_pair(f, s, out); break;
    case STEP_REDUCE: cpu_reduce(f, s, out); break;
    case STEP_CONV1D: cpu_convolve(f, s, out); break;
    case STEP_STORE: cpu_store(f, s); break;
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
