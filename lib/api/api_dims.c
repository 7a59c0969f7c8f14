/* api_dims.c -- symbols, extents that are computed with them, and graphs that get numbers instead. */
#include "api.h"

#include <string.h>

CODA_API coda_dim coda_symbol(coda_graph *g, const char *name, int64_t least, int64_t most, int64_t multiple)
{
    return build_ready(g, "symbol") ? graph_symbol(g, name, least, most, multiple) : DIM_NONE;
}

typedef int64_t arithmetic(struct dims *t, int64_t a, int64_t b);

static coda_dim compute(coda_graph *g, const char *call, coda_dim a, coda_dim b, arithmetic *of)
{
    if (!build_ready(g, call)) return DIM_NONE;
    coda_dim bad = dims_has(g->dims, a) ? b : a, d = DIM_NONE;
    if (!dims_has(g->dims, bad))
        graph_poison(g, CODA_E_INVALID, "%s: %lld is neither a number nor a dimension of this graph", call,
                     (long long)bad);
    else if ((d = of(g->dims, a, b)) == DIM_NONE) graph_poison(g, fail_status(), "%s", fail_message());
    return d;
}

CODA_API coda_dim coda_dim_mul(coda_graph *g, coda_dim a, coda_dim b)
{
    return compute(g, "dim_mul", a, b, dims_multiply);
}

CODA_API coda_dim coda_dim_add(coda_graph *g, coda_dim a, coda_dim b)
{
    return compute(g, "dim_add", a, b, dims_add);
}

CODA_API coda_dim coda_dim_sub(coda_graph *g, coda_dim a, coda_dim b)
{
    return compute(g, "dim_sub", a, b, dims_subtract);
}

CODA_API int64_t coda_dim_print(const coda_graph *g, coda_dim d, char *buf, size_t size)
{
    if (!g || (!buf && size)) return fail(CODA_E_INVALID, "dim_print: %s is NULL", g ? "buf" : "the graph");
    if (!dims_has(g->dims, d))
        return fail(CODA_E_INVALID, "dim_print: %lld is neither a number nor a dimension of this graph",
                    (long long)d);
    struct text t = {0};
    dims_print(g->dims, d, &t);
    int64_t length = text_emit(&t, buf, size);
    text_free(&t);
    return length;
}

/* ---- Symbols by number ---- */

CODA_API int coda_graph_symbols(const coda_graph *g) { return g ? g->dims->symbols : 0; }

CODA_API coda_status coda_graph_symbol(const coda_graph *g, int index, coda_symbol_info *out)
{
    if (!g || !out) return fail(CODA_E_INVALID, "graph_symbol: %s is NULL", g ? "out" : "the graph");
    return symbol_info("graph_symbol", g->dims, index, out);
}

/* ---- Numbers instead ---- */

CODA_API coda_status coda_graph_bind(coda_graph **out, const coda_graph *g, const int64_t *dims,
                                     int dim_count)
{
    if (!out) return fail(CODA_E_INVALID, "bind: out is NULL");
    *out = NULL;
    coda_status s = coda_graph_status(g);
    if (s == CODA_OK) s = symbols_check("bind", "graph", "dim_count", g->dims, dims, dim_count);
    if (s != CODA_OK) return s;
    *out = graph_bind(g, "bind", dims);
    return *out ? CODA_OK : fail_status();
}
