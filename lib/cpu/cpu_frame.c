/* cpu_frame.c -- see cpu_frame.h. */
#include "cpu_frame.h"

#include <stdlib.h>

int64_t step_columns_of(const struct cpu *c, const struct step *s)
{
    if (s->range || s->store_columns.end) return step_columns(c->p, s).end - step_columns(c->p, s).first;
    return s->half ? c->columns / 2 : c->columns;
}

int64_t step_width(const struct cpu *c, const struct step *s)
{
    if (s->cls == CLASS_SEGMENT) return step_columns_of(c, s) / c->p->segment;
    return step_is_of_row(s) ? 1 : step_columns_of(c, s);
}

static int64_t stored_width(const struct cpu *c, const struct step *s)
{
    if (s->kind == STEP_CONV1D) return (2 + step_rows_above(s)) * step_width(c, s);
    return s->kind == STEP_ACC || !step_has_value(c->p, s) ? 0 : step_width(c, s);
}

size_t state_numbers(const struct cpu *c, const struct step *s)
{
    if (s->kind != STEP_REDUCE) return 0;
    return (step_folds_columns(s) ? (size_t)step_columns_of(c, s) : 1) * (size_t)s->prim->state;
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

struct operand_view operand_of_step(const struct cpu_frame *f, int step, const struct step *s)
{
    const struct program *p = f->cpu->p;
    const struct step *from = &p->step[step];
    bool repeats = from->cls == CLASS_SEGMENT && s->cls != CLASS_SEGMENT;
    struct operand_view v = {f->value[step], step_is_of_row(from) ? 0 : 1, repeats ? p->segment : 1};
    if ((s->range || s->store_columns.end) && !from->range && !step_is_of_row(from))
        v.x += step_columns(p, s).first;
    return v;
}

int64_t column_stride(const struct cpu_frame *f, const struct tensor_use *port)
{
    return f->cpu->p->rank ? port->stride[f->cpu->p->rank - 1] : 0;
}

int64_t row_offset(const struct cpu_frame *f, const struct tensor_use *port)
{
    int64_t at = port->offset;
    for (int d = 0; d + 1 < f->cpu->p->rank; d++) at += f->at[d] * port->stride[d];
    return at;
}

double *states_of(const struct cpu_frame *f, const struct step *step)
{
    double *states = f->states;
    for (const struct step *s = f->cpu->p->step; s < step; s++) states += state_numbers(f->cpu, s);
    return states;
}
