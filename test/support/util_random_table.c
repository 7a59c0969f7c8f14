/*
 * util_random_table.c -- patterns of random graphs that draw from the table of primitives, so that a new map
 * or reduction is drawn by being there.
 *
 * Of a map nothing is known but its reference. It may jump, so it reads leaves, which no rounding has moved;
 * it may be defined for some numbers alone, so it is tried first; and it may give numbers of any size, so
 * that what comes of it is clipped.
 */
#include "util_random_maker.h"

#include <math.h>
#include <string.h>

static bool opted_out(const char *name)
{
    static const char *const names[] = {
#define NOT_DRAWN(kind, name, why) #name,
#include "drawn.def"
#undef NOT_DRAWN
    };
    for (int i = 0; i < ARRAY_SIZE(names); i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static const struct prim *draw_prim(struct maker *m, enum prim_kind kind)
{
    for (;;) {
        const struct prim *p = &prim_table[random_below(&m->r, prim_count)];
        if (p->kind == kind && !opted_out(p->name)) return p;
    }
}

/* Does it give numbers for these operands, of each sign? */
static bool defined_for(const struct prim *p, double sign, const float *params)
{
    static const double some[] = {0.1, 0.7, 1.3, 2.9};
    double in[PRIM_MAX_INPUTS], constant[PRIM_MAX_PARAMS] = {0};
    for (int i = 0; i < p->params; i++) constant[i] = (double)params[i];
    for (int k = 0; k < ARRAY_SIZE(some); k++) {
        for (int i = 0; i < p->inputs; i++) in[i] = sign * some[(k + i) % ARRAY_SIZE(some)];
        if (isnan(p->reference(in, constant))) return false;
    }
    return true;
}

static coda_value operand(struct maker *m, const struct shape *s, bool any_sign)
{
    int skip = random_chance(&m->r, 30) ? s->rank - 1 : 0;
    coda_value v = maker_leaf(m, random_chance(&m->r, 30), s->dtype, s->rank - skip, s->dim + skip);
    return any_sign ? v : coda_abs(m->g, v);
}

coda_value maker_map(struct maker *m)
{
    const struct prim *p = draw_prim(m, PRIM_MAP);
    float params[PRIM_MAX_PARAMS];
    coda_value in[PRIM_MAX_INPUTS], x = maker_draw(m);
    struct shape s = maker_shape(m, x);
    for (int i = 0; i < p->params; i++) params[i] = 0.5f * (float)(1 + i); /* rising, as bounds are */
    if (s.rank < 1 || dtype_is_index(s.dtype)) return CODA_NONE;
    bool any_sign = defined_for(p, -1, params);
    for (int i = 0; i < p->inputs; i++) in[i] = operand(m, &s, any_sign);
    coda_value y =
        coda_clip(m->g, coda_apply(m->g, p->name, in, p->inputs, p->params ? params : NULL), -4, 4);
    return random_chance(&m->r, 50) ? coda_add(m->g, x, y) : coda_mul(m->g, y, coda_sigmoid(m->g, x));
}

/* Of a leaf: the column of an extreme may jump. Some fit no row, or no column, of any width. */
coda_value maker_reduction(struct maker *m)
{
    const struct prim *p = draw_prim(m, PRIM_REDUCE);
    coda_value x = maker_draw(m);
    struct shape s = maker_shape(m, x);
    if (s.rank < 2 || s.dim[s.rank - 1] == 0 || p->inputs > 1) return CODA_NONE;
    coda_value row = maker_leaf(m, random_chance(&m->r, 30), s.dtype, s.rank, s.dim);
    bool columns = p->state <= PRIM_MAX_COLUMN_STATE && random_chance(&m->r, 40) && s.dim[s.rank - 2] > 0;
    coda_value y =
        columns ? coda_reduce_columns(m->g, p->name, row) : coda_reduce(m->g, p->name, row, CODA_NONE);
    return coda_add(m->g, x, coda_clip(m->g, coda_scale(m->g, y, 0.125f), -4, 4));
}
