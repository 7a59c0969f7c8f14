/* util_streams.c -- see util_streams.h. */
#include "util_streams.h"

/* x w, as %NAMEi, where x is [batch, rows, k] and w [n, k]. */
static void product(const struct streams_case *c, int i, const char *name, const char *x, const char *w,
                    int n, int k, struct text *t)
{
    text_printf(t, "%%%s%d = weight %s[%d,%d]\n%%%s%d = matmul %%%s%d, %%%s%d\n", w, i, c->dtype, n, k, name,
                i, x, i, w, i);
}

static void input(const struct streams_case *c, int i, const char *name, int rows, int columns,
                  struct text *t)
{
    text_printf(t, "%%%s%d = input %s[%d,%d,%d]\n", name, i, c->dtype, c->batch, rows, columns);
}

static void vector(const struct streams_case *c, int i, const char *name, int n, struct text *t)
{
    text_printf(t, "%%%s%d = weight %s[%d]\n", name, i, c->dtype, n);
}

static void with_bias(const struct streams_case *c, int i, struct text *t)
{
    input(c, i, "x", c->rows[i], c->k, t);
    product(c, i, "p", "x", "w", c->n, c->k, t);
    vector(c, i, "b", c->n, t);
    text_printf(t, "%%y%d = add %%p%d, %%b%d\n", i, i, i);
}

/* As streams of a diffusion transformer end: r + gate (x w + b), where each sample has a gate. */
static void gate(const struct streams_case *c, int i, struct text *t)
{
    input(c, i, "r", c->rows[i], c->n, t);
    input(c, i, "g", 1, c->n, t);
    product(c, i, "p", "x", "w", c->n, c->k, t);
    vector(c, i, "b", c->n, t);
    text_printf(t, "%%a%d = add %%p%d, %%b%d\n%%m%d = mul %%g%d, %%a%d\n%%y%d = add %%r%d, %%m%d\n", i, i, i,
                i, i, i, i, i, i);
}

static void gated(const struct streams_case *c, int i, struct text *t)
{
    input(c, i, "x", c->rows[i], c->k, t);
    gate(c, i, t);
}

/* ... and begin: a norm of that, whose statistic the first product leaves and the second one finishes. */
static void normed(const struct streams_case *c, int i, struct text *t)
{
    input(c, i, "x", c->rows[i], c->k, t);
    input(c, i, "r", c->rows[i], c->k, t);
    product(c, i, "p", "x", "w", c->k, c->k, t);
    vector(c, i, "g", c->k, t);
    text_printf(t, "%%h%d = add %%r%d, %%p%d\n%%n%d = rms_norm %%h%d, %%g%d {eps=1e-5}\n", i, i, i, i, i, i);
    product(c, i, "q", "n", "v", c->n, c->k, t);
    text_printf(t, "%%y%d = gelu_tanh %%q%d\noutput %%h%d = %%h%d\n", i, i, i, i);
}

/* A norm of each head of 64 columns. */
static void of_heads(const struct streams_case *c, int i, struct text *t)
{
    input(c, i, "x", c->rows[i], c->k, t);
    product(c, i, "p", "x", "w", c->n, c->k, t);
    vector(c, i, "g", 64, t);
    text_printf(t, "%%h%d = reshape %%p%d {rank=4,d0=%d,d1=%d,d2=%d,d3=64}\n", i, i, c->batch, c->rows[i],
                c->n / 64);
    text_printf(t, "%%n%d = rms_norm %%h%d, %%g%d {eps=1e-5}\n", i, i, i);
    text_printf(t, "%%y%d = reshape %%n%d {rank=3,d0=%d,d1=%d,d2=%d}\n", i, i, c->batch, c->rows[i], c->n);
}

/* Of two weights, which are parts of one product. */
static void swiglu(const struct streams_case *c, int i, struct text *t)
{
    input(c, i, "x", c->rows[i], c->k, t);
    product(c, i, "p", "x", "w", c->n, c->k, t);
    product(c, i, "q", "x", "v", c->n, c->k, t);
    text_printf(t, "%%s%d = silu %%p%d\n%%y%d = mul %%s%d, %%q%d\n", i, i, i, i, i);
}

/* The same of rows of one tensor, as attention of joined streams leaves them. */
static void gated_rows(const struct streams_case *c, int i, struct text *t)
{
    int all = 0, first = 0;
    for (int s = 0; s < MOST_STREAMS; s++) all += c->rows[s], first += s < i ? c->rows[s] : 0;
    if (!i) text_printf(t, "%%all = input %s[%d,%d,%d]\n", c->dtype, c->batch, all, c->k);
    text_printf(t, "%%x%d = slice %%all {axis=1,start=%d,stop=%d,step=1}\n", i, first, first + c->rows[i]);
    gate(c, i, t);
}

/* A norm that each sample scales and shifts in its own way, in a kernel of rows ahead of the product. */
static void modulated(const struct streams_case *c, int i, struct text *t)
{
    input(c, i, "x", c->rows[i], c->k, t);
    input(c, i, "s", 1, c->k, t);
    input(c, i, "m", 1, c->k, t);
    text_printf(t,
                "%%n%d = layer_norm %%x%d {eps=1e-6}\n%%a%d = mul %%n%d, %%m%d\n%%h%d = add %%a%d, %%s%d\n",
                i, i, i, i, i, i, i, i);
    product(c, i, "p", "h", "w", c->n, c->k, t);
    vector(c, i, "b", c->n, t);
    text_printf(t, "%%y%d = add %%p%d, %%b%d\n", i, i, i);
}

const struct streams_case streams_cases[] = {
    {"bias", "bf16", 1, {384, 100}, 128, 256, with_bias, false, 1},
    {"gates", "bf16", 1, {300, 100}, 128, 256, gated, false, 1},
    {"gates, one part", "bf16", 1, {300, 100}, 128, 192, gated, true, 1},
    {"norms", "bf16", 1, {260, 70}, 256, 128, normed, false, 2},
    {"norms of heads", "bf16", 1, {300, 100}, 128, 128, of_heads, false, 1},
    {"swiglu", "bf16", 1, {300, 100}, 128, 128, swiglu, false, 1},
    {"gates of two samples", "bf16", 2, {100, 77}, 128, 128, gated_rows, false, 1},
    {"samples", "bf16", 2, {300, 77}, 128, 256, gated, false, 1},
    {"samples, one part", "bf16", 3, {100, 64}, 128, 128, gated, true, 1},
    {"modulations", "bf16", 2, {100, 77}, 128, 192, modulated, false, 2},
    {"three", "f16", 1, {100, 384, 17}, 128, 200, with_bias, false, 1},
    {"five", "bf16", 1, {128, 100, 128, 90, 50}, 96, 128, with_bias, true, 1},
    {"equal", "bf16", 1, {128, 128}, 256, 64, gated, false, 1},
};
const int streams_case_count = ARRAY_SIZE(streams_cases);

graph *streams_graph(const struct streams_case *c)
{
    struct text t = {0};
    int n = 0;
    for (; n < MOST_STREAMS && c->rows[n]; n++) c->stream(c, n, &t);
    if (c->concat) text_append(&t, "%y = concat ");
    for (int i = 0; i < n; i++)
        if (c->concat) text_printf(&t, "%s%%y%d", i ? ", " : "", i);
        else text_printf(&t, "output %%y%d = %%y%d\n", i, i);
    if (c->concat) text_append(&t, " {axis=1}\noutput %y = %y\n");
    graph *g = graph_parse(text_str(&t));
    text_free(&t);
    return g;
}
