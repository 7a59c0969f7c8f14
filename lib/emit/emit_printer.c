/* emit_printer.c -- names and calls as they stand in the functions of an Epilogue. */
#include "emit_epilogue.h"

#include <math.h>
#include <string.h>

/* The suffix of v<i> for a lane: "a", "b", or nothing. */
static const char *lane_suffix(const struct printer *e, const struct step *s, int lane)
{
    if (program_lanes(e->p) == 1 || s->half) return "";
    return lane ? "b" : "a";
}

struct word printer_value(const struct printer *e, int step, int lane)
{
    const struct step *s = &e->p->step[step];
    enum level level = e->l->level[step];
    if (level == LEVEL_SLOT) return emit_word("v%d%s", step, lane_suffix(e, s, lane));
    if (level == LEVEL_SCALAR)
        return emit_word("(float)%sc%d", e->level == LEVEL_SLOT ? "s.args->" : "g.", s->port);
    if (level == e->level) return emit_word("v%d", step);
    if (level == LEVEL_SEGMENT) return emit_word("s.segment.v%d", step);
    if (level == LEVEL_ROW) return emit_word("%sv%d", e->level == LEVEL_SLOT ? "s.row." : "r.", step);
    return level == LEVEL_COL ? emit_word("s.col[%d].v%d", lane, step) : emit_word("s.half.v%d", step);
}

struct word printer_term(int64_t stride, int64_t extent, const char *index)
{
    if (!stride || extent <= 1) return emit_word("%s", "");
    return stride == 1 ? emit_word(" + %s", index) : emit_word(" + %lld * %s", (wide)stride, index);
}

struct word printer_row(const struct program *p, const char *batch, const char *m)
{
    return p->dim[0] > 1 ? emit_word("(i64)g.m * %s + %s", batch, m) : emit_word("%s", m);
}

bool printer_fits(int64_t n) { return n > -((int64_t)1 << 31) && n < (int64_t)1 << 31; }

bool printer_passes_batch(const struct program *p, const struct tensor_use *port)
{
    bool strided = port->role == USE_LOAD || port->role == USE_STORE;
    return strided && p->dim[0] > 1 && port->stride[0] && printer_fits(port->stride[0]);
}

struct word printer_batch(const struct program *p, const struct tensor_use *port, const char *index)
{
    if (printer_passes_batch(p, port)) return emit_word(" + g.batch%d * %s", (int)(port - p->port), index);
    return printer_term(port->stride[0], program_samples(p), index);
}

bool printer_passes_table(const struct tensor_use *port)
{
    return use_is_indexed(port) && printer_fits(port->table_rows);
}

struct word printer_table(const struct program *p, const struct tensor_use *port)
{
    if (printer_passes_table(port)) return emit_word("g.table%d", (int)(port - p->port));
    return emit_word("%lld", (wide)port->table_rows);
}

int64_t printer_period(const struct program *p)
{
    int64_t period = MAX(p->pairing.period, 1);
    bool counts = pair_step(p) >= 0 && pair_counts_rows(p);
    return counts && (p->dim[0] > 1 || period < p->dim[1]) ? period : 0;
}

bool printer_passes_period(const struct program *p)
{
    return printer_period(p) && printer_fits(mul_counts(p->dim[0], p->dim[1]));
}

void printer_call(const struct printer *e, const struct step *s, int lane)
{
    struct word value[PRIM_MAX_INPUTS];
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] != IMMEDIATE) value[i] = printer_value(e, s->in[i], lane);
    emit_call(e->p, (int)(s - e->p->step), value, e->t);
    text_append(e->t, ";");
}

/* ---- Slots ---- */

/* Its number among the loads, or stores, of the slots. */
int printer_number(const struct printer *e, int step)
{
    int k = 0;
    for (int i = 0; i < step; i++)
        k += e->p->step[i].kind == e->p->step[step].kind && e->l->level[i] == LEVEL_SLOT;
    return k;
}

/* Prints the expression of a step of one lane; maps are printed by printer_call. */
static struct word slot_source(const struct printer *e, int i, int lane)
{
    const struct step *s = &e->p->step[i];
    switch (s->kind) {
    case STEP_ACC: return emit_word("s.acc[%d]", lane);
    case STEP_LOAD: return emit_word("s.in[%d][%d]", printer_number(e, i), lane);
    default: return printer_value(e, s->in[0], s->kind == STEP_LANE ? s->lane : lane);
    }
}

void printer_slot(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    int lanes = s->half ? 1 : program_lanes(e->p);
    for (int lane = 0; lane < lanes; lane++) {
        text_printf(e->t, "        const float v%d%s = ", i, lane_suffix(e, s, lane));
        if (s->kind == STEP_MAP) printer_call(e, s, lane);
        else text_printf(e->t, "%s;", slot_source(e, i, lane).s);
        text_append(e->t, "\n");
    }
}

bool printer_adds(const struct printer *e, int step)
{
    return use_effect(&e->p->port[e->p->step[step].port]) & EFFECT_ADD;
}

void printer_move(const struct printer *e, const struct move *v)
{
    static const char *const form[] = {
        [MOVE_WHOLE] = "Whole", [MOVE_UPPER] = "Upper", [MOVE_LANES] = "Lanes", [MOVE_TWINS] = "Twins"};
    bool adds = printer_adds(e, v->step[0]);
    text_printf(e->t, "%s%s<%s, %d", adds ? "Adds<" : "", form[v->form],
                emit_dtype(e->p->port[e->p->step[v->step[0]].port].dtype), printer_number(e, v->step[0]));
    if (v->step[1] >= 0) text_printf(e->t, ", %d", printer_number(e, v->step[1]));
    text_append(e->t, adds ? ">>" : ">");
}
