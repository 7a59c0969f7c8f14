/*
 * rows_phases.c -- which steps of a rows program some store needs, and in which walk over a row each is made.
 *
 * A walk computes again what it needs of the columns, so that a phase is its sinks, what folds or stores, and
 * all that these are made of.
 */
#include "rows_schedule.h"

#include <string.h>

int rows_index(const struct program *p, const struct step *s)
{
    bool moves = s->kind == STEP_LOAD || s->kind == STEP_STORE;
    return moves && use_is_indexed(&p->port[s->port]) ? p->port[s->port].index : -1;
}

static void mark_operands(struct rows_walk *w, const struct program *p, const struct step *s)
{
    for (int k = 0; k < s->nin; k++)
        if (s->in[k] >= 0) w->live[s->in[k]] = true;
    if (rows_index(p, s) >= 0) w->live[rows_index(p, s)] = true;
}

/* Has a domain of the first `rank` dimensions an element? */
static bool has_elements(const struct program *p, int rank)
{
    bool any = true;
    for (int d = 0; d < rank; d++) any = any && p->dim[d] > 0;
    return any;
}

/* Without columns only row values are left to store. */
static void mark_live(struct rows_walk *w, const struct program *p)
{
    bool any_row = has_elements(p, p->rank - 1), any_column = has_elements(p, p->rank);
    for (int i = p->steps - 1; i >= 0; i--) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_STORE) w->live[i] = s->cls == CLASS_ROW ? any_row : any_column;
        if (step_folds_columns(s)) w->live[i] = any_column;
        if (w->live[i]) mark_operands(w, p, s);
    }
}

static void number_phases(struct rows_walk *w, const struct program *p)
{
    w->phases = 1;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        int phase = 0;
        for (int k = 0; k < s->nin; k++)
            if (s->in[k] >= 0) phase = MAX(phase, w->phase[s->in[k]]);
        if (rows_index(p, s) >= 0) phase = MAX(phase, w->phase[rows_index(p, s)]);
        w->phase[i] = phase + (s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS);
        if (w->live[i]) w->phases = MAX(w->phases, w->phase[i] + 1);
    }
}

/* The last walk that loads of the buffer are made in; each walk computes again what it needs. */
static int last_load(const struct rows_walk *w, const struct program *p, int buffer, bool *needed)
{
    int last = 0;
    for (int phase = 0; phase < w->phases; phase++) {
        rows_needs(w, p, phase, needed);
        for (int i = 0; i < p->steps; i++)
            if (needed[i] && p->step[i].kind == STEP_LOAD && p->port[p->step[i].port].buffer == buffer)
                last = phase;
    }
    return last;
}

/* What is written over what the program loads, as states are, is so by the last walk that loads it; that walk
 * loads what the store's value is made of, too. */
static void delay_stores(struct rows_walk *w, const struct program *p, bool *needed)
{
    for (bool again = w->phases > 1; again;) {
        again = false;
        for (int i = 0; i < p->steps; i++) {
            const struct step *s = &p->step[i];
            if (s->kind != STEP_STORE || s->cls == CLASS_ROW || !w->live[i]) continue;
            int last = last_load(w, p, p->port[s->port].buffer, needed);
            again = again || last > w->phase[i];
            w->phase[i] = MAX(w->phase[i], last);
        }
    }
}

bool rows_sink(const struct rows_walk *w, const struct program *p, int step, int phase)
{
    const struct step *s = &p->step[step];
    if (!w->live[step]) return false;
    if (s->kind == STEP_REDUCE) return w->phase[step] == phase + (s->axis == REDUCE_ROWS);
    return s->kind == STEP_STORE && s->cls != CLASS_ROW && w->phase[step] == phase;
}

bool rows_needs(const struct rows_walk *w, const struct program *p, int phase, bool *needed)
{
    bool any = false;
    memset(needed, 0, sizeof *needed * (size_t)p->steps);
    for (int i = p->steps - 1; i >= 0; i--) {
        const struct step *s = &p->step[i];
        if (rows_sink(w, p, i, phase)) needed[i] = any = true;
        for (int k = 0; needed[i] && k < s->nin; k++)
            if (s->in[k] >= 0 && !step_is_of_row(&p->step[s->in[k]])) needed[s->in[k]] = true;
    }
    return any;
}

void rows_number(struct rows_walk *w, const struct program *p, bool *needed)
{
    mark_live(w, p);
    number_phases(w, p);
    delay_stores(w, p, needed);
}
