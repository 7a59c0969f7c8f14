/* util_grad.c -- gradients of a graph beside difference quotients of it. */
#include "util_grad.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_APPENDED = 64 }; /* outputs, or leaves */

static coda_value value_of(int index) { return (coda_value){(uint32_t)(index + 1)}; }

/* ---- The loss ---- */

/* The sum of y's elements, each times a number of its own, as [1]. */
static coda_value weigh(graph *g, int y, int output)
{
    char name[32];
    struct type t = g->node[y].type;
    int64_t line[] = {1, type_elements(&t)};
    snprintf(name, sizeof name, "weight_of_output_%d", output);
    coda_value r = coda_input(g, name, CODA_F32, 2, line), v = value_of(y);
    if (t.dtype != CODA_F32) v = coda_cast(g, v, CODA_F32);
    v = coda_mul(g, coda_reshape(g, v, 2, line), r);
    return coda_reshape(g, coda_row_sum(g, v), 1, (int64_t[]){1});
}

graph *grad_loss(const char *text)
{
    graph *from = graph_parse(text), *g = from ? graph_new() : NULL;
    int *map = g ? calloc((size_t)from->nodes + 1, sizeof *map) : NULL;
    coda_value loss = CODA_NONE;
    for (int v = 0; map && v < from->nodes; v++) map[v] = graph_copy_node(g, from, v, map);
    for (int i = 0; map && i < from->outputs && g->status == CODA_OK; i++) {
        coda_value one = weigh(g, map[from->output[i].value], i);
        loss = loss.id ? coda_add(g, loss, one) : one;
    }
    if (map) coda_output(g, "loss", loss);
    free(map);
    graph_free(from);
    if (!g || graph_mistake(g) == CODA_OK) return g;
    graph_free(g);
    return NULL;
}

/* ---- Its gradient ---- */

/* g with the gradients by its fp32 leaves appended and put out, in their order; NULL with the message set. */
static graph *with_gradients(const graph *g, coda_value *dx, int *count)
{
    graph *out = graph_copy(g, "grad");
    coda_value *x = calloc((size_t)g->leaves + 1, sizeof *x);
    coda_value loss = value_of(g->output[0].value);
    *count = 0;
    for (int i = 0; out && x && i < g->leaves; i++)
        if (g->node[g->leaf[i]].type.dtype == CODA_F32) x[(*count)++] = value_of(g->leaf[i]);
    if (out && x) coda_grad(out, &loss, NULL, 1, x, *count, dx, NULL);
    for (int i = 0; out && x && i < *count; i++) {
        char name[32];
        snprintf(name, sizeof name, "gradient_%d", i);
        if (dx[i].id) coda_output(out, name, dx[i]);
    }
    free(x);
    if (!out || graph_mistake(out) == CODA_OK) return out;
    graph_free(out);
    return NULL;
}

/* What the evaluator finds of each gradient, times the direction of its leaf. */
static void project(const graph *g, const coda_value *dx, double *const *gradient, double *const *direction,
                    struct grad_check *out)
{
    int k = 0, found = 0;
    for (int i = 0; i < g->leaves; i++) {
        const struct type *t = &g->node[g->leaf[i]].type;
        if (t->dtype != CODA_F32) continue;
        if (!dx[k++].id) continue;
        const double *d = gradient[found++];
        for (int64_t e = 0; e < type_elements(t); e++) {
            out->gradient += d[e] * direction[i][e];
            out->scale += fabs(d[e] * direction[i][e]);
        }
    }
    out->leaves = found;
}

/* The arguments of `with`: g's, and poisoned room for gradients. */
static void **gradient_args(const graph *g, const graph *with, void *const *leaf)
{
    void **args = calloc((size_t)(with->leaves + with->outputs) + 1, sizeof *args);
    for (int i = 0; i < g->leaves + g->outputs; i++) args[i] = leaf[i];
    for (int i = g->outputs; i < with->outputs; i++) {
        int64_t n = type_elements(&with->node[with->output[i].value].type);
        double *room = malloc(sizeof *room * (size_t)(n + 1));
        for (int64_t e = 0; e < n; e++) room[e] = NAN;
        args[with->leaves + i] = room;
    }
    return args;
}

bool grad_compare(const graph *g, uint64_t seed, struct grad_check *out)
{
    struct difference d;
    coda_value *dx = calloc((size_t)g->leaves + 1, sizeof *dx);
    int count;
    graph *with = with_gradients(g, dx, &count);
    void **leaf = differences_args(g, seed);
    double **direction = differences_direction(g, seed);
    *out = (struct grad_check){0};
    bool good = with && difference_along(g, leaf, direction, &d);
    void **args = good ? gradient_args(g, with, leaf) : NULL;
    good = good && coda_evaluate(with, args) == CODA_OK;
    if (good) {
        project(g, dx, (double **)args + with->leaves + g->outputs, direction, out);
        out->difference = d.value, out->error = d.error, out->smooth = d.smooth;
    }
    for (int i = g->outputs; args && i < with->outputs; i++) free(args[with->leaves + i]);
    free(args);
    differences_direction_free(g, direction);
    random_args_free(g, leaf);
    graph_free(with);
    free(dx);
    return good;
}

/* ---- All gradients ---- */

static int append_cotangents(graph *g, coda_value *y, coda_value *dy)
{
    int n = 0;
    for (int i = 0; i < g->outputs && n < MOST_APPENDED; i++) {
        struct type t = g->node[g->output[i].value].type;
        char name[300];
        if (!dtype_is_float(t.dtype) || g->output[i].add) continue;
        snprintf(name, sizeof name, "cot.%s", g->output[i].name);
        y[n] = (coda_value){(uint32_t)g->output[i].value + 1};
        dy[n++] = coda_input(g, name, t.dtype, t.rank, t.dim);
    }
    return n;
}

bool grad_of_outputs(graph *g)
{
    coda_value y[MOST_APPENDED], dy[MOST_APPENDED], x[MOST_APPENDED], dx[MOST_APPENDED];
    int nx = 0;
    for (int i = 0; i < g->leaves && nx < MOST_APPENDED; i++)
        if (dtype_is_float(g->node[g->leaf[i]].type.dtype)) x[nx++] = (coda_value){(uint32_t)g->leaf[i] + 1};
    int ny = append_cotangents(g, y, dy);
    if (!nx || !ny) return false;
    coda_grad(g, y, dy, ny, x, nx, dx, NULL);
    for (int i = 0; i < nx && g->status == CODA_OK; i++) {
        char name[300];
        snprintf(name, sizeof name, "grad.%s", g->node[x[i].id - 1].name);
        if (dx[i].id) coda_output(g, name, dx[i]);
    }
    return g->status == CODA_OK;
}
