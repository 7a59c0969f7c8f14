/*
 * optimizer.c -- the step of an optimiser as a graph over flat memory.
 *
 * AdamW moves each group by one call; Muon each matrix of a checkpoint by itself, though some are stacked in
 * one weight. In a plan of a whole step AdamW moves each weight by itself. Gradients are clipped to a norm
 * (Pascanu et al., arXiv 1211.5063); where the norm is inf or NaN all stays as it was.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "train_engine.h"

/* Powers of two, whose inverse fp32 has. */
#define SCALE_LEAST 1
#define SCALE_MOST 16777216

struct step {
    coda_graph *g;
    const struct engine *e;
    coda_value rate, unbias_m, unbias_v; /* [1] */
    coda_value clip, update;
};

/* What a group, or a matrix of it, has in flat memory. */
struct leaves {
    coda_value grad, p, m, v, w;
};

static coda_value leaf(struct step *s, const char *name, char what, coda_dtype t, const int64_t *dims)
{
    char whole[200];
    snprintf(whole, sizeof whole, "%s.%c", name, what);
    return what == 'g' ? coda_input(s->g, whole, t, 2, dims) : coda_state(s->g, whole, t, 2, dims);
}

static struct leaves leaves(struct step *s, const char *name, bool second_moment, const int64_t *dims)
{
    struct leaves l = {.grad = leaf(s, name, 'g', CODA_F32, dims)};
    l.p = leaf(s, name, 'p', CODA_F32, dims);
    l.m = leaf(s, name, 'm', CODA_F32, dims);
    if (second_moment) l.v = leaf(s, name, 'v', CODA_F32, dims);
    if (s->e->params.rounded) l.w = leaf(s, name, 'w', s->e->dtype, dims);
    return l;
}

static void append_adamw(struct step *s, const struct leaves *l, double decay)
{
    coda_adamw_options o = CODA_ADAMW_OPTIONS_INIT;
    o.beta1 = (float)BETA_M;
    o.beta2 = (float)BETA_V;
    o.weight_decay = (float)decay;
    o.lr_value = s->rate;
    o.clip = s->clip;
    o.update = s->update;
    o.correction1 = s->unbias_m;
    o.correction2 = s->unbias_v;
    coda_adamw(s->g, l->grad, l->p, l->m, l->v, l->w, &o);
}

static void append_group(struct step *s, const char *group, int64_t rows, double decay)
{
    if (!rows) return;
    struct leaves l = leaves(s, group, true, (const int64_t[]){rows, PARAMETER_ROW});
    append_adamw(s, &l, decay);
}

/* Its moves of a matrix [N, K] are sqrt(max(1, N / K)) in size. By a rate of 0.2 sqrt(K) times the step's
 * they are those of AdamW, 0.2 in the mean square (Liu et al., arXiv 2502.16982), and both have one rate. */
static void append_muon(struct step *s, const char *name, int64_t rows, int64_t columns)
{
    coda_muon_options o = CODA_MUON_OPTIONS_INIT;
    char whole[200];
    double factor = 0.2 * sqrt((double)columns);
    snprintf(whole, sizeof whole, "muon.%s", name);
    struct leaves l = leaves(s, whole, false, (const int64_t[]){rows, columns});
    o.momentum = (float)MOMENTUM;
    o.weight_decay = (float)(s->e->how.decay / factor);
    o.products = s->e->dtype;
    o.lr_value = coda_scale(s->g, s->rate, (float)factor);
    o.clip = s->clip;
    o.update = s->update;
    coda_muon(s->g, l.grad, l.p, l.m, l.w, &o);
}

static void append_muons(struct step *s)
{
    const struct parameters *p = &s->e->params;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; p->all[i].group == GROUP_MUON && k < p->all[i].w->stored_count; k++)
            append_muon(s, p->all[i].w->stored[k], p->all[i].w->rows[k], p->all[i].w->columns);
}

static coda_value number(struct step *s, double x) { return coda_constant(s->g, CODA_F32, x); }

/* Half of the scale behind a step that has changed nothing, twice as much behind enough others. */
static void append_scale(struct step *s, coda_value scale, coda_value steps)
{
    coda_graph *g = s->g;
    coda_value more = coda_add(g, steps, number(s, 1));
    coda_value enough = coda_greater_equal(g, more, number(s, (double)s->e->how.scale_steps));
    coda_value up = coda_minimum(g, coda_scale(g, scale, 2), number(s, SCALE_MOST));
    coda_value down = coda_maximum(g, coda_scale(g, scale, 0.5f), number(s, SCALE_LEAST));
    coda_output(g, "scale_used", coda_scale(g, scale, 1));
    coda_assign(g, scale, coda_where(g, s->update, coda_where(g, enough, up, scale), down));
    coda_value begun = coda_logical_or(g, enough, coda_equal(g, s->update, number(s, 0)));
    coda_assign(g, steps, coda_sub(g, more, coda_mul(g, begun, more)));
}

/* Gradients are those of the loss times the scale, if there is one. */
static void append_norm(struct step *s, const coda_value *grads, int n, coda_value scale)
{
    coda_graph *g = s->g;
    coda_value squared = coda_norm_squared(g, grads, n), inverse = CODA_NONE;
    if (scale.id) {
        inverse = coda_div(g, number(s, 1), scale);
        squared = coda_mul(g, coda_mul(g, squared, inverse), inverse);
    }
    coda_output_add(g, "norm_squared", squared);
    s->clip = coda_minimum(g, number(s, 1), coda_mul(g, number(s, s->e->how.clip), coda_rsqrt(g, squared)));
    if (scale.id) s->clip = coda_mul(g, s->clip, inverse);
    s->update = coda_equal(g, coda_sub(g, squared, squared), number(s, 0));
    if (scale.id) append_scale(s, scale, coda_state(g, "scale_steps", CODA_F32, DIMS(1)));
}

static void append_numbers(struct step *s)
{
    s->rate = coda_input(s->g, "rate", CODA_F32, DIMS(1));
    s->unbias_m = coda_input(s->g, "unbias_m", CODA_F32, DIMS(1));
    s->unbias_v = coda_input(s->g, "unbias_v", CODA_F32, DIMS(1));
}

coda_graph *optimizer_graph(const struct engine *e, struct fault *f)
{
    static const char *const names[] = {"vector", "table"};
    struct step s = {.g = coda_graph_new(), .e = e};
    const int64_t *begin = e->params.begin;
    if (!s.g) return fault_set(f, "out of memory"), NULL;
    append_numbers(&s);
    coda_value grad = coda_input(s.g, "grad", CODA_F32, DIMS(e->params.count / PARAMETER_ROW, PARAMETER_ROW));
    append_norm(&s, &grad, 1, e->params.scaled ? coda_state(s.g, "scale", CODA_F32, DIMS(1)) : CODA_NONE);
    for (int i = 0; i < GROUP_MUON; i++)
        append_group(&s, names[i], (begin[i + 1] - begin[i]) / PARAMETER_ROW,
                     i == GROUP_TABLE ? e->how.decay : 0);
    append_muons(&s);
    if (coda_graph_status(s.g) == CODA_OK) return s.g;
    fault_set(f, "%s", coda_error());
    coda_graph_free(s.g);
    return NULL;
}

/* A weight of fp32 is its own p. */
static void append_moved(struct step *s, const struct moved *one)
{
    const struct weight *w = one->w;
    struct leaves l = {.grad = one->gradient, .p = w->value};
    coda_value *const states[] = {&l.p, &l.m, &l.v};
    int64_t dims[CODA_MAX_RANK];
    int rank = coda_value_shape(s->g, w->value, dims, NULL);
    if (w->dtype != CODA_F32) l.w = w->value;
    for (int i = w->dtype == CODA_F32; i < 3; i++) {
        char name[200];
        snprintf(name, sizeof name, "%c.%s", "pmv"[i], w -> name);
        *states[i] = coda_state(s->g, name, CODA_F32, rank, dims);
    }
    append_adamw(s, &l, w->columns ? s->e->how.decay : 0);
}

void optimizer_append(const struct engine *e, coda_graph *g, coda_value scale, const struct moved *all, int n)
{
    struct step s = {.g = g, .e = e};
    coda_value *grads = calloc((size_t)n + 1, sizeof *grads);
    for (int i = 0; grads && i < n; i++) grads[i] = all[i].gradient;
    append_numbers(&s);
    append_norm(&s, grads, grads ? n : 0, scale);
    for (int i = 0; i < n; i++) append_moved(&s, &all[i]);
    free(grads);
}
