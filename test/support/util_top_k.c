/* util_top_k.c -- graphs of top-k whose elements are often equal, and what a sort says of them. */
#include "util_top_k.h"

#include <math.h>
#include <stdlib.h>

/* clang-format off */
const struct top_k_case top_k_cases[] = {
    {"experts",           CODA_F32,  0, 37,    64, 8, 0, WANT_BOTH,    false, true,  false},
    {"one of one",        CODA_F32,  0, 3,      1, 1, 0, WANT_BOTH,    false, true,  false},
    {"all of them",       CODA_BF16, 0, 5,     64, 64, 0, WANT_BOTH,   false, true,  false},
    {"odd columns",       CODA_F16,  0, 9,     77, 33, 0, WANT_BOTH,   false, true,  false},
    {"a batch, turned",   CODA_BF16, 3, 5,    200, 4, 0, WANT_BOTH,    true,  true,  false},
    {"a warp's most",     CODA_F32,  0, 6,   1024, 32, 0, WANT_VALUES, false, false, true},
    {"a block's least",   CODA_BF16, 0, 3,   1025, 1, 0, WANT_INDICES, false, true,  false},
    {"eight warps",       CODA_F32,  2, 2,   5000, 50, 0, WANT_BOTH,   true,  true,  true},
    {"many warps",        CODA_F32,  0, 2,  20000, 64, 0, WANT_BOTH,   false, false, true},
    {"many equal",        CODA_BF16, 0, 2,  17000, 40, 0, WANT_BOTH,   false, false, false},
    {"router",            CODA_BF16, 0, 70,    64, 8, 64, WANT_BOTH,   false, false, false},
    {"odd router",        CODA_F16,  0, 33,    60, 6, 48, WANT_BOTH,   false, false, false},
    {"wide router",       CODA_BF16, 0, 150,  256, 4, 64, WANT_INDICES, false, false, false},
    {"token's head",      CODA_BF16, 0, 1,   2000, 16, 64, WANT_BOTH,  false, false, false},
    {"tokens' head",      CODA_BF16, 0, 8,   1600, 2, 64, WANT_BOTH,   false, false, false},
    {"head of few",       CODA_BF16, 0, 24,   999, 50, 64, WANT_BOTH,  false, false, false},
    {"batched router",    CODA_BF16, 2, 20,    96, 3, 64, WANT_VALUES, false, false, false},
    {"fp32 router",       CODA_F32,  0, 20,    40, 1, 32, WANT_BOTH,   false, false, false},
};
/* clang-format on */
const int top_k_case_count = ARRAY_SIZE(top_k_cases);

/* ---- The graph ---- */

static coda_value input_of(const struct top_k_case *c, graph *g)
{
    int64_t last = c->inner ? c->inner : c->columns;
    int64_t first = c->turned ? c->rows : c->batch, second = c->turned ? c->batch : c->rows;
    coda_value x = c->batch ? coda_input(g, "x", c->dtype, 3, (int64_t[]){first, second, last})
                            : coda_input(g, "x", c->dtype, 2, (int64_t[]){c->rows, last});
    return c->turned ? coda_transpose(g, x, (int[]){1, 0, 2}) : x;
}

graph *top_k_graph(const struct top_k_case *c)
{
    graph *g = coda_graph_new();
    coda_value x = input_of(c, g), v = CODA_NONE, i = CODA_NONE;
    if (c->inner) x = coda_matmul(g, x, coda_weight(g, "w", c->dtype, 2, (int64_t[]){c->columns, c->inner}));
    coda_top_k(g, x, c->k, c->what == WANT_INDICES ? NULL : &v, c->what == WANT_VALUES ? NULL : &i);
    if (v.id) coda_output(g, "values", v);
    if (i.id) coda_output(g, "indices", i);
    return g;
}

/* ---- Elements ---- */

/* Of a product all sums are whole numbers below 256. */
static double draw(const struct top_k_case *c, struct random *r)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
    if (c->inner) return (double)(random_below(r, 3) - 1);
    if (c->specials && random_chance(r, 4)) return special[random_below(r, ARRAY_SIZE(special))];
    return c->wide ? (double)(random_below(r, 1 << 20) - (1 << 19)) : (double)(random_below(r, 17) - 8) / 4;
}

void **top_k_args(const struct top_k_case *c, const graph *g, uint64_t seed, bool evaluate)
{
    struct random r = {seed};
    void **args = random_args(g, seed, evaluate);
    for (int l = 0; l < g->leaves; l++) {
        const struct node *leaf = &g->node[g->leaf[l]];
        for (int64_t e = 0; e < type_elements(&leaf->type); e++)
            dtype_store(leaf->type.dtype, args[l], e, draw(c, &r));
    }
    return args;
}

/* ---- What a sort says ---- */

struct element {
    double x;
    int64_t column;
};

static int by_order(const void *a, const void *b)
{
    const struct element *p = a, *q = b;
    if (isnan(p->x) != isnan(q->x)) return isnan(p->x) ? -1 : 1;
    if (!isnan(p->x) && p->x != q->x) return p->x > q->x ? -1 : 1;
    return (p->column > q->column) - (p->column < q->column);
}

static double at(const struct top_k_case *c, const graph *g, void **args, int64_t row, int64_t column)
{
    int64_t b = row / c->rows, m = row % c->rows;
    coda_dtype t = g->node[g->leaf[0]].type.dtype;
    if (c->turned) row = m * c->batch + b;
    if (!c->inner) return dtype_load(t, args[0], row * c->columns + column);
    double sum = 0;
    for (int64_t k = 0; k < c->inner; k++)
        sum += dtype_load(t, args[0], row * c->inner + k) * dtype_load(t, args[1], column * c->inner + k);
    return sum;
}

static bool is_equal(const graph *g, int output, const void *got, int64_t at, bool evaluate,
                     const struct element *want)
{
    const struct node *n = &g->node[g->output[output].value];
    double x = evaluate ? ((const double *)got)[at] : dtype_load(n->type.dtype, got, at);
    double y = n->type.dtype == CODA_I32 ? (double)want->column : want->x;
    return x == y || (isnan(x) && isnan(y));
}

int64_t top_k_differences(const struct top_k_case *c, const graph *g, void **args, bool evaluate)
{
    int64_t wrong = 0;
    struct element *e = malloc(sizeof *e * (size_t)c->columns);
    for (int64_t row = 0; e && row < MAX(c->batch, 1) * c->rows; row++) {
        for (int64_t i = 0; i < c->columns; i++) e[i] = (struct element){at(c, g, args, row, i), i};
        qsort(e, (size_t)c->columns, sizeof *e, by_order);
        for (int o = 0; o < g->outputs; o++)
            for (int64_t i = 0; i < c->k; i++)
                wrong += !is_equal(g, o, args[g->leaves + o], row * c->k + i, evaluate, &e[i]);
    }
    free(e);
    return e ? wrong : -1;
}
