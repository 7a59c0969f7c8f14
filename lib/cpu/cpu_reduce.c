/* cpu_reduce.c -- statistics: of a row, of its tiles or segments, and of columns, whose states go from row to
 * row. */
#include "cpu_frame.h"
#include "mainloop.h"

#include <string.h>

static void reduce_columns(struct cpu_frame *f, const struct step *s, int64_t first, int64_t end,
                           double *state)
{
    struct operand_view v = operand_of_step(f, s->in[0], s);
    double key = s->in[READS_KEY] >= 0 ? row_value(f, s->in[READS_KEY]) : 0;
    s->prim->reduce->init(state);
    if (s->prim->reduce->fold && first < end && v.stride == 1 && v.repeat == 1) {
        s->prim->reduce->fold(state, v.x + first, end - first, (int)vectors());
        return;
    }
    for (int64_t c = first; c < end; c++) s->prim->reduce->push(state, at(v, c), c, key);
}

/* A GEMM sees one tile at a time: a state for each, left in memory, of what the step has there. */
static void reduce_tiles(struct cpu_frame *f, const struct step *s)
{
    const struct tensor_use *port = &f->cpu->p->port[s->port];
    const struct program *p = f->cpu->p;
    int64_t columns = step_columns_of(f->cpu, s), each = CEIL_DIV(columns, port->blocks),
            half = s->half ? 2 : 1, from = s->range ? step_columns(p, s).first : 0;
    const struct tile *tile = &f->cpu->plan->schedule[p - f->cpu->plan->program].tile;
    bool streams = tile->mainloop->streams;
    float *to = partial_states(f, port);
    double state[PRIM_MAX_STATE] = {0};
    for (int64_t b = 0; b < port->blocks; b++) {
        int64_t first = streams ? b * each : program_tile_column(p, tile, b) / half - from;
        int64_t end = streams ? first + each : program_tile_column(p, tile, b + 1) / half - from;
        reduce_columns(f, s, MIN(MAX(first, 0), columns), MIN(MAX(end, 0), columns), state);
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

/* ---- Of columns ---- */

int cpu_parts(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (step_folds_columns(&p->step[i])) return p->port[p->step[i].port].blocks;
    return 0;
}

void cpu_frame_begin_part(struct cpu_frame *f)
{
    const struct program *p = f->cpu->p;
    for (const struct step *s = p->step; s < p->step + p->steps; s++) {
        double *state = states_of(f, s);
        if (!step_folds_columns(s)) continue;
        for (int64_t c = 0; c < step_columns_of(f->cpu, s); c++)
            s->prim->reduce->init(state + c * s->prim->state);
    }
}

void cpu_frame_end_part(struct cpu_frame *f, int64_t part)
{
    const struct program *p = f->cpu->p;
    for (const struct step *s = p->step; s < p->step + p->steps; s++) {
        const double *state = states_of(f, s);
        if (!step_folds_columns(s)) continue;
        float *to = column_states(f, &p->port[s->port], part, step_columns_of(f->cpu, s));
        for (size_t i = 0; i < state_numbers(f->cpu, s); i++) to[i] = (float)state[i];
    }
}

static void fold_row(struct cpu_frame *f, const struct step *s)
{
    struct operand_view v = operand_of_step(f, s->in[0], s);
    double *state = states_of(f, s);
    int64_t row = f->at[f->cpu->p->rank - 2];
    for (int64_t c = 0; c < step_columns_of(f->cpu, s); c++, state += s->prim->state)
        s->prim->reduce->push(state, at(v, c), row, 0);
}

/* A step before s whose state of this row is that of s: another reading of it. NULL: there is none. */
static const struct step *same_state(const struct cpu_frame *f, const struct step *s)
{
    for (const struct step *t = f->cpu->p->step; t < s; t++)
        if (t->kind == STEP_REDUCE && t->axis == s->axis && t->in[0] == s->in[0] &&
            t->in[READS_KEY] == s->in[READS_KEY] &&
            step_columns_of(f->cpu, t) == step_columns_of(f->cpu, s) && prim_states_equal(t->prim, s->prim) &&
            !s->range && !s->store_columns.end && !t->range && !t->store_columns.end &&
            !step_folds_segments(t))
            return t;
    return NULL;
}

void cpu_reduce(struct cpu_frame *f, const struct step *s, float *out)
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
    else reduce_columns(f, s, 0, step_columns_of(f->cpu, s), state);
    *out = (float)s->prim->reduce->finish(state);
}
