/*
 * optimizer.c -- the step of an optimiser as a graph over flat memory.
 *
 * AdamW (Loshchilov & Hutter, arXiv 1711.05101), its gradient clipped to a norm (Pascanu et al., arXiv
 * 1211.5063). Where the norm is inf or NaN all stays as it was.
 */
#include <math.h>
#include <stdio.h>

#include "train_engine.h"

static const double epsilon = 1e-8;

struct step {
    coda_graph *g;
    const struct engine *e;
    coda_value rate, unbias_m, unbias_v;
    coda_value clip, good; /* [1, 1] */
};

static coda_value number(struct step *s, double x) { return coda_constant(s->g, CODA_F32, x); }

/* a + share (b - a). */
static coda_value towards(struct step *s, coda_value a, coda_value b, double share)
{
    return coda_add(s->g, a, coda_mul(s->g, number(s, share), coda_sub(s->g, b, a)));
}

static void set(struct step *s, coda_value state, coda_value value)
{
    coda_assign(s->g, state, coda_where(s->g, s->good, value, state));
}

static coda_value leaf(struct step *s, const char *group, const char *what, coda_dtype t, int rank,
                       const int64_t *dims)
{
    char name[200];
    snprintf(name, sizeof name, "%s.%s", group, what);
    return *what == 'g' ? coda_input(s->g, name, t, rank, dims) : coda_state(s->g, name, t, rank, dims);
}

/* p less rate times move, and w of it. */
static void set_weights(struct step *s, const char *group, coda_value p, coda_value move, int rank,
                        const int64_t *dims)
{
    coda_graph *g = s->g;
    coda_value p1 = coda_where(g, s->good, coda_sub(g, p, coda_mul(g, s->rate, move)), p);
    if (s->e->params.rounded) {
        coda_value w = leaf(s, group, "w", s->e->dtype, rank, dims);
        coda_assign(g, w, coda_cast(g, p1, s->e->dtype));
    }
    coda_assign(g, p, p1);
}

static void append_adamw(struct step *s, const char *group, int64_t rows, double decay)
{
    coda_graph *g = s->g;
    const int64_t dims[] = {rows, PARAMETER_ROW};
    if (!rows) return;
    coda_value grad = coda_mul(g, leaf(s, group, "g", CODA_F32, 2, dims), s->clip);
    coda_value p = leaf(s, group, "p", CODA_F32, 2, dims);
    coda_value m = leaf(s, group, "m", CODA_F32, 2, dims), v = leaf(s, group, "v", CODA_F32, 2, dims);
    coda_value m1 = towards(s, m, grad, 1 - BETA_M), v1 = towards(s, v, coda_mul(g, grad, grad), 1 - BETA_V);
    coda_value root = coda_add(g, coda_sqrt(g, coda_mul(g, v1, s->unbias_v)), number(s, epsilon));
    coda_value move = coda_div(g, coda_mul(g, m1, s->unbias_m), root);
    if (decay > 0) move = coda_add(g, move, coda_mul(g, number(s, decay), p));
    set_weights(s, group, p, move, 2, dims);
    set(s, m, m1);
    set(s, v, v1);
}

/* ---- Muon: momentum, made orthogonal (Jordan et al., 2024, kellerjordan.github.io/posts/muon) ---- */

/* Newton and Schulz's iteration of fifth order, whose coefficients are chosen for speed: singular values of a
 * matrix of norm 1 go to about 1. Its products are in the dtype of all others. */
static coda_value orthogonal(struct step *s, coda_value x)
{
    static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    coda_graph *g = s->g;
    x = coda_cast(g, x, s->e->dtype);
    for (int i = 0; i < 5; i++) {
        coda_value square = coda_matmul(g, x, x); /* x x^T */
        coda_value fourth = coda_matmul_kn(g, square, square);
        coda_value inner = coda_add(g, coda_scale(g, square, b), coda_scale(g, fourth, c));
        x = coda_add(g, coda_scale(g, x, a), coda_matmul_kn(g, inner, x));
    }
    return coda_cast(g, x, CODA_F32);
}

static coda_value norm_of(struct step *s, coda_value x)
{
    coda_value rows = coda_row_sum(s->g, coda_mul(s->g, x, x));
    return coda_sqrt(s->g, coda_reduce_columns(s->g, "sum", rows));
}

/* A move of the size that AdamW's has, 0.2 in the mean square (Liu et al., arXiv 2502.16982), so that both
 * have one rate. */
static void append_muon(struct step *s, const char *name, int64_t rows, int64_t columns)
{
    coda_graph *g = s->g;
    char group[200];
    const int64_t dims[] = {rows, columns};
    snprintf(group, sizeof group, "muon.%s", name);
    coda_value grad = coda_mul(g, leaf(s, group, "g", CODA_F32, 2, dims), s->clip);
    coda_value p = leaf(s, group, "p", CODA_F32, 2, dims), m = leaf(s, group, "m", CODA_F32, 2, dims);
    coda_value m1 = coda_add(g, coda_mul(g, number(s, MOMENTUM), m), grad);
    coda_value ahead = coda_add(g, grad, coda_mul(g, number(s, MOMENTUM), m1));
    coda_value x = coda_div(g, ahead, coda_add(g, norm_of(s, ahead), number(s, 1e-7)));
    x = rows > columns ? coda_transpose(g, orthogonal(s, coda_transpose(g, x, (int[]){1, 0})), (int[]){1, 0})
                       : orthogonal(s, x);
    coda_value move = coda_mul(g, number(s, 0.2 * sqrt((double)(rows > columns ? rows : columns))), x);
    if (s->e->how.decay > 0) move = coda_add(g, move, coda_mul(g, number(s, s->e->how.decay), p));
    set_weights(s, group, p, move, 2, dims);
    set(s, m, m1);
}

/* Each matrix of a checkpoint by itself, though some are stacked in one weight. */
static void append_muons(struct step *s)
{
    const struct parameters *p = &s->e->params;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; p->all[i].group == GROUP_MUON && k < p->all[i].w->stored_count; k++)
            append_muon(s, p->all[i].w->stored[k], p->all[i].w->rows[k], p->all[i].w->columns);
}

/* By what the gradient is multiplied, and whether the step counts. */
static void append_norm(struct step *s)
{
    coda_graph *g = s->g;
    coda_value grad =
        coda_input(g, "grad", CODA_F32, DIMS(s->e->params.count / PARAMETER_ROW, PARAMETER_ROW));
    coda_value rows = coda_row_sum(g, coda_mul(g, grad, grad));
    coda_value squared = coda_reduce_columns(g, "sum", rows);
    coda_output_add(g, "norm_squared", squared);
    coda_value norm = coda_sqrt(g, squared);
    s->clip = coda_minimum(g, coda_div(g, number(s, s->e->how.clip), norm), number(s, 1));
    s->good = coda_less_equal(g, squared, number(s, 3e38));
}

coda_graph *optimizer_graph(const struct engine *e, struct fault *f)
{
    static const char *const names[] = {"vector", "table", "muon"};
    struct step s = {.g = coda_graph_new(), .e = e};
    const int64_t *begin = e->params.begin;
    if (!s.g) return fault_set(f, "out of memory"), NULL;
    s.rate = coda_scalar(s.g, "rate", CODA_F32);
    s.unbias_m = coda_scalar(s.g, "unbias_m", CODA_F32);
    s.unbias_v = coda_scalar(s.g, "unbias_v", CODA_F32);
    append_norm(&s);
    for (int i = 0; i < GROUP_MUON; i++)
        append_adamw(&s, names[i], (begin[i + 1] - begin[i]) / PARAMETER_ROW, i ? e->how.decay : 0);
    append_muons(&s);
    if (coda_graph_status(s.g) == CODA_OK) return s.g;
    fault_set(f, "%s", coda_error());
    coda_graph_free(s.g);
    return NULL;
}
