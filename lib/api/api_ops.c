/*
 * api_ops.c -- the public operations on elements, rows and matrices: each builder call checks what is its
 * own, then appends. Those of sequences are in api_sequence.c, moves in api_move.c, losses in api_loss.c.
 *
 * Shapes are infer.c's business. A call that is several nodes gives them one origin:
 *     swiglu(x)   = swiglu(gate, up) of two slices of x
 *     row_mean(x) = sum(x / N), where the division comes in two parts: the power of 2 first
 *     bias(x, b)  = add(x, b), b a vector
 *     neg(x)      = -1 x, as a scale, which moves past products; reciprocal(x) = rcp(x)
 */
#include "api.h"
#include "suggest.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Matrix products ---- */

CODA_API coda_value coda_matmul(coda_graph *g, coda_value x, coda_value w)
{
    return build_node(g, "matmul", (struct node){.op = OP_MATMUL}, OPERANDS(x, w));
}

CODA_API coda_value coda_matmul_kn(coda_graph *g, coda_value x, coda_value w)
{
    return build_node(g, "matmul_kn", (struct node){.op = OP_MATMUL, .attr.matmul.kn = 1}, OPERANDS(x, w));
}

CODA_API coda_value coda_scaled_matmul(coda_graph *g, coda_value x, coda_value x_scale, coda_value w,
                                       coda_value w_scale)
{
    return build_node(g, "scaled_matmul", (struct node){.op = OP_SCALED_MATMUL},
                      OPERANDS(x, w, x_scale, w_scale));
}

/* ---- Maps ---- */

static coda_value map(graph *g, const char *name, const coda_value *in, int n, const float *params)
{
    if (!build_ready(g, name)) return CODA_NONE;
    struct node node = {.op = OP_MAP, .prim = graph_find_prim(g, name)};
    if (!node.prim) {
        graph_poison(g, CODA_E_INVALID, "apply: no map is called `%.64s`%s", name,
                     suggest_operation(g, name, SUGGEST_MAPS).text);
        return CODA_NONE;
    }
    if (node.prim->params && !params) {
        graph_poison(g, CODA_E_INVALID, "%s: takes %d params, got NULL", name, node.prim->params);
        return CODA_NONE;
    }
    if (node.prim->params) memcpy(node.attr.map.param, params, sizeof *params * (size_t)node.prim->params);
    return build_node(g, name, node, in, n);
}

#define UNARY(name)                                                                                          \
    CODA_API coda_value coda_##name(coda_graph *g, coda_value x) { return map(g, #name, OPERANDS(x), NULL); }
#define BINARY(name)                                                                                         \
    CODA_API coda_value coda_##name(coda_graph *g, coda_value a, coda_value b)                               \
    {                                                                                                        \
        return map(g, #name, OPERANDS(a, b), NULL);                                                          \
    }

BINARY(add)
BINARY(sub)
BINARY(div)
/* A weight of 8 bits goes by its numbers, in the other's dtype. */
CODA_API coda_value coda_mul(coda_graph *g, coda_value a, coda_value b)
{
    if (!build_ready(g, "mul")) return CODA_NONE;
    int i = build_index(g, "mul", a), k = build_index(g, "mul", b);
    bool scales =
        i >= 0 && k >= 0 && dtype_is_storage(g->node[i].type.dtype) && dtype_is_float(g->node[k].type.dtype);
    if (scales) a = coda_cast(g, a, g->node[k].type.dtype);
    return map(g, "mul", OPERANDS(a, b), NULL);
}

UNARY(relu)
UNARY(relu2)
UNARY(gelu_erf)
UNARY(gelu_tanh)
UNARY(gelu_quick)
UNARY(silu)
UNARY(tanh)
UNARY(sigmoid)
UNARY(softplus)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(abs)
UNARY(sign)
UNARY(floor)
UNARY(ceil)
UNARY(round)
UNARY(logical_not)
BINARY(minimum)
BINARY(maximum)
BINARY(equal)
BINARY(not_equal)
BINARY(less)
BINARY(less_equal)
BINARY(greater)
BINARY(greater_equal)
BINARY(logical_and)
BINARY(logical_or)

CODA_API coda_value coda_neg(coda_graph *g, coda_value x) { return coda_scale(g, x, -1); }

CODA_API coda_value coda_reciprocal(coda_graph *g, coda_value x) { return map(g, "rcp", OPERANDS(x), NULL); }

CODA_API coda_value coda_clip(coda_graph *g, coda_value x, float low, float high)
{
    return map(g, "clip", OPERANDS(x), (float[]){low, high});
}

CODA_API coda_value coda_where(coda_graph *g, coda_value condition, coda_value a, coda_value b)
{
    return map(g, "where", OPERANDS(condition, a, b), NULL);
}

CODA_API coda_value coda_scale(coda_graph *g, coda_value x, float alpha)
{
    return map(g, "scale", OPERANDS(x), &alpha);
}

CODA_API coda_value coda_bias(coda_graph *g, coda_value x, coda_value bias)
{
    const struct type *t = value_type(g, x), *b = value_type(g, bias);
    if (!build_ready(g, "bias")) return CODA_NONE;
    if (!t || !b || (t->rank > 0 && b->rank == 1 && b->dim[0] == type_columns(t)))
        return map(g, "add", OPERANDS(x, bias), NULL);
    fail(CODA_E_INVALID, "bias: x is %s but bias is %s; must be [%s]", dims_text(t).s, dims_text(b).s,
         dim_text(t->dims, type_columns(t)).s);
    return build_refuse(g, NAMES("x", "bias"), OPERANDS(x, bias));
}

CODA_API coda_value coda_apply(coda_graph *g, const char *name, const coda_value *in, int n,
                               const float *params)
{
    if (!build_ready(g, "apply")) return CODA_NONE;
    if (!name || !in || n < 1 || n > PRIM_MAX_INPUTS) {
        graph_poison(g, CODA_E_INVALID, "apply: %.64s: %s is NULL, or n = %d is not 1..%d",
                     name ? name : "(NULL)", name ? "in" : "the name", n, PRIM_MAX_INPUTS);
        return CODA_NONE;
    }
    return map(g, name, in, n, params);
}

/* ---- Gated units ---- */

static int slice_columns(graph *g, int x, int64_t start, int64_t stop, int64_t step, int origin)
{
    int axis = g->node[x].type.rank - 1;
    struct node n = {
        .op = OP_SLICE, .nin = 1, .in = &x, .attr.slice = {axis, start, stop, step}, .origin = origin};
    return graph_append(g, &n);
}

static coda_status check_gated(const graph *g, const char *name, int x, coda_layout layout)
{
    if (x < 0) return fail(CODA_E_INVALID, "%s: x is CODA_NONE", name);
    const struct type *t = &g->node[x].type;
    if (layout != CODA_INTERLEAVED && layout != CODA_STACKED)
        return fail(CODA_E_INVALID, "%s: layout is %d; must be 0 or 1", name, (int)layout);
    if (t->rank < 1 || !dim_is_number(type_columns(t)) || type_columns(t) % 2)
        return fail(CODA_E_INVALID, "%s: x is %s; its columns must be even", name, dims_text(t).s);
    return CODA_OK;
}

static coda_value gated(graph *g, const char *name, coda_value v, coda_layout layout, const float *params)
{
    if (!build_ready(g, name)) return CODA_NONE;
    int x = build_index(g, name, v);
    if (x < -1) return CODA_NONE;
    if (check_gated(g, name, x, layout) != CODA_OK) return build_refuse(g, NAMES("x"), OPERANDS(v));
    int64_t n = type_columns(&g->node[x].type), half = n / 2;
    bool stacked = layout == CODA_STACKED;
    int gate = slice_columns(g, x, 0, stacked ? half : n, stacked ? 1 : 2, -1);
    int origin = gate < 0 ? -1 : g->node[gate].origin;
    int up = slice_columns(g, x, stacked ? half : MIN(n, 1), n, stacked ? 1 : 2, origin);
    struct node unit = {
        .op = OP_MAP, .prim = graph_find_prim(g, name), .nin = 2, .in = (int[]){gate, up}, .origin = origin};
    if (params) memcpy(unit.attr.map.param, params, sizeof *params * (size_t)unit.prim->params);
    return build_value(graph_append(g, &unit));
}

#define GATED(name)                                                                                          \
    CODA_API coda_value coda_##name(coda_graph *g, coda_value x, coda_layout layout)                         \
    {                                                                                                        \
        return gated(g, #name, x, layout, NULL);                                                             \
    }

GATED(swiglu)
GATED(geglu)
GATED(reglu)
GATED(glu)
GATED(geglu_erf)

CODA_API coda_value coda_swiglu_clamped(coda_graph *g, coda_value x, coda_layout layout, float alpha,
                                        float limit)
{
    if (limit >= 0 || !g) return gated(g, "swiglu_clamped", x, layout, (float[]){alpha, limit});
    if (!build_ready(g, "swiglu_clamped")) return CODA_NONE;
    fail(CODA_E_INVALID, "swiglu_clamped: limit is %g; must be >= 0", (double)limit); /* NaN, too */
    return build_refuse(g, NAMES("x"), OPERANDS(x));
}

/* ---- Normalisation ---- */

CODA_API coda_value coda_rms_norm(coda_graph *g, coda_value x, coda_value gain, float eps)
{
    struct node n = {.op = OP_RMS_NORM, .attr.rms_norm = {eps}};
    return build_node(g, "rms_norm", n, OPERANDS(x, gain));
}

CODA_API coda_value coda_layer_norm(coda_graph *g, coda_value x, coda_value gain, coda_value bias, float eps)
{
    struct node n = {.op = OP_LAYER_NORM, .attr.layer_norm = {eps}};
    return build_node(g, "layer_norm", n, OPERANDS(x, gain, bias));
}

CODA_API coda_value coda_softmax(coda_graph *g, coda_value x)
{
    return build_node(g, "softmax", (struct node){.op = OP_SOFTMAX}, OPERANDS(x));
}

CODA_API coda_value coda_log_softmax(coda_graph *g, coda_value x)
{
    return build_node(g, "log_softmax", (struct node){.op = OP_LOG_SOFTMAX}, OPERANDS(x));
}

/* ---- Row statistics ---- */

/* NULL, with the graph poisoned, if there is none. */
static const struct prim *find_reduction(graph *g, const char *what, const char *name)
{
    if (!build_ready(g, what)) return NULL;
    const struct prim *prim = name ? graph_find_prim(g, name) : NULL;
    if (prim && prim->kind == PRIM_REDUCE) return prim;
    if (!name) name = "(NULL)";
    graph_poison(g, CODA_E_INVALID, "%s: no reduction is called `%.64s`%s", what, name,
                 suggest_operation(g, name, SUGGEST_REDUCTIONS).text);
    return NULL;
}

CODA_API coda_value coda_reduce(coda_graph *g, const char *name, coda_value x, coda_value key)
{
    const struct prim *prim = find_reduction(g, "reduce", name);
    if (!prim) return CODA_NONE;
    return build_node(g, name, (struct node){.op = OP_REDUCE, .prim = prim}, (coda_value[]){x, key},
                      key.id || prim->inputs > 1 ? 2 : 1);
}

CODA_API coda_value coda_reduce_columns(coda_graph *g, const char *name, coda_value x)
{
    const struct prim *prim = find_reduction(g, "reduce_columns", name);
    if (!prim) return CODA_NONE;
    if (prim->inputs > 1) {
        graph_poison(g, CODA_E_INVALID, "reduce_columns: %s takes a key, one value for each row", name);
        return CODA_NONE;
    }
    struct node n = {.op = OP_REDUCE, .prim = prim, .attr.reduce.columns = 1};
    return build_node(g, name, n, OPERANDS(x));
}

#define STATISTIC(name, reduction)                                                                           \
    CODA_API coda_value coda_##name(coda_graph *g, coda_value x)                                             \
    {                                                                                                        \
        return coda_reduce(g, reduction, x, CODA_NONE);                                                      \
    }

STATISTIC(row_sum, "sum")
STATISTIC(row_max, "max")
STATISTIC(log_sum_exp, "log_sum_exp")

/* One more node of the operation that x ends. */
static coda_value then(graph *g, const char *prim, coda_value x, float alpha)
{
    int in = (int)x.id - 1;
    if (in < 0) return CODA_NONE;
    struct node n = {.op = OP_REDUCE, .prim = graph_find_prim(g, prim), .nin = 1, .in = &in};
    if (n.prim->kind == PRIM_MAP) n.op = OP_MAP;
    if (n.op == OP_MAP) n.attr.map.param[0] = alpha;
    n.origin = g->node[in].origin;
    return build_value(graph_append(g, &n));
}

/* The sum of 2^-k x, times 2^k / N: the sum of x itself may overflow where the mean does not. In f32: a
 * 16-bit 2^-k x could become 0. */
CODA_API coda_value coda_row_mean(coda_graph *g, coda_value x)
{
    const struct type *t = value_type(g, x);
    int k = 0;
    if (!t || t->rank < 1 || !dtype_is_float(t->dtype)) return coda_row_sum(g, x); /* says why not */
    int64_t columns = type_columns(t);
    while ((int64_t)1 << k < columns) k++;
    float part = ldexpf(1, -k), rest = (float)(ldexp(1, k) / (double)columns);
    if (t->dtype == CODA_F32) x = map(g, "scale", OPERANDS(x), &part);
    else x = then(g, "scale", coda_cast(g, x, CODA_F32), part);
    return then(g, "scale", then(g, "sum", x, 0), rest);
}

/* Its values and its indices are two nodes of one origin. */
CODA_API void coda_top_k(coda_graph *g, coda_value x, int64_t k, coda_value *values, coda_value *indices)
{
    coda_value *out[] = {values, indices};
    int origin = -1, in = -1;
    for (int i = 0; i < ARRAY_SIZE(out); i++)
        if (out[i]) *out[i] = CODA_NONE;
    if (!build_ready(g, "top_k")) return;
    if (!values && !indices) graph_poison(g, CODA_E_INVALID, "top_k: values and indices are both NULL");
    else in = build_index(g, "top_k", x);
    for (int i = 0; i < ARRAY_SIZE(out) && in >= -1 && !g->status; i++) {
        struct node n = {.op = OP_TOP_K, .nin = 1, .in = &in, .attr.top_k = {k, i}, .origin = origin};
        if (!out[i]) continue;
        *out[i] = build_value(graph_append(g, &n));
        if (out[i]->id) origin = g->node[out[i]->id - 1].origin;
    }
}
