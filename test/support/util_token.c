/* util_token.c -- one token of a layer of Mamba, as a graph whose launches are counted. */
#include "util_token.h"

#include <math.h>
#include <string.h>

#define F32 CODA_F32
#define BF16 CODA_BF16
#define F16 CODA_F16
#define ALL (TOKEN_BIASED | TOKEN_HALVES)

/* clang-format off */
const struct token_case token_cases[] = {
    /* name             dtype width inner taps rank states  starts      launches */
    {"a token",          BF16,  64,  128,   4,  24,  16,    0,  1, ALL,                           3},
    {"of fp16",          F16,   72,  192,   4, 160,  16,   -2,  9, ALL,                           3},
    {"of fp32",          F32,   64,   64,   3,   8,  16,    0,  1, ALL,                           4},
    {"of a wide product",BF16,  64,  128,   4,   8,  20,    0,  1, TOKEN_BIASED,                  3},
    {"without biases",   BF16,  64,   64,   2,  64,   5,    0,  1, TOKEN_HALVES,                  3},
    {"in a batch",       BF16,  64,  128,   4,  24,  16,    0, -1, ALL | TOKEN_BATCHED,           3},
    {"of no starts",     F16,   64,  320,   4,  40,   1,    0, -1, ALL,                           3},
    {"of nobody",        BF16,  64,  128,   4,  24,  16,    1,  1, ALL,                           3},
    {"ended before",     BF16,  64,   64,   4,  24,  16,   -3,  0, TOKEN_BIASED,                  3},
    {"of a long window", BF16,  64,  128,   5,  24,  16,    0,  1, ALL,                           4},
    {"of odd columns",   BF16,  64,   72,   4,  24,  16,    0,  1, ALL,                           4},
    {"of odd terms",     BF16,  64,  128,   4,  12,  16,    0,  1, ALL,                           4},
    {"of many terms",    BF16,  64,  128,   4, 264,  16,    0,  1, ALL,                           4},
    {"that is shown",    BF16,  64,  128,   4,  24,  16,    0,  1, ALL | TOKEN_SHOWN,             4},
};
/* clang-format on */
const int token_case_count = ARRAY_SIZE(token_cases);

struct token_case token_draw(uint64_t seed)
{
    static const coda_dtype dtype[] = {BF16, F16, F32};
    struct random r = {seed};
    struct token_case c = {.name = "drawn", .dtype = dtype[random_below(&r, 3)]};
    c.width = 8 * (int)(1 + random_below(&r, 20));
    c.inner = random_chance(&r, 70) ? 64 * (int)(1 + random_below(&r, 5)) : (int)(1 + random_below(&r, 200));
    c.taps = 2 + (int)random_below(&r, 4);
    c.rank = random_chance(&r, 70) ? 8 * (int)(1 + random_below(&r, 33)) : (int)(1 + random_below(&r, 40));
    c.states = 1 + (int)random_below(&r, 40);
    c.begins = (int)random_below(&r, 4) - 2, c.ends = (int)random_below(&r, 4) - 1;
    c.flags = (unsigned)random_below(&r, 2 * TOKEN_SHOWN);
    if (c.flags & TOKEN_BATCHED) c.ends = -1;
    return c;
}

static bool has(const struct token_case *c, unsigned flag) { return c->flags & flag; }

static coda_value matrix(const struct token_case *c, graph *g, const char *name, int64_t rows,
                         int64_t columns)
{
    return coda_weight(g, name, c->dtype, 2, (int64_t[]){rows, columns});
}

static coda_value columns(graph *g, coda_value x, int64_t first, int64_t n)
{
    return coda_slice(g, x, -1, first, first + n, 1);
}

/* Of one sequence; with starts, or in a batch, it has a dimension more. */
static coda_value state(const struct token_case *c, graph *g, const char *name, coda_dtype t, int64_t rows,
                        int64_t columns)
{
    bool one = c->ends < 0 && !has(c, TOKEN_BATCHED);
    return coda_state(g, name, t, 3 - one, (int64_t[]){1, rows, columns} + one);
}

graph *token_graph(const struct token_case *c)
{
    graph *g = coda_graph_new();
    int64_t n = c->inner, s = c->states, wide = 2 * n + (has(c, TOKEN_HALVES) ? 0 : 64);
    bool flat = !has(c, TOKEN_BATCHED);
    coda_scan_options o = CODA_SCAN_OPTIONS_INIT;
    coda_value after, none = CODA_NONE;
    coda_value x = coda_input(g, "x", c->dtype, 3 - flat, (int64_t[]){1, 1, c->width} + flat);
    coda_value starts = c->ends < 0 ? none : coda_input(g, "starts", CODA_I32, 1, (int64_t[]){2});
    coda_value p = coda_matmul(g, x, matrix(c, g, "in", wide, c->width));
    coda_value rows = state(c, g, "rows", c->dtype, c->taps - 1, n);
    coda_value bias = has(c, TOKEN_BIASED) ? coda_weight(g, "bias", c->dtype, 1, &n) : none;
    coda_value of = columns(g, p, 0, n);
    coda_value u = coda_conv1d(g, of, matrix(c, g, "taps", n, c->taps), bias, rows, starts, &after);
    coda_assign(g, rows, after);
    u = coda_silu(g, u);
    coda_value all = coda_matmul(g, u, matrix(c, g, "x_proj", c->rank + 2 * s, n));
    coda_value dt = coda_matmul(g, columns(g, all, 0, c->rank), matrix(c, g, "dt_proj", n, c->rank));
    o.softplus = 1, o.gate = columns(g, p, n, n);
    if (has(c, TOKEN_BIASED)) o.dt_bias = coda_weight(g, "dt_bias", CODA_F32, 1, &n);
    if (has(c, TOKEN_BIASED)) o.skip = coda_weight(g, "skip", CODA_F32, 1, &n);
    coda_value a = coda_weight(g, "a", CODA_F32, 2, (int64_t[]){n, s}),
               to = state(c, g, "state", CODA_F32, n, s);
    coda_value y = coda_scan(g, u, coda_cast(g, dt, CODA_F32), a, columns(g, all, c->rank, s),
                             columns(g, all, c->rank + s, s), to, starts, &o, &after);
    coda_assign(g, to, after);
    coda_output(g, "y", y);
    if (has(c, TOKEN_SHOWN)) coda_output(g, "of", of), coda_output(g, "dt", dt);
    if (wide > 2 * n) coda_output(g, "more", columns(g, p, 2 * n, wide - 2 * n));
    return g;
}

void **token_args(const struct token_case *c, const graph *g, uint64_t seed, bool evaluate)
{
    void **args = random_args(g, seed, evaluate);
    struct random r = {seed + 1};
    for (int l = 0; l < g->leaves; l++) {
        const struct node *n = &g->node[g->leaf[l]];
        for (int64_t i = 0; !strcmp(n->name, "a") && i < type_elements(&n->type); i++)
            dtype_store(CODA_F32, args[l], i, -exp(2 * random_normal(&r) - 1));
        bool matrix = n->type.rank == 2 && n->type.dtype == c->dtype && strcmp(n->name, "rows");
        for (int64_t i = 0; matrix && i < type_elements(&n->type); i++)
            dtype_store(c->dtype, args[l], i,
                        dtype_load(c->dtype, args[l], i) / sqrt((double)type_columns(&n->type)));
        for (int64_t i = 0; !strcmp(n->name, "starts") && i < 2; i++)
            dtype_store(CODA_I32, args[l], i, i ? c->ends : c->begins);
    }
    return args;
}

double token_error(const struct token_case *c, uint64_t seed, const coda_compile_options *opt, bool on_gpu)
{
    graph *g = token_graph(c);
    void **want = token_args(c, g, seed, true), **got = token_args(c, g, seed, false);
    double error = run_args_error(g, opt, want, got, on_gpu);
    random_args_free(g, want);
    random_args_free(g, got);
    graph_free(g);
    return error < 0 ? error : error / (c->dtype == CODA_F32 ? 1e-4 : 2e-2);
}
