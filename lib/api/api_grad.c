/* api_grad.c -- the calls of coda_grad.h that differentiate: every argument is checked here. */
#include "api.h"
#include "grad.h"
#include "pipeline.h"

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
    format_print(line, sizeof line, format, args);
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

/* ---- Forward and backward ---- */

static coda_status check_split(const coda_graph *joint, int outputs, const coda_split_options *o)
{
    if (joint->outputs < 2 || outputs < 1 || outputs >= joint->outputs)
        return fail(CODA_E_INVALID, "split: forward is to have %d of %d outputs; must be 1..%d", outputs,
                    joint->outputs, joint->outputs - 1);
    if ((int)o->keep < 0 || o->keep > CODA_KEEP_LEAST)
        return fail(CODA_E_INVALID, "split: keep is %d; must be 0..%d", (int)o->keep, CODA_KEEP_LEAST);
    if (o->also_count < 0 || (o->also_count && !o->also))
        return fail(CODA_E_INVALID, "split: also is %s, of %d values", o->also ? "there" : "NULL",
                    o->also_count);
    if (o->consume != 0 && o->consume != 1)
        return fail(CODA_E_INVALID, "split: consume is %d; must be 0..1", o->consume);
    for (int v = 0; v < joint->nodes; v++)
        if (op_is_version(joint->node[v].op))
            return fail(CODA_E_UNSUPPORTED, "split: %s %s writes to state %s, and a split graph has none",
                        node_text(&joint->node[v]), value_text(joint, v).s,
                        value_text(joint, state_leaf(joint, v)).s);
    return CODA_OK;
}

/* Their indices, which the caller frees; NULL with the message set. */
static int *read_also(const coda_graph *joint, const coda_split_options *o)
{
    int *also = calloc((size_t)o->also_count + 1, sizeof *also);
    if (!also) fail(CODA_E_MEMORY, "split: out of memory for %d values", o->also_count);
    for (int i = 0; also && i < o->also_count; i++) {
        also[i] = (int)o->also[i].id - 1;
        if (o->also[i].id && o->also[i].id <= (uint32_t)joint->nodes) continue;
        fail(CODA_E_INVALID, "split: also[%d] is %u, a value of another graph; this one has %d", i,
             o->also[i].id, joint->nodes);
        free(also);
        also = NULL;
    }
    return also;
}

CODA_API coda_status coda_split(const coda_graph *joint, int outputs, const coda_split_options *opt,
                                coda_graph **forward, coda_graph **backward)
{
    coda_split_options o;
    if (forward) *forward = NULL;
    if (backward) *backward = NULL;
    if (!joint || !forward || !backward)
        return fail(CODA_E_INVALID, "split: %s is NULL", !joint ? "joint" : forward ? "backward" : "forward");
    coda_status s = SIZED_READ("split", coda_split_options, &o, opt);
    if (s == CODA_OK) s = graph_mistake(joint);
    if (s == CODA_OK) s = check_split(joint, outputs, &o);
    int *also = s == CODA_OK ? read_also(joint, &o) : NULL;
    if (s != CODA_OK) return s;
    if (!also) return fail_status();
    graph *ready = split_ready(joint, also, o.also_count); /* or it is cut as it is: symbols may hinder */
    bool cut = ready || fail_status() != CODA_E_MEMORY;
    s = CODA_E_MEMORY;
    const struct split_policy policy = {o.keep, also, o.also_count, o.consume};
    if (cut) s = graph_split(ready ? ready : joint, outputs, &policy, forward, backward);
    graph_free(ready);
    free(also);
    return s;
}
