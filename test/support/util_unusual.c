/* util_unusual.c -- graphs at and beyond what one kernel has room for. */
#include "util_unusual.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 3, COLUMNS = 8 };

static coda_value input(graph *g, const char *name, int i, int64_t rows, int64_t columns)
{
    char numbered[320];
    snprintf(numbered, sizeof numbered, "%.300s%d", name, i);
    return coda_input(g, numbered, CODA_F32, 2, (int64_t[]){rows, columns});
}

static void output(graph *g, int i, coda_value v)
{
    char name[32];
    snprintf(name, sizeof name, "y%d", i);
    coda_output(g, name, v);
}

static coda_value product(graph *g, coda_value x)
{
    char name[32];
    snprintf(name, sizeof name, "w%d", g->leaves);
    return coda_matmul(g, x, coda_weight(g, name, CODA_F32, 2, (int64_t[]){COLUMNS, COLUMNS}));
}

/* ---- More of one thing ---- */

static graph *outputs_of_map(int n)
{
    graph *g = coda_graph_new();
    coda_value y = coda_relu(g, input(g, "x", 0, ROWS, COLUMNS));
    for (int i = 0; i < n; i++) output(g, i, y);
    return g;
}

static graph *outputs_of_product(int n)
{
    graph *g = coda_graph_new();
    coda_value y = coda_relu(g, product(g, input(g, "x", 0, ROWS, COLUMNS)));
    for (int i = 0; i < n; i++) output(g, i, y);
    return g;
}

static graph *outputs_of_leaf(int n)
{
    graph *g = coda_graph_new();
    coda_value x = input(g, "x", 0, ROWS, COLUMNS);
    for (int i = 0; i < n; i++) output(g, i, x);
    return g;
}

static graph *outputs_of_concat(int n)
{
    graph *g = coda_graph_new();
    coda_value x = input(g, "x", 0, ROWS, COLUMNS),
               y = coda_concat(g, 0, (coda_value[]){x, coda_relu(g, x)}, 2);
    for (int i = 0; i < n; i++) output(g, i, y);
    return g;
}

static graph *outputs_of_statistic(int n)
{
    graph *g = coda_graph_new();
    coda_value s = coda_row_sum(g, product(g, input(g, "x", 0, ROWS, COLUMNS)));
    for (int i = 0; i < n; i++) output(g, i, s);
    return g;
}

/* Every value of a chain is an output. */
static graph *stored_chain(int n)
{
    graph *g = coda_graph_new();
    coda_value y = product(g, input(g, "x", 0, ROWS, COLUMNS));
    for (int i = 0; i < n; i++) {
        y = i % 2 ? coda_tanh(g, y) : coda_scale(g, y, 1.5f);
        output(g, 2 * i, y);
        output(g, 2 * i + 1, y);
    }
    return g;
}

static graph *parts(int n)
{
    graph *g = coda_graph_new();
    coda_value x = input(g, "x", 0, ROWS, COLUMNS), *in = calloc((size_t)n, sizeof *in);
    for (int i = 0; i < n; i++) in[i] = coda_scale(g, x, (float)(i % 7 + 2));
    output(g, 0, coda_concat(g, 0, in, n));
    free(in);
    return g;
}

static graph *equal_parts(int n)
{
    graph *g = coda_graph_new();
    coda_value x = product(g, input(g, "x", 0, ROWS, COLUMNS)), *in = calloc((size_t)n, sizeof *in);
    for (int i = 0; i < n; i++) in[i] = x;
    output(g, 0, coda_concat(g, 1, in, n));
    free(in);
    return g;
}

static graph *part_of_many(int n)
{
    graph *g = coda_graph_new();
    coda_value x = input(g, "x", 0, ROWS, COLUMNS), y = coda_tanh(g, x);
    for (int i = 0; i < n; i++)
        output(g, i, coda_concat(g, 0, (coda_value[]){coda_scale(g, x, (float)i + 2), y}, 2));
    return g;
}

static graph *sum_of_inputs(int n)
{
    graph *g = coda_graph_new();
    coda_value y = product(g, input(g, "x", 0, ROWS, COLUMNS));
    for (int i = 1; i < n; i++) y = coda_add(g, y, input(g, "x", i, ROWS, COLUMNS));
    output(g, 0, y);
    return g;
}

static graph *sum_of_rows(int n)
{
    graph *g = coda_graph_new();
    coda_value y = input(g, "x", 0, ROWS, COLUMNS);
    for (int i = 1; i < n; i++)
        y = coda_mul(g, y, coda_tanh(g, input(g, "r", i, i % 2 ? ROWS : 1, i % 2 ? 1 : COLUMNS)));
    output(g, 0, coda_softmax(g, y));
    return g;
}

static graph *statistics(graph *g, coda_value x, int n)
{
    coda_value y = x;
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d", i);
        coda_value key = coda_input(g, name, CODA_I32, 1, (int64_t[]){ROWS}), logits = x;
        coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
        o.reduction = CODA_REDUCE_NONE;
        y = coda_cross_entropy(g, logits, key, &o);
        output(g, i, y);
    }
    return g;
}

static graph *statistics_of_leaf(int n)
{
    graph *g = coda_graph_new();
    return statistics(g, input(g, "x", 0, ROWS, COLUMNS), n);
}

static graph *statistics_of_product(int n)
{
    graph *g = coda_graph_new();
    return statistics(g, product(g, input(g, "x", 0, ROWS, COLUMNS)), n);
}

/* Maps of a statistic that is in pieces: each reader computes them again. */
static graph *maps_of_statistic(int n)
{
    graph *g = coda_graph_new();
    coda_value x = product(g, input(g, "x", 0, ROWS, COLUMNS)), s = coda_row_sum(g, x);
    for (int i = 0; i < n; i++) s = i % 2 ? coda_tanh(g, s) : coda_add(g, s, s);
    output(g, 0, coda_mul(g, product(g, x), s));
    return g;
}

static graph *vectors_on_statistic(int n)
{
    graph *g = coda_graph_new();
    coda_value x = product(g, input(g, "x", 0, ROWS, COLUMNS)), s = coda_row_sum(g, x);
    for (int i = 0; i < n; i++) s = coda_add(g, s, input(g, "r", i, ROWS, 1));
    output(g, 0, coda_mul(g, product(g, x), s));
    output(g, 1, coda_add(g, x, s));
    return g;
}

static graph *leaves(int n)
{
    graph *g = coda_graph_new();
    for (int i = 0; i < n; i++) output(g, i, coda_tanh(g, input(g, "x", i, 1, 2)));
    return g;
}

static graph *long_names(int n)
{
    char name[300];
    graph *g = coda_graph_new();
    snprintf(name, sizeof name, "%0*d", n - 1, 0);
    name[0] = 'a';
    output(g, 0, coda_rms_norm(g, coda_relu(g, product(g, input(g, name, 1, ROWS, COLUMNS))), CODA_NONE, 0));
    return g;
}

/* ---- Depth ---- */

static graph *deep_maps(int n)
{
    graph *g = coda_graph_new();
    coda_value x = input(g, "x", 0, 1, 2), y = x;
    for (int i = 0; i < n; i++) y = i % 2 ? coda_relu(g, y) : coda_sub(g, x, y);
    output(g, 0, y);
    return g;
}

static graph *deep_gains(int n)
{
    graph *g = coda_graph_new();
    coda_value x = input(g, "x", 0, ROWS, COLUMNS), y = x;
    coda_value gain = coda_weight(g, "g", CODA_F32, 1, (int64_t[]){COLUMNS});
    for (int i = 0; i < n; i++) y = coda_mul(g, y, i % 2 ? coda_sigmoid(g, gain) : gain);
    output(g, 0, product(g, coda_tanh(g, y)));
    return g;
}

static graph *deep_views(int n)
{
    graph *g = coda_graph_new();
    coda_value y = input(g, "x", 0, 2, 4);
    for (int i = 0; i < n; i++)
        y = i % 3 == 0   ? coda_transpose(g, y, (int[]){1, 0})
            : i % 3 == 1 ? coda_reshape(g, y, 2, (int64_t[]){2, 4})
                         : coda_slice(g, y, 0, 0, 2, 1);
    output(g, 0, coda_tanh(g, y));
    return g;
}

static graph *deep_concats(int n)
{
    graph *g = coda_graph_new();
    coda_value x = input(g, "x", 0, 2, 2), y = x;
    for (int i = 0; i < n; i++)
        y = coda_slice(g, coda_concat(g, i % 2, (coda_value[]){x, y}, 2), i % 2, 1, 3, 1);
    output(g, 0, y);
    return g;
}

static graph *wide_rope(int n)
{
    graph *g = coda_graph_new();
    output(g, 0, coda_rope(g, input(g, "x", 0, ROWS, n), CODA_NONE, NULL));
    return g;
}

static graph *deep_products(int n)
{
    graph *g = coda_graph_new();
    coda_value y = input(g, "x", 0, 2, 8), w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){8, 8});
    for (int i = 0; i < n; i++) y = coda_tanh(g, coda_matmul(g, y, w));
    output(g, 0, y);
    return g;
}

/* Of columns [n, n) of a product. */
static graph *statistic_of_nothing(int n)
{
    graph *g = coda_graph_new();
    coda_value p = product(g, input(g, "x", 0, ROWS, COLUMNS)), none = coda_slice(g, p, 1, n, n, 1);
    output(g, 0, coda_row_sum(g, none));
    output(g, 1, coda_reduce(g, "sum_sq", none, CODA_NONE));
    output(g, 2, p);
    return g;
}

const struct unusual unusual[] = {
    {"outputs of a map", outputs_of_map, {16, 17, 33, 38, 400}, true},
    {"outputs of a product", outputs_of_product, {16, 17, 38, 100}, true},
    {"outputs of a leaf", outputs_of_leaf, {38, 100}, true},
    {"outputs of a concat", outputs_of_concat, {38, 100}, true},
    {"outputs of a statistic", outputs_of_statistic, {17, 100}, true},
    {"outputs of a chain", stored_chain, {23, 24, 25, 200}, true},
    {"parts", parts, {64, 65, 1000}, false},
    {"equal parts", equal_parts, {16, 17, 65, 300}, true},
    {"part of many", part_of_many, {16, 17, 100}, false},
    {"inputs of a sum", sum_of_inputs, {16, 17, 18, 200}, true},
    {"vectors of a product", sum_of_rows, {16, 17, 18, 100}, true},
    {"statistics of a leaf", statistics_of_leaf, {16, 33, 100}, false},
    {"statistics of a product", statistics_of_product, {16, 33, 100}, false},
    {"a statistic of no columns", statistic_of_nothing, {1, 4, 8}, true},
    {"maps of a statistic", maps_of_statistic, {15, 31, 32, 33, 300}, true},
    {"vectors on a statistic", vectors_on_statistic, {7, 8, 9, 100}, true},
    {"leaves", leaves, {500}, true},
    {"long names", long_names, {200, 254}, true},
    {"columns of a rope", wide_rope, {8192, 8194, 20000}, true},
    {"deep maps", deep_maps, {31, 33, 1000, 20000}, false},
    {"deep gains", deep_gains, {33, 1000}, false},
    {"deep views", deep_views, {30, 600}, true},
    {"deep concats", deep_concats, {100, 1000}, false},
    {"deep products", deep_products, {300}, false},
};
const int unusuals = ARRAY_SIZE(unusual);

/* ---- Dimensions of 0 and 1 ---- */

struct sizes {
    int64_t b, m, n; /* of x: [b, m, n], or [m, n] where an operation takes a matrix */
};

static coda_value cube(graph *g, const struct sizes *d)
{
    return coda_input(g, "x", CODA_F32, 3, (int64_t[]){d->b, d->m, d->n});
}

static coda_value vector(graph *g, const char *name, int64_t n)
{
    return coda_weight(g, name, CODA_F32, 1, &n);
}

static coda_value times(graph *g, const struct sizes *d, coda_value x, int64_t columns)
{
    return coda_matmul(g, x, coda_weight(g, "w", CODA_F32, 2, (int64_t[]){columns, d->n}));
}

typedef void operation(graph *g, const struct sizes *d);

static void maps(graph *g, const struct sizes *d)
{
    coda_value x = cube(g, d);
    output(g, 0, coda_mul(g, coda_add(g, coda_relu(g, x), vector(g, "b", d->n)), x));
}
static void statistic(graph *g, const struct sizes *d)
{
    coda_value x = cube(g, d);
    output(g, 0, coda_row_sum(g, x));
    output(g, 1, coda_row_max(g, x));
    output(g, 2, coda_row_mean(g, x));
    output(g, 3, coda_log_sum_exp(g, x));
    output(g, 4, coda_sub(g, x, coda_row_mean(g, x)));
}
static void statistic_of_product(graph *g, const struct sizes *d)
{
    coda_value y = times(g, d, cube(g, d), d->n);
    output(g, 0, coda_row_sum(g, y));
    output(g, 1, coda_row_max(g, y));
    output(g, 2, coda_log_sum_exp(g, y));
}
static void statistic_of_columns(graph *g, const struct sizes *d) /* [b, m, k] [n, k]^T with b columns */
{
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){d->m, d->n});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){d->b, d->n}), y = coda_matmul(g, x, w);
    output(g, 0, y);
    output(g, 1, coda_row_sum(g, y));
    output(g, 2, coda_row_max(g, coda_relu(g, y)));
    output(g, 3, coda_softmax(g, y));
}
static void norms(graph *g, const struct sizes *d)
{
    coda_value x = cube(g, d);
    coda_value r = coda_rms_norm(g, x, vector(g, "g", d->n), 1e-3f);
    output(g, 0, times(g, d, r, 4));
    output(g, 1, coda_layer_norm(g, x, vector(g, "h", d->n), vector(g, "c", d->n), 1e-3f));
    output(g, 2, coda_softmax(g, x));
}
static void norm_of_product(graph *g, const struct sizes *d)
{
    coda_value h = coda_add(g, times(g, d, cube(g, d), d->n), vector(g, "b", d->n));
    coda_value w = coda_weight(g, "v", CODA_F32, 2, (int64_t[]){d->m, d->n});
    output(g, 0, coda_matmul(g, coda_rms_norm(g, h, vector(g, "g", d->n), 1e-3f), w));
}
static void batched(graph *g, const struct sizes *d)
{
    coda_value w = coda_weight(g, "w", CODA_F32, 3, (int64_t[]){d->b, 5, d->n});
    output(g, 0, coda_matmul(g, cube(g, d), w));
    coda_value v = coda_weight(g, "v", CODA_F32, 3, (int64_t[]){d->b, d->n, d->m});
    output(g, 1, coda_relu(g, coda_matmul_kn(g, cube(g, &(struct sizes){d->b, d->m, d->n}), v)));
}
static void gated(graph *g, const struct sizes *d)
{
    output(g, 0, coda_swiglu(g, times(g, d, cube(g, d), 2 * d->b), CODA_STACKED));
    output(g, 1,
           coda_reglu(g, coda_input(g, "z", CODA_F32, 2, (int64_t[]){d->m, 2 * d->n}), CODA_INTERLEAVED));
}
static void rotated(graph *g, const struct sizes *d)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.head_dim = 4;
    output(g, 0, coda_rope(g, times(g, d, cube(g, d), 8), CODA_NONE, &o));
    output(g, 1, coda_rope(g, coda_input(g, "z", CODA_F32, 2, (int64_t[]){d->m, 8}), CODA_NONE, &o));
}
static void attention(graph *g, const struct sizes *d)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_value q = coda_input(g, "q", CODA_F32, 3, (int64_t[]){d->b, d->m, 8});
    coda_value k = coda_input(g, "k", CODA_F32, 3, (int64_t[]){d->b, d->n, 8});
    o.heads = 2;
    output(g, 0, coda_attention(g, q, k, coda_relu(g, k), CODA_NONE, &o));
}
/* What an operand is broadcast over may be empty, when the operand is not: its gradient is 0. */
static void attention_grad(graph *g, const struct sizes *d)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_value q = coda_input(g, "q", CODA_F32, 3, (int64_t[]){d->b, d->m, 8});
    coda_value k = coda_input(g, "k", CODA_F32, 3, (int64_t[]){d->b, d->n, 8});
    coda_value v = coda_input(g, "v", CODA_F32, 3, (int64_t[]){d->b, d->n, 8});
    coda_value dy = coda_input(g, "dy", CODA_F32, 3, (int64_t[]){d->b, d->m, 8});
    const int64_t of_bias[][4] = {{1, 2, d->m, d->n}, {1, 1, d->m, 1}, {1, 1, 1, d->n}, {d->b, 2, 1, 1}};
    coda_value x[] = {q, k, v, CODA_NONE, vector(g, "slopes", 2), vector(g, "sinks", 2)}, dx[6];
    o.heads = 2, o.slopes = x[4], o.sinks = x[5];
    for (int i = 0; i < ARRAY_SIZE(of_bias); i++) {
        char name[32];
        snprintf(name, sizeof name, "bias%d", i);
        o.bias = x[3] = coda_input(g, name, CODA_F32, 4, of_bias[i]);
        coda_value y = coda_attention(g, q, k, v, CODA_NONE, &o);
        coda_grad(g, &y, &dy, 1, x, ARRAY_SIZE(x), dx, NULL);
        for (int j = 0; j < ARRAY_SIZE(x); j++)
            if (!i || j == 3) output(g, ARRAY_SIZE(x) * i + j, dx[j]);
    }
}
static void norm_grad(graph *g, const struct sizes *d)
{
    coda_value x = cube(g, d), gain = vector(g, "g", d->n),
               w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){5, d->n});
    coda_value y = coda_matmul(g, coda_rms_norm(g, x, gain, 1e-3f), w), dx[3];
    coda_value dy = coda_input(g, "dy", CODA_F32, 3, (int64_t[]){d->b, d->m, 5});
    coda_grad(g, &y, &dy, 1, (coda_value[]){x, gain, w}, 3, dx, NULL);
    for (int i = 0; i < 3; i++) output(g, i, dx[i]);
}
static void loss(graph *g, const struct sizes *d)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    coda_value t = coda_input(g, "t", CODA_I32, 2, (int64_t[]){d->b, d->m});
    for (int r = CODA_REDUCE_NONE; r <= CODA_REDUCE_SUM; r++) {
        o.reduction = (coda_reduction)r;
        output(
            g, r,
            coda_cross_entropy(
                g,
                r ? times(g, d, coda_input(g, r == 1 ? "y" : "z", CODA_F32, 3, (int64_t[]){d->b, d->m, d->n}),
                          d->n)
                  : cube(g, d),
                t, &o));
        if (r == 1) break;
    }
}
static void embedding(graph *g, const struct sizes *d)
{
    coda_value table = coda_weight(g, "e", CODA_F32, 2, (int64_t[]){d->b, d->n});
    coda_value e = coda_embedding(g, table, coda_input(g, "i", CODA_I32, 1, &d->m));
    output(g, 0, e);
    output(g, 1, coda_row_sum(g, e));
}
static void summed_by_id(graph *g, const struct sizes *d)
{
    coda_value ids = coda_input(g, "i", CODA_I32, 2, (int64_t[]){d->b, d->m});
    output(g, 0, coda_row_sums(g, cube(g, d), ids, 2 * d->n));
    coda_output_add(g, "sums", coda_row_sums(g, cube(g, d), ids, 3));
}
static void convolved(graph *g, const struct sizes *d)
{
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){d->n, 4}), after;
    coda_value before = coda_input(g, "before", CODA_F32, 3, (int64_t[]){d->b, 3, d->n});
    output(g, 0, coda_conv1d(g, cube(g, d), w, CODA_NONE, before, CODA_NONE, &after));
    output(g, 1, after);
}
static void scanned(graph *g, const struct sizes *d)
{
    coda_value a = coda_weight(g, "a", CODA_F32, 1, &d->n), x = cube(g, d), after;
    coda_value b = coda_input(g, "b", CODA_F32, 3, (int64_t[]){d->b, d->m, 5});
    coda_value state = coda_input(g, "state", CODA_F32, 3, (int64_t[]){d->b, d->n, 5});
    if (!d->n) { /* it is refused */
        output(g, 0, x);
        return;
    }
    output(g, 0,
           coda_scan(g, x, x, coda_neg(g, coda_abs(g, a)), b, b, state, CODA_NONE,
                     &(coda_scan_options){.softplus = 1}, &after));
    output(g, 1, after);
}
static void delta_rule(graph *g, const struct sizes *d)
{
    coda_delta_options o = CODA_DELTA_OPTIONS_INIT;
    coda_value x = cube(g, d), after, b = coda_input(g, "beta", CODA_F32, 3, (int64_t[]){d->b, d->m, 2});
    coda_value k = coda_input(g, "k", CODA_F32, 3, (int64_t[]){d->b, d->m, 2});
    o.heads = 2, o.key_heads = 1;
    coda_value v = d->n ? coda_concat(g, 2, (coda_value[]){x, x}, 2) : k; /* of no columns it is refused */
    output(g, 0, coda_delta(g, k, k, v, b, b, CODA_NONE, CODA_NONE, &o, &after));
    output(g, 1, after);
}
static void best(graph *g, const struct sizes *d)
{
    coda_value v, i;
    coda_top_k(g, cube(g, d), MAX(d->n, 1), &v, &i); /* of no columns it is refused */
    output(g, 0, v);
    output(g, 1, i);
}
static void moved(graph *g, const struct sizes *d)
{
    coda_value x = cube(g, d);
    output(g, 0, coda_transpose(g, x, (int[]){2, 0, 1}));
    output(g, 1, coda_reshape(g, x, 2, (int64_t[]){d->n * d->b, d->m}));
    output(g, 2, coda_relu(g, coda_slice(g, x, 1, 0, d->m, 2)));
    output(g, 3, coda_cast(g, coda_slice(g, x, 2, d->n, d->n, 1), CODA_BF16));
}
static void joined(graph *g, const struct sizes *d)
{
    coda_value x = cube(g, d), empty = coda_slice(g, x, 1, 0, 0, 1);
    output(g, 0, coda_concat(g, 1, (coda_value[]){x, empty, coda_relu(g, x)}, 3));
    output(g, 1, coda_concat(g, 2, (coda_value[]){x, x}, 2));
    output(g, 2, coda_row_sum(g, coda_concat(g, 0, (coda_value[]){x, times(g, d, x, d->n)}, 2)));
}

static const struct {
    const char *name;
    operation *make;
} empty[] = {{"maps", maps},
             {"statistics", statistic},
             {"statistics of a product", statistic_of_product},
             {"statistics of columns", statistic_of_columns},
             {"norms", norms},
             {"norm of a product", norm_of_product},
             {"batched products", batched},
             {"gates", gated},
             {"rope", rotated},
             {"attention", attention},
             {"gradients of attention", attention_grad},
             {"gradients of a norm", norm_grad},
             {"losses", loss},
             {"embedding", embedding},
             {"sums by id", summed_by_id},
             {"convolution", convolved},
             {"scan", scanned},
             {"delta rule", delta_rule},
             {"the largest", best},
             {"views", moved},
             {"concats", joined}};
static const struct sizes empty_dims[] = {{0, 3, 8}, {2, 0, 8}, {2, 3, 0}, {0, 0, 8}, {0, 3, 0}, {2, 0, 0},
                                          {0, 0, 0}, {1, 1, 1}, {1, 1, 0}, {1, 0, 1}, {0, 1, 1}, {2, 3, 8}};

graph *unusual_empty(int index, const char **name)
{
    int i = index / ARRAY_SIZE(empty_dims);
    if (i >= ARRAY_SIZE(empty)) return NULL;
    graph *g = coda_graph_new();
    empty[i].make(g, &empty_dims[index % ARRAY_SIZE(empty_dims)]);
    *name = empty[i].name;
    return g;
}

/* ---- Layers and names ---- */

static int first_input(const graph *g)
{
    for (int i = 0; i < g->leaves; i++)
        if (g->node[g->leaf[i]].op == OP_INPUT) return g->leaf[i];
    return -1;
}

/* One more layer; map holds the values of the last one. */
static void add_layer(graph *g, const graph *block, int layer, int *map)
{
    int x = layer ? map[block->output[0].value] : -1, first = first_input(block);
    for (int i = 0; i < block->nodes; i++) {
        struct node n = block->node[i];
        char name[300];
        if (layer && n.op == OP_INPUT) {
            if (i == first) map[i] = x;
            continue; /* others are shared */
        }
        if (n.name) snprintf(name, sizeof name, "%s.%d", n.name, layer), n.name = name;
        n.in = graph_map_operands(g, &block->node[i], map);
        n.origin = block->node[i].origin + layer * block->origins;
        map[i] = graph_append(g, &n);
    }
}

graph *unusual_layers(const graph *block, int n)
{
    graph *g = graph_like(block);
    int *map = calloc((size_t)block->nodes + 1, sizeof *map);
    for (int layer = 0; layer < n; layer++) add_layer(g, block, layer, map);
    graph_append_output(g, "y", map[block->output[0].value], NULL);
    free(map);
    return g;
}

/* ---- MiniLM ---- */

struct minilm {
    graph *g;
    coda_dtype t;
    int64_t d;
    int leaves;
};

static coda_value weight(struct minilm *m, int64_t rows, int64_t columns)
{
    char name[16];
    snprintf(name, sizeof name, "w%d", m->leaves++);
    int64_t dims[] = {rows, columns};
    return coda_weight(m->g, name, m->t, rows ? 2 : 1, dims + !rows);
}

static coda_value linear(struct minilm *m, coda_value x, int64_t n, int64_t k)
{
    return coda_bias(m->g, coda_matmul(m->g, x, weight(m, n, k)), weight(m, 0, n));
}

static coda_value norm(struct minilm *m, coda_value x)
{
    return coda_layer_norm(m->g, x, weight(m, 0, m->d), weight(m, 0, m->d), 1e-12f);
}

static coda_value bert_layer(struct minilm *m, coda_value x, coda_value lengths)
{
    int64_t d = m->d;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = d / 32;
    coda_value qkv = linear(m, x, 3 * d, d), part[3];
    for (int i = 0; i < 3; i++) part[i] = coda_slice(m->g, qkv, 2, i * d, (i + 1) * d, 1);
    coda_value a = coda_attention(m->g, part[0], part[1], part[2], lengths, &o);
    coda_value h = norm(m, coda_add(m->g, linear(m, a, d, d), x));
    coda_value up = coda_gelu_erf(m->g, linear(m, h, 4 * d, d));
    return norm(m, coda_add(m->g, linear(m, up, d, 4 * d), h));
}

graph *unusual_minilm(coda_dtype t, int layers, int64_t batch, int64_t tokens, int64_t columns)
{
    struct minilm m = {.g = coda_graph_new(), .t = t, .d = columns};
    const int64_t ids[] = {batch, tokens}, mask[] = {batch, 1, tokens}, pooled[] = {batch, columns};
    coda_value word = coda_input(m.g, "word", CODA_I32, 2, ids);
    coda_value type = coda_input(m.g, "type", CODA_I32, 2, ids);
    coda_value lengths = coda_input(m.g, "lengths", CODA_I32, 1, ids);
    coda_value mean = coda_input(m.g, "mean", t, 3, mask);
    coda_value at = coda_slice(m.g, weight(&m, 512, columns), 0, 0, tokens, 1);
    coda_value x = coda_add(m.g, coda_embedding(m.g, weight(&m, 30522, columns), word), at);
    x = norm(&m, coda_add(m.g, x, coda_embedding(m.g, weight(&m, 2, columns), type)));
    for (int i = 0; i < layers; i++) x = bert_layer(&m, x, lengths);
    coda_output(m.g, "y", coda_reshape(m.g, coda_matmul_kn(m.g, mean, x), 2, pooled));
    return m.g;
}

graph *unusual_renamed(const graph *from, uint64_t seed)
{
    struct random r = {seed};
    graph *g = graph_like(from);
    int *map = calloc((size_t)from->nodes + 1, sizeof *map),
        *order = calloc((size_t)from->leaves + 1, sizeof *order);
    char name[64];
    for (int i = 0; i < from->leaves; i++) {
        int j = (int)random_below(&r, i + 1);
        order[i] = order[j];
        order[j] = from->leaf[i];
    }
    for (int i = 0; i < from->leaves; i++) {
        struct node n = from->node[order[i]];
        snprintf(name, sizeof name, "n%llx_%d", (unsigned long long)random_next(&r) & 0xffff, i);
        n.name = name;
        map[order[i]] = graph_append(g, &n);
    }
    for (int i = 0; i < from->nodes; i++)
        if (!op_is_leaf(from->node[i].op)) map[i] = graph_copy_node(g, from, i, map);
    for (int i = 0; i < from->outputs; i++) {
        snprintf(name, sizeof name, "o%d", i);
        const struct output *o = &from->output[i];
        (o->add ? graph_append_sum : graph_append_output)(g, name, map[o->value], o->stride);
    }
    free(map);
    free(order);
    return g;
}
