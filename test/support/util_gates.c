/* util_gates.c -- a few tokens of a gated delta rule whose gates are maps of a product's columns. */
#include "util_gates.h"

#include <stdio.h>
#include <string.h>

#define PLAIN                                                                                                \
    "%a1 = cast %a {to=f32}\n%a2 = add %a1, %bias\n%a3 = softplus %a2\n%decay = mul %a3, %rate\n"            \
    "%b1 = cast %b {to=f32}\n%beta = sigmoid %b1\n"

#define GATE(of) "%n = rms_norm %oh, %gain {eps=1e-6}\n%g = " of "\n%y = mul %n, %g\n"
#define NORM GATE("silu %zh")
#define BIAS(of, map)                                                                                        \
    "%a1 = cast %a {to=f32}\n%a2 = add %a1, " of "\n%a3 = " map " %a2\n%decay = mul %a3, %rate\n"            \
    "%b1 = cast %b {to=f32}\n%beta = sigmoid %b1\n"

/* clang-format off */
const struct gates_case gates_cases[] = {
    {"a token", PLAIN, NULL, 1, 1, false, 2},
    {"of each text", PLAIN, NULL, 1, 3, false, 2},
    {"some of each text", PLAIN, NULL, 5, 2, false, 2},
    {"packed", PLAIN, NULL, 7, 3, true, 2},
    {"packed, nearly chunks", PLAIN, NULL, 95, 3, true, 2},
    {"the other way round",
     "%a1 = cast %a {to=f32}\n%a2 = add %bias, %a1\n%a3 = softplus %a2\n%r = scale %rate {alpha=-0.5}\n"
     "%decay = mul %r, %a3\n%b1 = cast %b {to=f32}\n%beta = sigmoid %b1\n", NULL, 1, 1, false, 2},
    {"normed", PLAIN, NORM, 1, 1, false, 2},
    {"some normed", PLAIN, NORM, 6, 2, false, 2},
    {"packed, normed", PLAIN, NORM, 80, 66, true, 2},
    {"normed, the other way round", BIAS("%bias", "exp"),
     "%n = rms_norm %oh, %gain {eps=1e-2}\n%g = silu %zh\n%y = mul %g, %n\n", 2, 1, false, 3},
    /* Gates, or the norm, have a launch of their own: */
    {"packed chunks", PLAIN, NORM, 96, 3, true, 4},
    {"few packed ones normed", PLAIN, NORM, 7, 3, true, 3},
    {"whose decays are shown", PLAIN "output %decay = %decay\n", NULL, 1, 1, false, 3},
    {"whose numbers are shown", PLAIN "output %a3 = %a3\n", NULL, 1, 1, false, 3},
    {"of another map", BIAS("%bias", "exp"), NULL, 1, 1, false, 3},
    {"of a bias that is a state", "%m = state f32[2]\n" BIAS("%m", "softplus") "%m1 = assign %m, %bias\n",
     NULL, 1, 1, false, 3},
    {"of one bias for all", "%one = weight f32[1]\n" BIAS("%one", "softplus"), NULL, 1, 1, false, 3},
    {"whose o is shown", PLAIN, NORM "output %o = %o\n", 1, 1, false, 3},
    {"normed, shown twice", PLAIN, NORM "output %again = %y\n", 1, 1, false, 3},
    {"gated by itself", PLAIN, GATE("silu %oh"), 1, 1, false, 3},
    {"of another gate", PLAIN, GATE("sigmoid %zh"), 1, 1, false, 3},
    {"of a gain of each head", PLAIN,
     "%gains = weight bf16[2,32]\n%n0 = rms_norm %oh {eps=1e-6}\n%n = mul %n0, %gains\n%g = silu %zh\n"
     "%y = mul %n, %g\n", 1, 1, false, 3},
};
/* clang-format on */
const int gates_case_count = ARRAY_SIZE(gates_cases);

/* A head of keys, two of values, of 32 columns. */
graph *gates_graph(const struct gates_case *c)
{
    static const struct {
        const char *name;
        int first, end;
    } parts[] = {{"q", 0, 32},    {"k", 32, 64},   {"v", 64, 128},
                 {"b", 128, 130}, {"a", 130, 132}, {"z", 132, 196}};
    struct text t = {0};
    bool flat = c->packed;
    int n = c->packed ? 1 : c->sequences;
    if (flat) text_printf(&t, "%%x = input bf16[%d,64]\n", c->tokens);
    else text_printf(&t, "%%x = input bf16[%d,%d,64]\n", n, c->tokens);
    text_append(
        &t,
        "%w = weight bf16[196,64]\n%gain = weight bf16[32]\n%bias = weight f32[2]\n%rate = weight f32[2]\n"
        "%p = matmul %x, %w\n");
    for (int i = 0; i < ARRAY_SIZE(parts) - !c->behind; i++)
        text_printf(&t, "%%%s = slice %%p {axis=%d, start=%d, stop=%d, step=1}\n", parts[i].name,
                    flat ? 1 : 2, parts[i].first, parts[i].end);
    text_printf(&t, "%%s = state f32[%d,2,32,32]\n", c->sequences);
    if (c->packed) text_printf(&t, "%%starts = input i32[%d]\n", c->sequences + 1);
    text_append(&t, c->lines);
    const char *of = "%q, %k, %v, %decay, %beta, %s", *by = c->packed ? ", %starts" : "";
    text_printf(&t, "%%o = delta %s%s {heads=2, key_heads=1, norm=1, eps=1e-6}\n", of, by);
    text_printf(&t, "%%t = delta %s%s {heads=2, key_heads=1, norm=1, eps=1e-6, after=1} @%%o\n", of, by);
    text_append(&t, "%s1 = assign %s, %t\n");
    for (int i = 0; i < 2 && c->behind; i++)
        text_printf(&t,
                    flat ? "%%%ch = reshape %%%c {rank=3, d0=%d, d1=2, d2=32}\n"
                         : "%%%ch = reshape %%%c {rank=4, d0=%d, d1=%d, d2=2, d3=32}\n",
                    "oz"[i], "oz"[i], flat ? c->tokens : n, c->tokens);
    text_printf(&t, "%soutput %%y = %%%s\n", c->behind ? c->behind : "", c->behind ? "y" : "o");
    graph *g = graph_parse(text_str(&t));
    text_free(&t);
    return g;
}

/* Rates are below 0, so that states do not grow, and texts have some tokens each. */
static void **arguments(const struct gates_case *c, const graph *g, uint64_t seed, bool evaluate)
{
    void **args = random_args(g, seed, evaluate);
    for (int l = 0; l < g->leaves; l++) {
        const struct node *n = &g->node[g->leaf[l]];
        for (int64_t i = 0; !strcmp(n->name, "rate") && i < 2; i++)
            dtype_store(CODA_F32, args[l], i, strstr(c->lines, "alpha") ? 1.5 - (double)i : -0.2 - (double)i);
        for (int64_t i = 0; !strcmp(n->name, "starts") && i <= c->sequences; i++)
            dtype_store(CODA_I32, args[l], i, (double)(i * i * c->tokens / c->sequences / c->sequences));
    }
    return args;
}

double gates_error(const struct gates_case *c, uint64_t seed, const coda_compile_options *opt, bool on_gpu)
{
    graph *g = gates_graph(c);
    void **want = arguments(c, g, seed, true), **got = arguments(c, g, seed, false);
    double error = run_args_error(g, opt, want, got, on_gpu);
    random_args_free(g, want);
    random_args_free(g, got);
    graph_free(g);
    return error;
}

double gates_allowed(const struct gates_case *c) { return c->behind ? 5e-2 : 2e-2; }
