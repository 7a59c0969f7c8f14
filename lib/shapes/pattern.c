/*
 * pattern.c -- what decides which form a shape has: see pattern.h.
 */
#include "pattern.h"

#include "plan_sizes.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static int number_at(const struct patterns *f, int64_t n)
{
    const int64_t *at = bsearch(&n, f->number, (size_t)f->numbers, sizeof n, by_value);
    return at ? (int)(at - f->number) : -1;
}

static void add_number(struct patterns *f, int64_t n)
{
    if (n < SMALL || f->hopeless || number_at(f, n) >= 0) return;
    f->hopeless = f->numbers == MOST_NUMBERS;
    if (f->hopeless) return;
    f->number[f->numbers++] = n;
    qsort(f->number, (size_t)f->numbers, sizeof n, by_value);
}

/* Is the distance of neighbours along an axis, of which there are a symbolic number, no multiple of what
 * alignment depends on? `first`: from which axis on that tells. */
static bool is_odd(const struct type *t, int first)
{
    int64_t inner = 1;
    for (int d = t->rank - 1; d >= first; d--) {
        if (!dim_is_number(t->dim[d])) {
            if (inner % ALIGNED) return true;
        } else inner = inner * t->dim[d] % ALIGNED;
    }
    return false;
}

/* Those of numbers alone are alike in all shapes. */
static void add_sample(struct patterns *f, const struct sample_rows *s)
{
    size_t bytes = sizeof *s->dim * (size_t)s->rank;
    bool known = true;
    for (int d = 0; d < s->rank; d++) known = known && dim_is_number(s->dim[d]);
    for (int i = 0; i < f->samples && !known; i++) {
        const struct sample_rows *other = &f->sample[i];
        known = other->t == s->t && other->rank == s->rank && !memcmp(other->dim, s->dim, bytes);
    }
    if (known || f->hopeless) return;
    f->hopeless = f->samples == MOST_SAMPLES;
    if (!f->hopeless) f->sample[f->samples++] = *s;
}

/* A value of each sample repeats over some dimensions of rows, from the innermost outwards. */
static void add_samples(struct patterns *f, const struct dims *table, const struct type *t)
{
    for (int first = t->rank - 2; first > 0; first--) {
        struct sample_rows s = {.t = table, .rank = t->rank - 1 - first};
        memcpy(s.dim, t->dim + first, sizeof *s.dim * (size_t)s.rank);
        add_sample(f, &s);
    }
}

static void read_graph(struct patterns *f, const graph *g)
{
    for (int i = 0; g && i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        const struct type *t = &n->type;
        for (int d = 0; d < t->rank; d++) add_number(f, t->dim[d]);
        add_samples(f, g->dims, t);
        f->aligns = f->aligns || is_odd(t, 1);
        if (n->op == OP_CONCAT) f->aligns = f->aligns || is_odd(t, n->attr.concat.axis);
        if (n->op == OP_SLICE) f->aligns = f->aligns || is_odd(&g->node[n->in[0]].type, n->attr.slice.axis);
    }
}

void patterns_open(struct patterns *f, const graph *given, const graph *rewritten)
{
    *f = (struct patterns){.t = (rewritten ? rewritten : given)->dims};
    f->entities = f->t->symbols + f->t->expressions;
    f->hopeless = f->entities > MOST_ENTITIES;
    read_graph(f, given);
    read_graph(f, rewritten);
}

int64_t pattern_common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y, y = rest;
    }
    return mul_counts(a / x, b);
}

static int16_t code(const struct patterns *f, const int64_t *value, int i)
{
    int number = number_at(f, value[i]);
    if (value[i] < SMALL) return (int16_t)value[i];
    if (number >= 0) return (int16_t)(SMALL + number);
    for (int k = 0; k < i; k++)
        if (value[k] == value[i]) return (int16_t)(EQUAL - k);
    return GENERIC;
}

static uint8_t size_class(int64_t value)
{
    static const int64_t from[] = {LEAST_FOLDED, LEAST_BEST_FEW,   LEAST_FOLDED_KEPT,
                                   LEAST_BEST,   MOST_IN_LINE + 1, MOST_TOP_K_COLUMNS + 1};
    int sizes = 0;
    while (sizes < ARRAY_SIZE(from) && value >= from[sizes]) sizes++;
    return (uint8_t)sizes;
}

static bool is_long(const struct sample_rows *s, const int64_t *dims)
{
    int64_t rows = 1;
    for (int d = 0; d < s->rank; d++) rows = mul_counts(rows, dims_value(s->t, s->dim[d], dims));
    return rows >= LEAST_SAMPLE;
}

/* Is a symbol, and are all samples, on the same sides of the sizes? */
static bool keeps_sizes(const struct patterns *f, const int64_t *a, const int64_t *b, int symbol)
{
    bool keeps = size_class(a[symbol]) == size_class(b[symbol]);
    for (int i = 0; i < f->samples; i++)
        keeps = keeps && is_long(&f->sample[i], a) == is_long(&f->sample[i], b);
    return keeps;
}

struct pattern pattern_of(const struct patterns *f, const int64_t *dims)
{
    struct pattern p = {0};
    int64_t value[MOST_ENTITIES];
    for (int i = 0; i < f->entities; i++) {
        int e = i - f->t->symbols;
        value[i] = e < 0 ? dims[i] : dims_value(f->t, DIM_FIRST - e, dims);
        p.of[i] = code(f, value, i);
        p.size[i] = size_class(value[i]);
    }
    for (int i = 0; f->aligns && i < f->t->symbols; i++) p.rest[i] = (uint8_t)(dims[i] % ALIGNED);
    for (int i = 0; i < f->samples; i++) p.is_long[i] = is_long(&f->sample[i], dims);
    return p;
}

/* Extents that equal a number, and symbols that equal each other. */
static int coincidences(const struct patterns *f, const int64_t *dims)
{
    const struct pattern p = pattern_of(f, dims);
    int n = 0;
    for (int i = 0; i < f->entities; i++)
        n += (p.of[i] >= SMALL && p.of[i] != GENERIC) || (i < f->t->symbols && p.of[i] <= EQUAL);
    return n;
}

/* Values around these that equal as little as any. */
void pattern_move_away(const struct patterns *f, const int64_t *dims, int64_t *at)
{
    enum { STEPS = 8 };
    memcpy(at, dims, sizeof *at * (size_t)f->t->symbols);
    for (int i = 0; i < f->t->symbols; i++) {
        const struct symbol *s = &f->t->symbol[i];
        int64_t unit = f->aligns ? pattern_common_multiple(ALIGNED, s->multiple) : s->multiple,
                best = dims[i];
        int least = coincidences(f, at);
        for (int k = 1; dims[i] >= SMALL && k <= 2 * STEPS; k++) {
            at[i] = dims[i] + (k % 2 ? -(k + 1) / 2 : k / 2) * unit;
            bool may = at[i] >= MAX(s->least, SMALL) && at[i] <= s->most && keeps_sizes(f, at, dims, i);
            int n = may ? coincidences(f, at) : least;
            if (n < least) least = n, best = at[i];
        }
        at[i] = best;
    }
}
