/*
 * emit_rows_mean.c -- means of rows, and the squares about them, of elements of 16 bits that a team keeps.
 *
 * These are summed twice: differences from the row's first one, then from the mean. If all are equal both
 * results are exact. It takes half of the instructions that a state of counts takes, and lanes add without
 * quotients.
 */
#include "emit_rows.h"

#include <string.h>

/* Does a walk behind the first one want what step x loads? Then no store of the first walk is over it
 * (plan/verify_in_place.c), and all of a team find the row's first element as it was. */
static bool is_wanted_later(const struct emitter *e, int x)
{
    for (int phase = 1; phase < e->w->phases; phase++)
        if (rows_needs(e->w, e->p, phase, e->scratch) && e->scratch[x]) return true;
    return false;
}

/* Is it the state of a mean, or of the squares about it? Step i owns it. */
bool rows_has_mean(const struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    bool mean = s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS &&
                !strcmp(s->prim->of ? s->prim->of : s->prim->name, "m2");
    if (!mean || e->w->folds || e->exchange || e->w->team <= 1 || !e->w->pieces) return false;
    const struct step *x = &e->p->step[s->in[READS_X]];
    bool loads = x->kind == STEP_LOAD && !step_is_of_row(x) && e->w->kept[s->in[READS_X]];
    loads = loads && e->p->port[x->port].role == USE_LOAD && dtype_is_half(e->p->port[x->port].dtype);
    return loads && is_wanted_later(e, s->in[READS_X]);
}

void rows_begin_mean(struct emitter *e, int i)
{
    rows_line(e, "float s%d = 0.0f;", i);
    rows_line(e, "const float first%d = load(p%d);", i, e->p->step[e->p->step[i].in[READS_X]].port);
}

void rows_push_mean(struct emitter *e, int i)
{
    rows_line(e, "s%d = fmaf(v%d - first%d, 1.0f / %lld, s%d);", i, e->p->step[i].in[READS_X], i,
              (wide)e->w->columns, i);
}

void rows_finish_mean(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    int first = rows_state(e->w, e->p, i);
    if (first == i) {
        rows_line(e, "const float mean%d = first%d + rows::total<%d>(s%d);", i, i, e->w->team, i);
        rows_line(e, "float t%d = 0.0f;", i);
        rows_open_walk(e);
        rows_line(e, "#pragma unroll");
        rows_open(e, "for (int j = 0; j < %d; j++)", e->w->width);
        rows_line(e, "const float d = %s[j] - mean%d;", rows_load(e, s->in[READS_X]).s, i);
        rows_line(e, "t%d = fmaf(d, d, t%d);", i, i);
        rows_close(e);
        rows_close(e);
        rows_line(e, "const reduce::%s::State f%d = {{%lld.0f, mean%d, rows::total<%d>(t%d)}};",
                  s->prim->name, i, (wide)e->w->columns, i, e->w->team, i);
    }
    rows_line(e, "const float v%d = reduce::%s::finish(f%d);", i, s->prim->name, first);
}
