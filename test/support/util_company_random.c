/* util_company_random.c -- draws graphs whose first symbol is a number of rows, for util_company.h. */
#include "util_company.h"

#include <stdio.h>
#include <string.h>

#include "util_random.h"

/*
 * Vectors are the same for all rows: weights, inputs, and what is computed of them. The rest has values for
 * each row: `full` ones have columns, `narrow` ones a single one. Rows are [T], [T, S] or [B, T].
 */
enum { POOL = 24, MOST_RANK = 3 };

struct values {
    coda_value of[POOL];
    int64_t columns[POOL];
    int n;
};

struct maker {
    coda_graph *g;
    struct random r;
    coda_dtype dtype;
    int64_t lead[2], sample[2]; /* [.., S] of rows, and [.., 1] of samples */
    int leads;
    bool samples;
    struct values full, narrow, vector;
    int leaves, outputs;
};

static void keep(struct maker *m, struct values *all, coda_value v)
{
    int64_t dims[CODA_MAX_RANK];
    if (!v.id || all->n == POOL) return;
    all->of[all->n] = v;
    all->columns[all->n++] = dims[coda_value_shape(m->g, v, dims, NULL) - 1];
}

/* Half of the time one of the last two. */
static int draw(struct maker *m, const struct values *all)
{
    if (random_chance(&m->r, 50)) return all->n - 1 - (int)random_below(&m->r, MIN(all->n, 2));
    return (int)random_below(&m->r, all->n);
}

static coda_dtype draw_dtype(struct maker *m) { return random_chance(&m->r, 20) ? CODA_F32 : m->dtype; }

static const char *name(struct maker *m, const char *stem)
{
    static char text[32];
    snprintf(text, sizeof text, "%s%d", stem, m->leaves++);
    return text;
}

/* ---- Leaves ---- */

/* A value for each row, or for each sample. */
static coda_value input(struct maker *m, const int64_t *lead, coda_dtype t, int64_t columns)
{
    int64_t dims[MOST_RANK] = {lead[0], lead[1], columns};
    dims[m->leads] = columns;
    return coda_input(m->g, name(m, "x"), t, m->leads + 1, dims);
}

/* [N], or [1, N], mostly of weights. An input of one row beside others of one row could be either. */
static coda_value new_vector(struct maker *m, int64_t columns)
{
    int64_t dims[MOST_RANK] = {1, 1, 1};
    bool weight = random_chance(&m->r, 75);
    int rank = weight ? 1 + (int)random_below(&m->r, m->leads + 1) : 1;
    dims[rank - 1] = columns;
    return weight ? coda_weight(m->g, name(m, "w"), draw_dtype(m), rank, dims)
                  : coda_input(m->g, name(m, "v"), draw_dtype(m), rank, dims);
}

/* ---- What maps make ---- */

static coda_value unary(struct maker *m, coda_value x)
{
    static coda_value (*const map[])(coda_graph *, coda_value) = {coda_relu,    coda_silu,      coda_tanh,
                                                                  coda_sigmoid, coda_gelu_tanh, coda_abs};
    if (random_chance(&m->r, 15)) return coda_scale(m->g, x, 0.75f);
    if (random_chance(&m->r, 10)) return coda_cast(m->g, x, draw_dtype(m));
    return map[random_below(&m->r, ARRAY_SIZE(map))](m->g, x);
}

/* Operands of two dtypes meet in fp32. */
static coda_value binary(struct maker *m, coda_value a, coda_value b)
{
    static coda_value (*const map[])(coda_graph *, coda_value, coda_value) = {coda_add, coda_mul, coda_sub,
                                                                              coda_maximum};
    int64_t dims[CODA_MAX_RANK];
    coda_dtype x, y;
    coda_value_shape(m->g, a, dims, &x);
    coda_value_shape(m->g, b, dims, &y);
    if (x != y) a = coda_cast(m->g, a, CODA_F32), b = coda_cast(m->g, b, CODA_F32);
    if (random_chance(&m->r, 30)) return map[random_below(&m->r, ARRAY_SIZE(map))](m->g, b, a);
    return map[random_below(&m->r, ARRAY_SIZE(map))](m->g, a, b);
}

/* A new one, or one of those that are there, of so many columns or of one. */
static coda_value some_vector(struct maker *m, int64_t columns)
{
    for (int tries = 0; tries < 4 && m->vector.n && random_chance(&m->r, 75); tries++) {
        int i = draw(m, &m->vector);
        if (m->vector.columns[i] == columns || m->vector.columns[i] == 1) return m->vector.of[i];
    }
    coda_value v = new_vector(m, columns);
    for (int maps = (int)random_below(&m->r, 4); maps; maps--)
        v = random_chance(&m->r, 40) ? unary(m, v) : binary(m, v, new_vector(m, columns));
    keep(m, &m->vector, v);
    return v;
}

static void grow_vector(struct maker *m)
{
    if (!m->vector.n) return;
    int i = draw(m, &m->vector);
    int64_t columns = m->vector.columns[i];
    coda_value v = m->vector.of[i];
    if (random_chance(&m->r, 30)) v = unary(m, v);
    else if (random_chance(&m->r, 40))
        v = binary(m, v, coda_cast(m->g, coda_constant(m->g, CODA_F32, 1), CODA_F32));
    else v = binary(m, v, some_vector(m, columns));
    keep(m, &m->vector, v);
}

static void grow_unary(struct maker *m)
{
    int i = draw(m, &m->full);
    keep(m, &m->full, unary(m, m->full.of[i]));
}

static coda_value partner(struct maker *m, int64_t columns)
{
    int i = draw(m, &m->full);
    if (random_chance(&m->r, 35) && m->full.columns[i] == columns) return m->full.of[i];
    if (random_chance(&m->r, 20) && m->narrow.n) return m->narrow.of[draw(m, &m->narrow)];
    if (random_chance(&m->r, 25) && m->samples)
        return input(m, m->sample, draw_dtype(m), random_chance(&m->r, 80) ? columns : 1);
    if (random_chance(&m->r, 15))
        return input(m, m->lead, draw_dtype(m), random_chance(&m->r, 50) ? columns : 1);
    return some_vector(m, columns);
}

static void grow_binary(struct maker *m)
{
    int i = draw(m, &m->full);
    int64_t columns = m->full.columns[i];
    keep(m, &m->full, binary(m, m->full.of[i], partner(m, columns)));
}

/* A vector of samples that several maps make. */
static void grow_sample(struct maker *m)
{
    int i = draw(m, &m->full);
    int64_t columns = m->full.columns[i];
    if (!m->samples) return;
    coda_value s = unary(m, input(m, m->sample, draw_dtype(m), columns));
    if (random_chance(&m->r, 60)) s = binary(m, s, some_vector(m, columns));
    keep(m, &m->full, binary(m, m->full.of[i], s));
}

/* ---- Statistics of rows ---- */

static void grow_narrow(struct maker *m)
{
    coda_value x = m->full.of[draw(m, &m->full)];
    static coda_value (*const fold[])(coda_graph *, coda_value) = {coda_row_sum, coda_row_max, coda_row_mean};
    if (random_chance(&m->r, 20)) x = input(m, m->lead, draw_dtype(m), 1);
    else if (m->narrow.n && random_chance(&m->r, 30)) x = unary(m, m->narrow.of[draw(m, &m->narrow)]);
    else x = fold[random_below(&m->r, ARRAY_SIZE(fold))](m->g, x);
    if (m->narrow.n && random_chance(&m->r, 30)) x = binary(m, x, m->narrow.of[draw(m, &m->narrow)]);
    if (random_chance(&m->r, 20)) x = binary(m, x, some_vector(m, 1));
    keep(m, &m->narrow, x);
}

/* A value of each row times one of each column. */
static void grow_outer(struct maker *m)
{
    int64_t columns = m->full.columns[draw(m, &m->full)];
    if (!m->narrow.n) return;
    keep(m, &m->full, binary(m, m->narrow.of[draw(m, &m->narrow)], some_vector(m, columns)));
}

static void grow_norm(struct maker *m)
{
    int i = draw(m, &m->full);
    int64_t n = m->full.columns[i];
    coda_value gain = CODA_NONE;
    if (random_chance(&m->r, 70)) {
        gain = coda_weight(m->g, name(m, "w"), m->dtype, 1, &n);
        if (random_chance(&m->r, 60)) gain = coda_add(m->g, gain, coda_constant(m->g, m->dtype, 1));
    }
    coda_value x = coda_cast(m->g, m->full.of[i], m->dtype);
    if (random_chance(&m->r, 25)) x = coda_softmax(m->g, x);
    else if (random_chance(&m->r, 60)) x = coda_rms_norm(m->g, x, gain, 1e-3f);
    else x = coda_layer_norm(m->g, x, gain, CODA_NONE, 1e-3f);
    keep(m, &m->full, x);
}

/* ---- Products ---- */

static int64_t draw_columns(struct maker *m)
{
    static const int64_t columns[] = {8, 16, 24, 32, 33, 48, 64, 72};
    return columns[random_below(&m->r, ARRAY_SIZE(columns))];
}

static void grow_product(struct maker *m)
{
    int i = draw(m, &m->full);
    int64_t n = draw_columns(m), k = m->full.columns[i];
    coda_value w = coda_weight(m->g, name(m, "w"), m->dtype, 2, (int64_t[]){n, k});
    coda_value y = coda_matmul(m->g, coda_cast(m->g, m->full.of[i], m->dtype), w);
    if (random_chance(&m->r, 50)) y = binary(m, y, some_vector(m, n));
    if (random_chance(&m->r, 20)) y = coda_cast(m->g, y, CODA_F32);
    if (n % 2 == 0 && random_chance(&m->r, 15)) y = coda_swiglu(m->g, y, CODA_STACKED), n /= 2;
    keep(m, &m->full, y);
}

/* A vector that a product reads: one row for all. */
static void grow_pieces(struct maker *m)
{
    int i = draw(m, &m->full), j = draw(m, &m->full);
    coda_value a = coda_cast(m->g, m->full.of[i], m->dtype), b = coda_cast(m->g, m->full.of[j], m->dtype);
    int64_t n = m->full.columns[i] + m->full.columns[j];
    coda_value y = coda_concat(m->g, m->leads, (coda_value[]){a, b}, 2);
    if (random_chance(&m->r, 50)) y = coda_slice(m->g, y, m->leads, 0, n - n / 3, 1), n -= n / 3;
    if (n <= 160) keep(m, &m->full, y);
}

/* The first ones are maps of vectors and rows. */
enum { MAPS = 8 };
static void (*const grow[])(struct maker *) = {grow_vector, grow_vector, grow_unary,   grow_binary,
                                               grow_binary, grow_binary, grow_narrow,  grow_sample,
                                               grow_outer,  grow_norm,   grow_product, grow_pieces};

/* ---- Graphs ---- */

static void leave(struct maker *m, coda_value v)
{
    char text[32];
    snprintf(text, sizeof text, "y%d", m->outputs++);
    coda_output(m->g, text, v);
}

static void finish(struct maker *m)
{
    leave(m, m->full.of[m->full.n - 1]);
    if (random_chance(&m->r, 40)) leave(m, m->full.of[draw(m, &m->full)]);
    if (m->narrow.n && random_chance(&m->r, 30)) leave(m, m->narrow.of[draw(m, &m->narrow)]);
    if (m->vector.n && random_chance(&m->r, 15)) leave(m, m->vector.of[draw(m, &m->vector)]);
}

static void open_rows(struct maker *m)
{
    static const int64_t within[] = {2, 3, 16, 70};
    int64_t t = coda_symbol(m->g, "T", 1, COMPANY_MOST_ROWS, 1), other = within[random_below(&m->r, 4)];
    int kind = (int)random_below(&m->r, 5);
    m->leads = kind < 3 ? 1 : 2, m->samples = kind >= 3;
    m->lead[0] = kind == 4 ? MIN(other, 3) : t, m->lead[1] = kind == 4 ? t : other;
    m->sample[0] = m->lead[0], m->sample[1] = 1;
}

graph *company_graph(uint64_t seed)
{
    static const coda_dtype dtype[] = {CODA_BF16, CODA_F16, CODA_BF16, CODA_BF16, CODA_F32};
    struct maker m = {.g = coda_graph_new(), .r = {seed}};
    if (!m.g) return NULL;
    m.dtype = dtype[random_below(&m.r, ARRAY_SIZE(dtype))];
    open_rows(&m);
    int64_t columns = draw_columns(&m);
    keep(&m, &m.full, input(&m, m.lead, m.dtype, columns));
    keep(&m, &m.vector, new_vector(&m, columns));
    int kinds = random_chance(&m.r, 50) ? MAPS : ARRAY_SIZE(grow);
    for (int n = 3 + (int)random_below(&m.r, 10); n; n--) grow[random_below(&m.r, kinds)](&m);
    finish(&m);
    return m.g;
}
