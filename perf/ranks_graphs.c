/* ranks_graphs.c -- see ranks_graphs.h. */
#include "ranks_graphs.h"

#include <stdio.h>

enum { PIECES = 2, WEIGHTS = 4, MOST_STEPS = 16 };

static coda_value tensor(coda_graph *g, const char *name, int number, int64_t rows, int64_t columns)
{
    char full[40];
    snprintf(full, sizeof full, "%s.%d", name, number);
    return coda_weight(g, full, CODA_BF16, columns ? 2 : 1, (int64_t[]){rows, columns});
}

static coda_value sum(coda_graph *g, const struct work *w, coda_value z, coda_value group)
{
    return w->exchanges ? coda_all_reduce(g, z, group) : z;
}

static coda_value input(coda_graph *g, const struct work *w)
{
    return coda_input(g, "x", CODA_BF16, 2, (int64_t[]){w->m, w->d});
}

void build_exchanges(coda_graph *g, const struct work *w, coda_value group)
{
    coda_value x = input(g, w);
    for (int i = 0; i < w->steps; i++) {
        x = sum(g, w, x, group);
        if (w->rows)
            x = coda_rms_norm(g, coda_add(g, x, tensor(g, "residual", i, w->m, w->d)),
                              tensor(g, "gain", i, w->d, 0), 1e-5f);
    }
    coda_output(g, "y", x);
}

/* ---- Layers ---- */

struct layer {
    coda_value gain, qkv, o, gain_mlp, gate_up, down;
};

static struct layer weights(coda_graph *g, const struct work *w, int ranks, int number)
{
    int64_t d = w->d, part = d / ranks, f = w->f / ranks;
    return (struct layer){tensor(g, "gain", number, d, 0),        tensor(g, "qkv", number, 3 * part, d),
                          tensor(g, "o", number, d, part),        tensor(g, "gain_mlp", number, d, 0),
                          tensor(g, "gate_up", number, 2 * f, d), tensor(g, "down", number, d, f)};
}

/* A part of the sum over ranks that is added to the residual. */
static coda_value attention(coda_graph *g, const struct layer *l, coda_value x, int64_t part)
{
    coda_value p[3], qkv = coda_matmul(g, coda_rms_norm(g, x, l->gain, 1e-5f), l->qkv);
    for (int i = 0; i < 3; i++) p[i] = coda_slice(g, qkv, 1, i * part, (i + 1) * part, 1);
    return coda_matmul(g, coda_add(g, coda_mul(g, p[0], p[1]), p[2]), l->o);
}

static coda_value mlp(coda_graph *g, const struct layer *l, coda_value x)
{
    coda_value n = coda_rms_norm(g, x, l->gain_mlp, 1e-5f);
    return coda_matmul(g, coda_swiglu(g, coda_matmul(g, n, l->gate_up), CODA_STACKED), l->down);
}

/* Pieces of rows go through the layers side by side. */
static void build_in(coda_graph *g, const struct work *w, coda_value group, int pieces)
{
    coda_value x = input(g, w), piece[PIECES], z[PIECES];
    int64_t rows = w->m / pieces;
    for (int k = 0; k < pieces; k++)
        piece[k] = pieces == 1 ? x : coda_slice(g, x, 0, k * rows, (k + 1) * rows, 1);
    for (int i = 0; i < w->steps; i++) {
        struct layer l = weights(g, w, w->ranks, i);
        for (int k = 0; k < pieces; k++) z[k] = sum(g, w, attention(g, &l, piece[k], w->d / w->ranks), group);
        for (int k = 0; k < pieces; k++) {
            piece[k] = coda_add(g, z[k], piece[k]);
            z[k] = sum(g, w, mlp(g, &l, piece[k]), group);
        }
        for (int k = 0; k < pieces; k++) piece[k] = coda_add(g, z[k], piece[k]);
    }
    coda_output(g, "y", pieces == 1 ? piece[0] : coda_concat(g, 0, piece, pieces));
}

void build_layers(coda_graph *g, const struct work *w, coda_value group) { build_in(g, w, group, 1); }
void build_pieces(coda_graph *g, const struct work *w, coda_value group) { build_in(g, w, group, PIECES); }

/* ---- A step ---- */

/* Gradients of the products' weights, the last layer's first, as backward makes them. */
void build_step(coda_graph *g, const struct work *w, coda_value group)
{
    coda_value x = input(g, w), of[WEIGHTS * MOST_STEPS], gradient[WEIGHTS * MOST_STEPS];
    coda_value dy = coda_input(g, "dy", CODA_BF16, 2, (int64_t[]){w->m, w->d});
    int n = WEIGHTS * w->steps;
    for (int i = 0; i < w->steps; i++) {
        struct layer l = weights(g, w, 1, i);
        const coda_value made[WEIGHTS] = {l.down, l.gate_up, l.o, l.qkv};
        for (int k = 0; k < WEIGHTS; k++) of[n - WEIGHTS * (i + 1) + k] = made[k];
        x = coda_add(g, attention(g, &l, x, w->d), x);
        x = coda_add(g, mlp(g, &l, x), x);
    }
    coda_grad(g, &x, &dy, 1, of, n, gradient, NULL);
    for (int i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "d.%d", i);
        coda_value rounded = w->rounds ? coda_cast(g, gradient[i], CODA_BF16) : gradient[i];
        coda_output(g, name, sum(g, w, rounded, group));
    }
}

coda_plan *work_compile(const struct work *w)
{
    coda_graph *g = coda_graph_new();
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    if (w->build == build_exchanges && !w->rows) opt.flags = CODA_NO_FUSION; /* or sums of sums become one */
    if (w->overlaps) opt.flags |= CODA_OVERLAP | (w->steady ? CODA_STEADY : 0);
    w->build(g, w, w->exchanges ? coda_group_input(g, "ranks", w->ranks) : CODA_NONE);
    if (coda_compile(&p, g, &opt)) p = NULL;
    coda_graph_free(g);
    return p;
}
