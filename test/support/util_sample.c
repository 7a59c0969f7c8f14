/* util_sample.c -- graphs that draw columns of rows, and what the formula says of them. */
#include "util_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/philox.h" /* test_sample.c compares it with the known answers of Random123 */

/* clang-format off */
const struct sample_case sample_cases[] = {
    {"temperature",           CODA_F32,  0, 9,   100,  0, 0, false, 1},
    {"a token's head",        CODA_BF16, 0, 1,  1000, 64, SAMPLE_LOGPROB, false, 3},
    {"tokens' head",          CODA_BF16, 0, 20,  999, 64, SAMPLE_LOGPROB, false, 3},
    {"many tokens' head",     CODA_F16,  0, 150, 256, 64, 0, false, 2},
    {"a batch",               CODA_BF16, 3, 5,   200, 32, SAMPLE_BIAS, false, 2},
    {"specials",              CODA_F32,  0, 40,   33,  0, SAMPLE_TOP_K, true, 2},
    {"top_k",                 CODA_F32,  0, 30,   80,  0, SAMPLE_TOP_K, false, 2},
    {"top_p",                 CODA_BF16, 0, 30,  300,  0, SAMPLE_TOP_P, false, 3},
    {"min_p",                 CODA_F16,  2, 15,  300,  0, SAMPLE_MIN_P, false, 3},
    {"all of them",           CODA_F32,  0, 25, 5000,  0, SAMPLE_ALL, false, 3},
    {"a limited head",        CODA_BF16, 0, 4,  5000, 64, SAMPLE_ALL, false, 4},
    {"one column",            CODA_F32,  0, 4,     1,  0, SAMPLE_ALL, false, 4},
};
/* clang-format on */
const int sample_case_count = ARRAY_SIZE(sample_cases);

/* ---- The graph ---- */

static coda_value rows_of(const struct sample_case *c, graph *g, const char *name, coda_dtype t, int64_t last)
{
    int64_t dims[3] = {c->batch, c->rows, last}, *first = c->batch ? dims : dims + 1;
    return coda_input(g, name, t, (c->batch ? 2 : 1) + (last > 0), first);
}

graph *sample_graph(const struct sample_case *c)
{
    graph *g = coda_graph_new();
    coda_sample_options o = CODA_SAMPLE_OPTIONS_INIT;
    coda_value x = rows_of(c, g, "x", c->dtype, c->inner ? c->inner : c->columns), logprob;
    if (c->inner) x = coda_matmul(g, x, coda_weight(g, "w", c->dtype, 2, (int64_t[]){c->columns, c->inner}));
    coda_value seeds = rows_of(c, g, "seeds", CODA_I32, 2), places = rows_of(c, g, "places", CODA_I32, 0);
    o.temperature = rows_of(c, g, "temperature", CODA_F32, 0);
    if (c->options & SAMPLE_TOP_K) o.top_k = rows_of(c, g, "top_k", CODA_I32, 0);
    if (c->options & SAMPLE_TOP_P) o.top_p = rows_of(c, g, "top_p", CODA_F32, 1);
    if (c->options & SAMPLE_MIN_P) o.min_p = rows_of(c, g, "min_p", CODA_F32, 0);
    if (c->options & SAMPLE_BIAS) o.bias = coda_input(g, "bias", CODA_F32, 1, (int64_t[]){c->columns});
    bool wants = c->options & SAMPLE_LOGPROB;
    coda_output(g, "id", coda_sample(g, x, seeds, places, &o, wants ? &logprob : NULL));
    if (wants) coda_output(g, "logprob", logprob);
    return g;
}

/* ---- Elements ---- */

static double pick(struct random *r, const double *from, int n) { return from[random_below(r, n)]; }

static double draw(const struct sample_case *c, const char *name, struct random *r)
{
    static const double special[] = {NAN, INFINITY, -INFINITY}, p[] = {1, 0.9, 0.5, 1e-6, 0, 0.99, 2},
                        t[] = {0, 0.5, 1, 2, -1}, min_p[] = {0, 0.05, 0.5, 1, -1};
    const double k[] = {0, 1, 5, 40, (double)c->columns - 1, (double)c->columns, (double)c->columns + 7, -3};
    if (!strcmp(name, "seeds") || !strcmp(name, "places")) return (double)random_below(r, 1 << 24);
    if (!strcmp(name, "temperature")) return pick(r, t, ARRAY_SIZE(t));
    if (!strcmp(name, "top_k")) return pick(r, k, ARRAY_SIZE(k));
    if (!strcmp(name, "top_p")) return pick(r, p, ARRAY_SIZE(p));
    if (!strcmp(name, "min_p")) return pick(r, min_p, ARRAY_SIZE(min_p));
    if (!strcmp(name, "bias")) return random_chance(r, 30) ? -INFINITY : (double)(random_below(r, 9) - 4) / 4;
    if (c->inner) return (double)(random_below(r, 3) - 1);
    if (c->specials && random_chance(r, 2)) return special[random_below(r, ARRAY_SIZE(special))];
    return (double)(random_below(r, 97) - 48) / 8;
}

void **sample_args(const struct sample_case *c, const graph *g, uint64_t seed, bool evaluate)
{
    struct random r = {seed};
    void **args = random_args(g, seed, evaluate);
    for (int l = 0; l < g->leaves; l++) {
        const struct node *leaf = &g->node[g->leaf[l]];
        for (int64_t e = 0; e < type_elements(&leaf->type); e++)
            dtype_store(leaf->type.dtype, args[l], e, draw(c, leaf->name, &r));
    }
    return args;
}

/* ---- The formula ---- */

struct element {
    double x;
    int64_t column;
};

static int by_order(const void *a, const void *b)
{
    const struct element *p = a, *q = b;
    if (p->x != q->x) return p->x > q->x ? -1 : 1;
    return (p->column > q->column) - (p->column < q->column);
}

static double weight(double x, double most, double t)
{
    return x == most ? 1 : t > 0 ? exp((x - most) / t) : 0;
}

/* How many of the sorted elements the limits keep. */
static int64_t count_kept(const struct element *e, int64_t n, const struct sample_limits *l)
{
    int64_t kept = n;
    double all = 0, before = 0;
    if (l->k >= 1 && l->k < (double)n)
        for (kept = (int64_t)l->k; kept < n && e[kept].x == e[kept - 1].x;) kept++;
    for (int64_t i = 0; i < kept; i++) all += weight(e[i].x, e[0].x, l->t);
    for (int64_t i = 0; i < kept && l->p < 1; i++) {
        if (i && before >= l->p * all && e[i].x != e[i - 1].x) kept = i;
        before += weight(e[i].x, e[0].x, l->t);
    }
    for (int64_t i = 1; i < kept && l->min_p > 0; i++)
        if (weight(e[i].x, e[0].x, l->t) < l->min_p * (1 - 1e-9)) kept = i;
    return kept;
}

static struct element *sorted(const double *x, int64_t n)
{
    struct element *e = malloc(sizeof *e * (size_t)n);
    for (int64_t i = 0; e && i < n; i++) e[i] = (struct element){x[i], i};
    if (e) qsort(e, (size_t)n, sizeof *e, by_order);
    return e;
}

void sample_probabilities(const double *x, int64_t n, const struct sample_limits *l, double *out)
{
    struct element *e = sorted(x, n);
    int64_t kept = e ? count_kept(e, n, l) : 0;
    double all = 0;
    for (int64_t i = 0; i < n; i++) out[i] = 0;
    for (int64_t i = 0; i < kept; i++) all += out[e[i].column] = weight(e[i].x, e[0].x, l->t);
    for (int64_t i = 0; i < n; i++) out[i] /= all;
    free(e);
}

static double gumbel(int64_t column, double place, double first, double second)
{
    uint32_t word[4] = {(uint32_t)column, (uint32_t)place}, key[2] = {(uint32_t)first, (uint32_t)second};
    philox(word, key);
    long double u = (((long double)word[0] * 0x1p32L + word[1]) + 0.5L) * 0x1p-64L;
    return (double)-logl(-log1pl(-u));
}

/* ---- A row ---- */

struct row {
    double *x; /* logits and bias */
    struct sample_limits limits;
    double seed[2], place;
};

static const void *leaf(const graph *g, void **args, const char *name, coda_dtype *t)
{
    for (int l = 0; l < g->leaves; l++)
        if (!strcmp(g->node[g->leaf[l]].name, name)) return *t = g->node[g->leaf[l]].type.dtype, args[l];
    return NULL;
}

static double number(const graph *g, void **args, const char *name, int64_t at, double absent)
{
    coda_dtype t = CODA_F32;
    const void *base = leaf(g, args, name, &t);
    return base ? dtype_load(t, base, at) : absent;
}

static double logit(const struct sample_case *c, const graph *g, void **args, int64_t row, int64_t column)
{
    double sum = number(g, args, "bias", column, 0);
    if (!c->inner) return sum + number(g, args, "x", row * c->columns + column, 0);
    for (int64_t k = 0; k < c->inner; k++)
        sum += number(g, args, "x", row * c->inner + k, 0) * number(g, args, "w", column * c->inner + k, 0);
    return sum;
}

static void read_row(const struct sample_case *c, const graph *g, void **args, int64_t row, struct row *r)
{
    for (int64_t i = 0; i < c->columns; i++) r->x[i] = logit(c, g, args, row, i);
    r->limits = (struct sample_limits){.t = fmax(number(g, args, "temperature", row, 1), 0),
                                       .k = number(g, args, "top_k", row, 0),
                                       .p = number(g, args, "top_p", row, 1),
                                       .min_p = number(g, args, "min_p", row, 0)};
    r->seed[0] = number(g, args, "seeds", 2 * row, 0);
    r->seed[1] = number(g, args, "seeds", 2 * row + 1, 0);
    r->place = number(g, args, "places", row, 0);
}

/* The first NaN, else the greatest of the scores of what is kept; of -inf alone the first. */
static int64_t drawn(const struct row *r, int64_t n)
{
    int64_t best = -1;
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (isnan(r->x[i])) return i;
    struct element *e = sorted(r->x, n);
    double least = e[count_kept(e, n, &r->limits) - 1].x;
    free(e);
    for (int64_t i = 0; i < n; i++) {
        double g = gumbel(i, r->place, r->seed[0], r->seed[1]), score = r->x[i] + r->limits.t * g;
        if (r->x[i] >= least && (best < 0 || score > most)) best = i, most = score;
    }
    return best;
}

static double log_softmax(const double *x, int64_t n, int64_t column)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = isnan(x[i]) ? NAN : fmax(most, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return x[column] - most - log(sum);
}

static double result(const graph *g, int output, void **args, int64_t at, bool evaluate)
{
    const void *base = args[g->leaves + output];
    if (evaluate) return ((const double *)base)[at];
    return dtype_load(g->node[g->output[output].value].type.dtype, base, at);
}

int64_t sample_differences(const struct sample_case *c, const graph *g, void **args, bool evaluate)
{
    struct row r = {.x = malloc(sizeof *r.x * (size_t)c->columns)};
    int64_t wrong = 0;
    for (int64_t row = 0; r.x && row < MAX(c->batch, 1) * c->rows; row++) {
        read_row(c, g, args, row, &r);
        int64_t id = drawn(&r, c->columns);
        wrong += result(g, 0, args, row, evaluate) != (double)id;
        if (g->outputs < 2) continue;
        double want = log_softmax(r.x, c->columns, id), got = result(g, 1, args, row, evaluate);
        wrong += !(fabs(got - want) <= 2e-5 + 1e-6 * fabs(want)) && !(isnan(got) && isnan(want));
    }
    free(r.x);
    return r.x ? wrong : -1;
}
