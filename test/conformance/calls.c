/* calls.c -- from the calls of a case to coda_* calls. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

/* What a call works on. */
struct build {
    coda_graph *g;
    const struct call *call;
    coda_value in[CASE_ARGS];
};
typedef coda_value builder(const struct build *b);

#define BUILD(name, expression)                                                                              \
    static coda_value build_##name(const struct build *b)                                                    \
    {                                                                                                        \
        const coda_value *in = b->in;                                                                        \
        const int64_t *n = b->call->number;                                                                  \
        const float *f = b->call->param;                                                                     \
        (void)in, (void)n, (void)f;                                                                          \
        return expression;                                                                                   \
    }
#define UNARY(name) BUILD(name, coda_##name(b->g, in[0]))
#define BINARY(name) BUILD(name, coda_##name(b->g, in[0], in[1]))

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
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
BINARY(matmul)
BINARY(matmul_kn)
BINARY(embedding)
UNARY(relu)
UNARY(gelu_erf)
UNARY(gelu_tanh)
UNARY(silu)
UNARY(tanh)
UNARY(sigmoid)
UNARY(softplus)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(reciprocal)
UNARY(abs)
UNARY(sign)
UNARY(floor)
UNARY(ceil)
UNARY(round)
UNARY(logical_not)
UNARY(softmax)
UNARY(row_sum)
UNARY(row_max)
UNARY(row_mean)
UNARY(log_sum_exp)
BUILD(scale, coda_scale(b->g, in[0], f[0]))
BUILD(clip, coda_clip(b->g, in[0], f[0], f[1]))
BUILD(where, coda_where(b->g, in[0], in[1], in[2]))
BUILD(rms_norm, coda_rms_norm(b->g, in[0], in[1], f[0]))
BUILD(layer_norm, coda_layer_norm(b->g, in[0], in[1], in[2], f[0]))
BUILD(slice, coda_slice(b->g, in[0], (int)n[0], n[1], n[2], n[3]))
BUILD(concat, coda_concat(b->g, (int)n[0], in, b->call->args))
BUILD(reshape, coda_reshape(b->g, in[0], b->call->numbers, n))
BUILD(constant, coda_constant(b->g, b->call->dtype, (double)f[0]))
BUILD(cast, coda_cast(b->g, in[0], b->call->dtype))

static coda_value top_k(const struct build *b, bool indices)
{
    coda_value y = CODA_NONE;
    coda_top_k(b->g, b->in[0], b->call->number[0], indices ? NULL : &y, indices ? &y : NULL);
    return y;
}
BUILD(top_k_values, top_k(b, false))
BUILD(top_k_indices, top_k(b, true))

static coda_value build_transpose(const struct build *b)
{
    int perm[CASE_NUMBERS] = {0};
    for (int i = 0; i < b->call->numbers; i++) perm[i] = (int)b->call->number[i];
    return coda_transpose(b->g, b->in[0], perm);
}

static coda_value build_attention(const struct build *b)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    const int64_t *n = b->call->number;
    o.heads = n[0];
    o.kv_heads = n[1];
    o.window = n[2];
    o.causal = (int)n[3];
    o.align = (coda_attention_align)n[4];
    o.scale = b->call->param[0];
    o.softcap = b->call->param[1];
    o.bias = b->in[4];
    return coda_attention(b->g, b->in[0], b->in[1], b->in[2], b->in[3], &o);
}

static coda_value build_cross_entropy(const struct build *b)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    static const coda_reduction reduction[] = {CODA_REDUCE_NONE, CODA_REDUCE_MEAN, CODA_REDUCE_SUM};
    o.ignore_index = (int32_t)b->call->number[0];
    o.ignore_zero = o.ignore_index == 0;
    o.reduction = reduction[b->call->number[1]];
    return coda_cross_entropy(b->g, b->in[0], b->in[1], &o);
}

#define ROW(name)                                                                                            \
    {                                                                                                        \
#name, build_##name                                                                                  \
    }
static const struct {
    const char *word;
    builder *build;
} builders[] = {
    ROW(add),          ROW(sub),           ROW(mul),         ROW(div),         ROW(matmul),
    ROW(matmul_kn),    ROW(embedding),     ROW(relu),        ROW(gelu_erf),    ROW(gelu_tanh),
    ROW(silu),         ROW(tanh),          ROW(sigmoid),     ROW(softplus),    ROW(softmax),
    ROW(row_sum),      ROW(row_max),       ROW(row_mean),    ROW(log_sum_exp), ROW(scale),
    ROW(rms_norm),     ROW(layer_norm),    ROW(slice),       ROW(concat),      ROW(reshape),
    ROW(cast),         ROW(constant),      ROW(transpose),   ROW(attention),   ROW(cross_entropy),
    ROW(top_k_values), ROW(top_k_indices), ROW(clip),        ROW(where),       ROW(exp),
    ROW(log),          ROW(sqrt),          ROW(reciprocal),  ROW(abs),         ROW(sign),
    ROW(floor),        ROW(ceil),          ROW(round),       ROW(logical_not), ROW(minimum),
    ROW(maximum),      ROW(equal),         ROW(not_equal),   ROW(less),        ROW(less_equal),
    ROW(greater),      ROW(greater_equal), ROW(logical_and), ROW(logical_or),
};

/* A word of the table, or a map: of the library, or of maps.c. */
static coda_value build_call(const struct build *b)
{
    for (size_t i = 0; i < sizeof builders / sizeof builders[0]; i++)
        if (strcmp(b->call->word, builders[i].word) == 0) return builders[i].build(b);
    return coda_apply(b->g, b->call->word, b->in, b->call->args, b->call->param);
}

static coda_value build_leaf(coda_graph *g, const struct call *c, int leaf, enum role role)
{
    char name[32];
    snprintf(name, sizeof name, "leaf%d", leaf);
    bool constant = strcmp(c->word, "weight") == 0;
    bool weight = role == ROLE_ALL_WEIGHTS || (role == ROLE_WEIGHTS && (constant || leaf > 0));
    return (weight ? coda_weight : coda_input)(g, name, c->dtype, c->numbers, c->number);
}

/* Each map once. */
static void define_maps(coda_graph *g, const struct conformance_case *c)
{
    for (int i = 0; i < c->calls; i++) {
        bool seen = false;
        for (int j = 0; j < i && !seen; j++) seen = strcmp(c->call[j].word, c->call[i].word) == 0;
        if (!seen) maps_define(g, c->call[i].word);
    }
}

coda_graph *case_graph(const struct conformance_case *c, int mode, enum role role)
{
    coda_graph *g = coda_graph_new();
    coda_value *value = calloc((size_t)c->calls + 1, sizeof *value);
    if (!g || !value) exit(2);
    define_maps(g, c);
    for (int i = 0, leaf = 0; i < c->calls; i++) {
        struct call call = c->call[i];
        struct build b = {.g = g, .call = &call};
        for (int k = 0; k < call.args; k++) b.in[k] = call.arg[k] < 0 ? CODA_NONE : value[call.arg[k]];
        if (!call.dtype) call.dtype = mode_dtype(mode);
        value[i] = call.data ? build_leaf(g, &call, leaf++, role) : build_call(&b);
    }
    for (int i = 0; i < c->outputs; i++) {
        char name[32];
        snprintf(name, sizeof name, "out%d", i);
        coda_output(g, name, value[c->output[i].call]);
    }
    free(value);
    return g;
}
