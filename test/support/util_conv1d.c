/* util_conv1d.c -- causal convolutions, and what plain loops say of them. */
#include "util_conv1d.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F32 CODA_F32
#define BF16 CODA_BF16
#define F16 CODA_F16

/* clang-format off */
const struct conv1d_case conv1d_cases[] = {
    /* name           x     state seq time columns taps bias packed y  after   how      mapped in place */
    {"a prompt",      BF16, BF16,  2, 130,  96,  4, false, false, 1, 1, X_DENSE,  false, true},
    {"without state", F32,  0,     3,  70,  40,  4, true,  false, 1, 0, X_DENSE,  false, false},
    {"one sequence",  F16,  F16,   0,  65,  72,  3, true,  false, 1, 1, X_DENSE,  true,  true},
    {"a step",        BF16, BF16,  5,   1, 264,  4, false, false, 1, 1, X_DENSE,  false, true},
    {"two steps",     BF16, F32,   3,   2,  80,  4, true,  false, 1, 1, X_DENSE,  false, true},
    {"as many as kept", F32, F32,  2,   3,  24,  4, false, false, 1, 1, X_DENSE,  true,  true},
    {"one more",      F16,  BF16,  2,   4,  24,  4, false, false, 1, 1, X_DENSE,  false, true},
    {"no tokens",     BF16, BF16,  3,   0,  24,  4, false, false, 1, 1, X_DENSE,  false, true},
    {"no sequences",  BF16, BF16,  0,   9,   8,  2, false, true,  1, 1, X_DENSE,  true,  true},
    {"two taps",      F32,  F32,   2,  33,  20,  2, true,  false, 1, 1, X_DENSE,  false, false},
    {"eight taps",    BF16, BF16,  2,  90,  48,  8, true,  false, 1, 1, X_DENSE,  false, true},
    {"sixteen taps",  F32,  F32,   2,  60,  33, 16, true,  false, 1, 1, X_DENSE,  true,  true},
    {"odd columns",   BF16, BF16,  2,  40,  37,  4, true,  false, 1, 1, X_DENSE,  false, true},
    {"one column",    F32,  0,     2, 300,   1,  4, false, false, 1, 1, X_DENSE,  false, false},
    {"wide",          BF16, BF16,  1,  75, 4200, 4, false, false, 1, 1, X_DENSE,  true,  true},
    {"of a product",  BF16, BF16,  2,  66,  64,  4, false, false, 1, 1, X_RANGE,  false, true},
    {"turned",        F32,  F32,   2,  50,  24,  4, true,  false, 1, 1, X_TURNED, false, true},
    {"after alone",   F16,  F16,   3,  20,  40,  4, false, false, 0, 1, X_DENSE,  true,  true},
    {"packed",        BF16, BF16,  5, 200,  64,  4, false, true,  1, 1, X_DENSE,  false, true},
    {"packed steps",  BF16, F32,  40,  40,  80,  4, true,  true,  1, 1, X_DENSE,  false, true},
    {"packed, few",   F32,  F32,   9,   5,  24,  4, false, true,  1, 1, X_DENSE,  true,  true},
    {"packed, many",  F32,  0,    70, 900,  16,  3, true,  true,  1, 1, X_DENSE,  false, false},
    {"packed range",  F16,  F16,   4, 150,  72,  5, true,  true,  1, 1, X_RANGE,  false, true},
    {"packed, after", BF16, BF16,  6, 100,  32,  4, false, true,  0, 1, X_DENSE,  true,  true},
};
const struct conv1d_case conv1d_products[] = {
    {"in a product",  BF16, BF16,  0, 1090, 3904, 4, true,  false, 1, 1, X_PART,    true,  true},
    {"in samples",    F16,  F32,   3,  384, 3712, 3, true,  false, 1, 1, X_PART,    true,  true},
    {"a row is left", BF16, BF16,  0, 1025, 4160, 4, false, false, 1, 1, X_PRODUCT, false, false},
    {"no state",      BF16, 0,     0, 1152, 3712, 2, true,  false, 1, 0, X_PRODUCT, true,  false},
    {"after in part", BF16, F32,   1, 1100, 3904, 4, true,  false, 1, 1, X_PART,    false, true},
};
/* clang-format on */
const int conv1d_case_count = ARRAY_SIZE(conv1d_cases), conv1d_product_count = ARRAY_SIZE(conv1d_products);

struct conv1d_case conv1d_draw(uint64_t seed)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    struct random r = {seed};
    struct conv1d_case c = {.name = "drawn", .y = true, .after = random_chance(&r, 80)};
    c.dtype = dtype[random_below(&r, 3)];
    c.state = random_chance(&r, 80) ? dtype[random_below(&r, 3)] : (coda_dtype)0;
    c.packed = random_chance(&r, 50);
    c.sequences = random_below(&r, c.packed ? 40 : 5);
    c.time = random_below(&r, random_chance(&r, 50) ? 12 : 200);
    c.columns = 1 + random_below(&r, 100);
    c.taps = 2 + random_below(&r, 7);
    c.bias = random_chance(&r, 50);
    c.how = (int)random_below(&r, 3);
    c.mapped = random_chance(&r, 50);
    c.in_place = c.after && c.state && random_chance(&r, 60);
    return c;
}

/* ---- The graph ---- */

/* Of rows of K elements. The columns that are not convolved pass through a map, too. */
static coda_value make_product(const struct conv1d_case *c, graph *g)
{
    enum { K = 64, REST = 80, SOME = 48 };
    int64_t rows[] = {c->sequences, c->time, K}, n = c->columns, wide = n + REST * (c->how == X_PART);
    bool one = !c->sequences;
    coda_value a = coda_input(g, "a", c->dtype, 3 - one, rows + one);
    coda_value p = coda_matmul(g, a, coda_weight(g, "p", c->dtype, 2, (int64_t[]){wide, K}));
    p = coda_mul(g, p, coda_weight(g, "gain", c->dtype, 1, &wide));
    if (c->how == X_PRODUCT) return p;
    coda_output(g, "some", coda_silu(g, coda_slice(g, p, 2 - one, n, n + SOME, 1)));
    coda_output(g, "others", coda_relu(g, coda_slice(g, p, 2 - one, n + SOME, wide, 1)));
    return coda_slice(g, p, 2 - one, 0, n, 1);
}

static coda_value make_x(const struct conv1d_case *c, graph *g)
{
    if (c->how == X_PRODUCT || c->how == X_PART) return make_product(c, g);
    bool one = c->packed || !c->sequences;
    int64_t dim[] = {c->sequences, c->time, c->columns}, wide = c->columns + 16;
    int64_t range[] = {c->time * wide, wide, 1}, turned[] = {c->time * c->columns, 1, MAX(c->time, 1)};
    int64_t dense[] = {c->time * c->columns, c->columns, 1};
    int64_t *stride = c->how == X_RANGE ? range : c->how == X_TURNED ? turned : dense;
    return coda_input_strided(g, "x", c->dtype, 3 - one, dim + one, stride + one);
}

graph *conv1d_graph(const struct conv1d_case *c)
{
    graph *g = coda_graph_new();
    bool one = !c->packed && !c->sequences;
    int64_t kept[] = {c->sequences, c->taps - 1, c->columns}, starts = c->sequences + 1;
    coda_value after, x = make_x(c, g), before = CODA_NONE;
    coda_value w = coda_weight(g, "w", c->dtype, 2, (int64_t[]){c->columns, c->taps});
    coda_value bias = c->bias ? coda_weight(g, "bias", CODA_F32, 1, &c->columns) : CODA_NONE;
    coda_value at =
        c->packed ? coda_input(g, "starts", c->bias ? CODA_I64 : CODA_I32, 1, &starts) : CODA_NONE;
    if (c->state && c->in_place) before = coda_state(g, "s", c->state, 3 - one, kept + one);
    else if (c->state) before = coda_input(g, "s", c->state, 3 - one, kept + one);
    coda_value y = coda_conv1d(g, x, w, bias, before, at, c->after ? &after : NULL);
    if (c->y) coda_output(g, "y", c->mapped ? coda_softplus(g, y) : y);
    if (c->after && c->in_place) coda_assign(g, before, after);
    else if (c->after) coda_output(g, "after", after);
    return g;
}

double conv1d_allowed(const struct conv1d_case *c)
{
    return c->dtype == CODA_F32 ? 1e-5 : c->dtype == CODA_F16 ? 2e-3 : 1e-2;
}

/* ---- What loops say ---- */

/* An argument by its name, and an element of it. */
struct named {
    const void *at;
    const struct node *leaf;
};

static struct named named(const graph *g, void **args, const char *name)
{
    for (int i = 0; i < g->leaves; i++)
        if (!strcmp(g->node[g->leaf[i]].name, name)) return (struct named){args[i], &g->node[g->leaf[i]]};
    return (struct named){NULL, NULL};
}

static double element(const struct named *of, int64_t a, int64_t b, int64_t c)
{
    const int64_t index[] = {a, b, c}, *s = of->leaf->stride;
    int rank = of->leaf->type.rank;
    int64_t at = 0;
    for (int d = 0; d < rank; d++) at += s[d] * index[3 - rank + d];
    return dtype_load(of->leaf->type.dtype, of->at, at);
}

struct loops {
    const struct conv1d_case *c;
    struct named x, w, bias, starts, state;
    const double *before; /* dense, as it was before the run */
};

static double row(const struct loops *l, int64_t b, int64_t first, int64_t t, int64_t n)
{
    int64_t kept = l->c->taps - 1;
    if (t >= 0) return element(&l->x, l->c->packed ? 0 : b, first + t, n);
    return l->before ? l->before[(b * kept + kept + t) * l->c->columns + n] : 0;
}

static double apart(double got, double want)
{
    if (!isfinite(got) || !isfinite(want)) return INFINITY;
    return fabs(got - want) / (1 + fabs(want));
}

/* Row r of y, which is row t of sequence b, or of none. */
static double compare_row(const struct loops *l, const double *y, int64_t r, int64_t b, int64_t first,
                          int64_t t)
{
    double worst = 0;
    for (int64_t n = 0; n < l->c->columns; n++) {
        double sum = l->c->bias && b >= 0 ? element(&l->bias, 0, 0, n) : 0;
        for (int64_t j = 0; j < l->c->taps && b >= 0; j++)
            sum += element(&l->w, 0, n, j) * row(l, b, first, t - l->c->taps + 1 + j, n);
        if (l->c->mapped) sum = log1p(exp(sum));
        worst = fmax(worst, apart(y[r * l->c->columns + n], sum));
    }
    return worst;
}

/* What is left, dense or in the state, which has rounded it. */
static double compare_after(const struct loops *l, const double *after, int64_t b, int64_t first,
                            int64_t rows)
{
    int64_t kept = l->c->taps - 1;
    double worst = 0;
    for (int64_t i = 0; i < kept; i++)
        for (int64_t n = 0; n < l->c->columns; n++) {
            double want = row(l, b, first, rows - kept + i, n), got, rounded = 0;
            if (l->c->in_place) {
                dtype_store(l->c->state, &rounded, 0, want);
                want = dtype_load(l->c->state, &rounded, 0), got = element(&l->state, b, i, n);
            } else got = after[(b * kept + i) * l->c->columns + n];
            worst = fmax(worst, apart(got, want));
        }
    return worst;
}

static int64_t start_of(const struct loops *l, int64_t b)
{
    double at = element(&l->starts, 0, 0, b);
    return at < 0 ? 0 : at > (double)l->c->time ? l->c->time : (int64_t)at;
}

/* The sequence that has row r of all that are packed, or -1; and its first row. */
static int64_t owner(const struct loops *l, int64_t r, int64_t *first)
{
    int64_t at = 0, found = -1;
    for (int64_t b = 0; b <= l->c->sequences; b++) {
        at = MAX(at, start_of(l, b));
        if (at > r) return found;
        found = b < l->c->sequences ? b : -1, *first = at;
    }
    return -1;
}

static double compare_y(const struct loops *l, const double *y)
{
    int64_t batches = l->c->packed ? 1 : MAX(l->c->sequences, 1), first = 0;
    double worst = 0;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t t = 0; t < l->c->time; t++) {
            int64_t of = l->c->packed ? owner(l, t, &first) : b;
            worst = fmax(worst, compare_row(l, y, b * l->c->time + t, of, first, t - first));
        }
    return worst;
}

static double compare_states(const struct loops *l, const double *after)
{
    double worst = 0;
    int64_t at = 0;
    for (int64_t b = 0; b < (l->c->packed ? l->c->sequences : MAX(l->c->sequences, 1)); b++) {
        if (!l->c->packed) {
            worst = fmax(worst, compare_after(l, after, b, 0, l->c->time));
            continue;
        }
        int64_t first = at = MAX(at, start_of(l, b));
        int64_t end = MAX(at, start_of(l, b + 1));
        worst = fmax(worst, compare_after(l, after, b, first, end - first));
    }
    return worst;
}

double *conv1d_before(const struct conv1d_case *c, const graph *g, void **args)
{
    struct named s = named(g, args, "s");
    int64_t rows = c->taps - 1, n = c->packed ? c->sequences : MAX(c->sequences, 1);
    double *before = c->state ? malloc(sizeof *before * (size_t)(n * rows * c->columns + 1)) : NULL;
    for (int64_t i = 0; before && i < n * rows * c->columns; i++)
        before[i] = element(&s, i / c->columns / rows, i / c->columns % rows, i % c->columns);
    return before;
}

double conv1d_difference(const struct conv1d_case *c, const graph *g, void **args, const double *before)
{
    struct loops l = {.c = c, .before = before};
    l.x = named(g, args, "x"), l.w = named(g, args, "w"), l.bias = named(g, args, "bias");
    l.starts = named(g, args, "starts"), l.state = named(g, args, "s");
    double worst = c->y ? compare_y(&l, args[g->leaves]) : 0;
    return c->after ? fmax(worst, compare_states(&l, c->in_place ? NULL : args[g->leaves + c->y])) : worst;
}
