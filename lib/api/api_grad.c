/* api_grad.c -- the calls of coda_grad.h that differentiate: every argument is checked here. */
#include "api.h"
#include "grad.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A call: its values as nodes, in one block. */
struct call {
    graph *g;
    int ny, nx;
    int *y, *dy, *x, *dx;
};

/* "y[2]", for messages. */
struct name {
    char s[32];
};
static struct name name_of(const char *array, int i)
{
    struct name n;
    snprintf(n.s, sizeof n.s, "%s[%d]", array, i);
    return n;
}

static bool refuse(graph *g, coda_status status, const char *format, ...) PRINTF(3, 4);
static bool refuse(graph *g, coda_status status, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    graph_poison(g, status, "grad: %s", line);
    return false;
}

static bool read_y(struct call *c, int i, coda_value y)
{
    c->y[i] = build_index(c->g, "grad", y);
    if (c->y[i] < -1) return false;
    if (c->y[i] < 0) return refuse(c->g, CODA_E_INVALID, "%s is CODA_NONE", name_of("y", i).s);
    const struct type *t = &c->g->node[c->y[i]].type;
    if (dtype_is_float(t->dtype)) return true;
    return refuse(c->g, CODA_E_INVALID, "%s = %s is %s; must be f32, bf16 or f16", name_of("y", i).s,
                  value_text(c->g, c->y[i]).s, type_text(t).s);
}

static bool read_dy(struct call *c, int i, coda_value dy)
{
    c->dy[i] = build_index(c->g, "grad", dy);
    if (c->dy[i] < -1) return false;
    const struct type *t = &c->g->node[c->y[i]].type;
    if (c->dy[i] < 0) {
        if (type_count(t) == 1) return true;
        return refuse(c->g, CODA_E_INVALID, "%s = %s is %s, and %s is CODA_NONE, which is for one element",
                      name_of("y", i).s, value_text(c->g, c->y[i]).s, type_text(t).s, name_of("dy", i).s);
    }
    const struct type *d = &c->g->node[c->dy[i]].type;
    if (type_agrees(t, d)) return true;
    return refuse(c->g, CODA_E_INVALID, "%s = %s is %s but %s = %s is %s; must be the same",
                  name_of("y", i).s, value_text(c->g, c->y[i]).s, type_text(t).s, name_of("dy", i).s,
                  value_text(c->g, c->dy[i]).s, type_text(d).s);
}

static bool read_x(struct call *c, int i, coda_value x)
{
    c->x[i] = build_index(c->g, "grad", x);
    if (c->x[i] >= 0) return true;
    return c->x[i] < -1 ? false : refuse(c->g, CODA_E_INVALID, "%s is CODA_NONE", name_of("x", i).s);
}

static bool read_options(graph *g, coda_grad_options *own, const coda_grad_options *given)
{
    coda_status s = SIZED_READ("grad", coda_grad_options, own, given);
    if (s != CODA_OK) return graph_poison(g, s, "%s", fail_message()), false;
    if (!own->weights) own->weights = CODA_F32;
    if (dtype_is_float(own->weights)) return true;
    return refuse(g, CODA_E_INVALID, "weights is dtype %d; must be f32, bf16 or f16", (int)own->weights);
}

static bool read_call(struct call *c, const coda_value *y, const coda_value *dy, const coda_value *x)
{
    int most = 1 << 20;
    if (c->ny < 1 || c->ny > most || c->nx < 0 || c->nx > most)
        return refuse(c->g, CODA_E_INVALID, "there are %d y and %d x; must be 1..%d and 0..%d", c->ny, c->nx,
                      most, most);
    c->y = calloc((size_t)(2 * c->ny + 2 * c->nx), sizeof *c->y);
    if (!c->y) return refuse(c->g, CODA_E_MEMORY, "out of memory for %d values", 2 * (c->ny + c->nx));
    c->dy = c->y + c->ny;
    c->x = c->dy + c->ny;
    c->dx = c->x + c->nx;
    for (int i = 0; i < c->ny; i++)
        if (!read_y(c, i, y[i]) || !read_dy(c, i, dy ? dy[i] : CODA_NONE)) return false;
    for (int i = 0; i < c->nx; i++)
        if (!read_x(c, i, x[i])) return false;
    return true;
}

CODA_API void coda_grad(coda_graph *g, const coda_value *y, const coda_value *dy, int ny, const coda_value *x,
                        int nx, coda_value *dx, const coda_grad_options *opt)
{
    struct call c = {.g = g, .ny = ny, .nx = nx};
    coda_grad_options o;
    for (int i = 0; dx && i < nx; i++) dx[i] = CODA_NONE;
    if (!build_ready(g, "grad")) return;
    if (!y || ((!x || !dx) && nx)) {
        refuse(g, CODA_E_INVALID, "%s is NULL", !y ? "y" : !x ? "x" : "dx");
        return;
    }
    if (read_options(g, &o, opt) && read_call(&c, y, dy, x) &&
        graph_grad(g, c.y, c.dy, ny, c.x, nx, c.dx, o.weights))
        for (int i = 0; i < nx; i++) dx[i] = build_value(c.dx[i]);
    free(c.y);
}
