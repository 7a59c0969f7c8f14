/* api_recurrent.c -- the calls of coda_recurrent.h: what carries a state along a sequence. */
#include "api.h"
#include "sized.h"

/* The second result of a call is another node of the same origin. */
static coda_value also(graph *g, coda_value first)
{
    struct node n = g->node[first.id - 1];
    node_set_result(&n, 1);
    return build_value(graph_append(g, &n));
}

CODA_API coda_value coda_conv1d(coda_graph *g, coda_value x, coda_value w, coda_value bias, coda_value before,
                                coda_value starts, coda_value *after)
{
    if (after) *after = CODA_NONE;
    coda_value y =
        build_node(g, "conv1d", (struct node){.op = OP_CONV1D}, OPERANDS(x, w, bias, before, starts));
    if (!y.id || !after) return y;
    *after = also(g, y);
    return after->id ? y : CODA_NONE;
}

CODA_API coda_value coda_scan(coda_graph *g, coda_value x, coda_value dt, coda_value a, coda_value b,
                              coda_value c, coda_value state, coda_value starts, const coda_scan_options *opt,
                              coda_value *after)
{
    coda_scan_options o;
    if (after) *after = CODA_NONE;
    if (!BUILD_OPTIONS(g, "scan", coda_scan_options, &o, opt)) return CODA_NONE;
    struct node n = {.op = OP_SCAN, .attr.scan = {o.groups, o.softplus != 0}};
    coda_value y =
        build_node(g, "scan", n, OPERANDS(x, dt, a, b, c, state, starts, o.dt_bias, o.skip, o.gate));
    if (!y.id || !after) return y;
    *after = also(g, y);
    return after->id ? y : CODA_NONE;
}

CODA_API coda_value coda_delta(coda_graph *g, coda_value q, coda_value k, coda_value v, coda_value decay,
                               coda_value beta, coda_value before, coda_value starts,
                               const coda_delta_options *opt, coda_value *after)
{
    coda_delta_options o;
    if (after) *after = CODA_NONE;
    if (!BUILD_OPTIONS(g, "delta", coda_delta_options, &o, opt)) return CODA_NONE;
    struct node n = {.op = OP_DELTA, .attr.delta = {o.scale, o.heads, o.key_heads, o.norm != 0, o.eps, 0}};
    coda_value y = build_node(g, "delta", n, OPERANDS(q, k, v, decay, beta, before, starts));
    if (!y.id || !after) return y;
    *after = also(g, y);
    return after->id ? y : CODA_NONE;
}
