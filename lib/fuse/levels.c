/*
 * levels.c -- values of fewer dimensions, which are computed where they are read.
 *
 * softplus(dt) is a number for each head of a state, and each element of the head's matrix is multiplied by
 * it. A program of its own would store so few numbers, at the cost of a launch, for another one to load them
 * as values of its rows. Where maps alone read such a value, over columns of theirs, perhaps through reshapes
 * and through maps of such values, each program that does computes it again as a value of its rows.
 *
 * What it is computed of then lies by strides over the dimensions that it has itself; those are seen as the
 * reshapes say, one after another, and then over the program's domain.
 */
#include "writer.h"

enum { MOST_STEPS = 12, MOST_LOADS = 4, MOST_CHAIN = 12 };

/* ---- Which values ---- */

static int behind_reshapes(const graph *g, int value)
{
    while (g->node[value].op == OP_RESHAPE) value = g->node[value].in[RESHAPE_X];
    return value;
}

/* Is it a map, or a cast, that is computed again for elements of any type? */
static bool is_level(const struct grouper *gr, int value)
{
    const struct site *s = &gr->site[value];
    enum op op = gr->g->node[value].op;
    return s->role == ROLE_INLINE && s->vector && (op == OP_MAP || op == OP_CAST);
}

int level_of(const struct grouper *gr, int value)
{
    int base = behind_reshapes(gr->g, value);
    return base != value && is_level(gr, base) ? base : -1;
}

/* Does it lie in memory before a program of rows reads it: an argument, or what another kernel makes? */
static bool is_made(const struct grouper *gr, int value)
{
    int base = value;
    while (op_is_view(gr->g->node[base].op)) base = gr->g->node[base].in[VIEW_OF];
    const struct site *s = &gr->site[base];
    bool made = s->role == ROLE_LEAF || (s->role == ROLE_MEMBER && !s->partial);
    return made && gr->view[value].base >= 0;
}

/* Do maps alone read the value, which is one for all columns of theirs? */
static bool is_of_rows(const struct grouper *gr, int value, int chain)
{
    const struct uses *u = &gr->uses;
    bool narrow = extent_is_one(type_columns(&gr->g->node[value].type));
    if (gr->g->node[value].output >= 0 || !chain) return false;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        const struct node *n = &gr->g->node[reader];
        bool map = (n->op == OP_MAP || n->op == OP_CAST) && gr->site[reader].role == ROLE_FREE;
        if (n->op != OP_RESHAPE && !map) return false;
        bool wide = map && narrow && extent_reaches(type_columns(&n->type), 2);
        if (!wide && !is_of_rows(gr, reader, chain - 1)) return false;
    }
    return uses_count(u, value) > 0;
}

/* Counts what computing operand i of n again takes. */
static bool count_operand(const struct grouper *gr, int value, struct site *out)
{
    float ignored;
    int base = behind_reshapes(gr->g, value);
    const struct site *s = &gr->site[base];
    if (group_number(gr, value, &ignored) || group_scalar(gr, value) >= 0) return true;
    bool level = is_level(gr, base);
    out->steps += level ? s->steps : 1;
    out->loads += level ? s->loads : 1;
    return level || is_made(gr, value);
}

bool level_find(const struct grouper *gr, int value, struct site *out)
{
    const struct node *n = &gr->g->node[value];
    if (!gr->opt->fuse || (n->op != OP_MAP && n->op != OP_CAST) || gr->site[value].is_const) return false;
    out->steps = 1, out->loads = 0;
    for (int i = 0; i < n->nin; i++)
        if (!count_operand(gr, n->in[i], out)) return false;
    return out->steps <= MOST_STEPS && out->loads <= MOST_LOADS && is_of_rows(gr, value, MOST_CHAIN);
}

/* ---- Where it lies ---- */

bool level_strides(const struct writer *w, struct type *t, int64_t *stride)
{
    for (const struct level_view *l = w->level; l; l = l->outer) {
        const struct type *own = &w->gr->g->node[behind_reshapes(w->gr->g, l->view)].type;
        const struct type *seen = &w->gr->g->node[l->view].type;
        int64_t wide[CODA_MAX_RANK] = {0}, out[CODA_MAX_RANK] = {0};
        coda_dtype dtype = t->dtype;
        if (t->rank > own->rank) return false;
        view_broadcast(t, stride, own, wide);
        if (!view_reshape(own, wide, seen, out)) return false;
        for (int d = 0; d < CODA_MAX_RANK; d++) stride[d] = out[d];
        *t = *seen;
        t->dtype = dtype;
    }
    return true;
}

static bool operand_fits(struct writer *w, int value, const struct type *as)
{
    float ignored;
    const struct view *v = &w->gr->view[value];
    const struct node *n = &w->gr->g->node[value];
    int64_t stride[CODA_MAX_RANK], out[CODA_MAX_RANK];
    struct type t = n->type;
    if (group_number(w->gr, value, &ignored) || group_scalar(w->gr, value) >= 0) return true;
    if (level_of(w->gr, value) >= 0) return level_fits(w, value, as);
    if (w->gr->site[value].role == ROLE_INLINE) {
        bool fits = is_level(w->gr, value);
        for (int i = 0; i < n->nin && fits; i++) fits = operand_fits(w, n->in[i], as);
        return fits;
    }
    for (int d = 0; d < CODA_MAX_RANK; d++) stride[d] = v->stride[d];
    return v->base >= 0 && level_strides(w, &t, stride) && domain_strides(w->q, &t, stride, as, out);
}

bool level_fits(struct writer *w, int view, const struct type *as)
{
    const struct node *n = &w->gr->g->node[level_of(w->gr, view)];
    struct level_view level = {w->level, view};
    bool fits = w->p->kind == PROGRAM_ROWS;
    w->level = &level;
    for (int i = 0; i < n->nin && fits; i++) fits = operand_fits(w, n->in[i], as);
    w->level = level.outer;
    return fits;
}
