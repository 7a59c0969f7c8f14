/* util_random_rows.c -- draws graphs of maps, statistics, broadcasts, states and several outputs. */
#include "util_random_rows.h"

#include <stdio.h>
#include <string.h>

/* Values have the dimensions of the domain, of which any may be 1: a number of each row, a vector of each
 * sample, of all, a single element. Now and then one has other dimensions; that is read, too. */
enum { POOL = 64, LEAVES = 10 };

struct rows_maker {
    coda_graph *g;
    struct random r;
    struct rows_options opt;
    int rank, pooled, leaves;
    int64_t dim[CODA_MAX_RANK];
    coda_value pool[POOL];
    bool read[POOL];
};

static const char *new_name(struct rows_maker *m, const char *stem)
{
    static char text[32];
    snprintf(text, sizeof text, "%s%d", stem, m->leaves++);
    return text;
}

static coda_value keep(struct rows_maker *m, coda_value v)
{
    if (v.id && m->pooled < POOL) m->pool[m->pooled++] = v;
    return v;
}

static int draw(struct rows_maker *m)
{
    int recent = MIN(m->pooled, 4);
    int i = random_chance(&m->r, 60) ? m->pooled - 1 - (int)random_below(&m->r, recent)
                                     : (int)random_below(&m->r, m->pooled);
    m->read[i] = true;
    return i;
}

static int shape_of(const struct rows_maker *m, coda_value v, int64_t *dim)
{
    return coda_value_shape(m->g, v, dim, NULL);
}

static coda_dtype dtype_of(const struct rows_maker *m, coda_value v)
{
    int64_t dim[CODA_MAX_RANK];
    coda_dtype dtype;
    coda_value_shape(m->g, v, dim, &dtype);
    return dtype;
}

/* ---- Leaves ---- */

/* Of the domain's dimensions, some of which are 1 here. */
static coda_value new_leaf(struct rows_maker *m)
{
    int64_t dim[CODA_MAX_RANK];
    int rank = m->rank, kind = (int)random_below(&m->r, 10);
    memcpy(dim, m->dim, sizeof dim);
    if (kind == 4) dim[rank - 1] = 1;
    for (int d = 0; kind == 5 && d + 1 < rank; d++) dim[d] = 1;
    for (int d = 0; kind == 6 && d < rank; d++) dim[d] = random_chance(&m->r, 50) ? 1 : dim[d];
    if (kind == 7) dim[0] = m->dim[rank - 1], rank = 1;
    if (kind == 8 && rank > 1) dim[rank - 2] = 1;
    bool weight = kind == 7 && random_chance(&m->r, 50);
    return keep(m, weight ? coda_weight(m->g, new_name(m, "w"), m->opt.dtype, rank, dim)
                          : coda_input(m->g, new_name(m, "x"), m->opt.dtype, rank, dim));
}

/* ---- Operations ---- */

static coda_value grow_unary(struct rows_maker *m, coda_value x)
{
    static coda_value (*const map[])(coda_graph *, coda_value) = {coda_relu,    coda_silu,      coda_tanh,
                                                                  coda_sigmoid, coda_gelu_tanh, coda_abs};
    if (random_chance(&m->r, 15)) return coda_scale(m->g, x, 0.75f);
    return map[random_below(&m->r, ARRAY_SIZE(map))](m->g, x);
}

/* May these be one map's operands? */
static bool fit(const struct rows_maker *m, coda_value a, coda_value b)
{
    int64_t x[CODA_MAX_RANK], y[CODA_MAX_RANK];
    int i = shape_of(m, a, x), j = shape_of(m, b, y);
    while (i > 0 && j > 0)
        if (--i, --j, x[i] != y[j] && x[i] != 1 && y[j] != 1) return false;
    return true;
}

static coda_value grow_binary(struct rows_maker *m, coda_value x)
{
    static coda_value (*const map[])(coda_graph *, coda_value, coda_value) = {coda_add, coda_mul, coda_sub,
                                                                              coda_maximum};
    for (int tries = 0; tries < 4; tries++) {
        coda_value y = m->pool[draw(m)];
        if (!fit(m, x, y)) continue;
        if (dtype_of(m, x) != dtype_of(m, y)) y = coda_cast(m->g, y, dtype_of(m, x));
        coda_value z = map[random_below(&m->r, ARRAY_SIZE(map))](m->g, x, y);
        return random_chance(&m->r, 40) ? coda_tanh(m->g, z) : z;
    }
    return coda_tanh(m->g, x);
}

static coda_value grow_statistic(struct rows_maker *m, coda_value x)
{
    static coda_value (*const fold[])(coda_graph *, coda_value) = {coda_row_max, coda_row_mean};
    int64_t dim[CODA_MAX_RANK];
    if (shape_of(m, x, dim) < 1) return CODA_NONE;
    if (random_chance(&m->r, 20)) return coda_softmax(m->g, x);
    if (random_chance(&m->r, 20)) return coda_rms_norm(m->g, x, CODA_NONE, 1e-2f);
    return fold[random_below(&m->r, ARRAY_SIZE(fold))](m->g, x);
}

static coda_value grow_columns(struct rows_maker *m, coda_value x)
{
    int64_t dim[CODA_MAX_RANK];
    if (m->opt.elements || shape_of(m, x, dim) < 2) return CODA_NONE;
    return coda_reduce_columns(m->g, random_chance(&m->r, 50) ? "mean" : "max", x);
}

/* Other groups of rows, some of the rows or columns, or these in two parts. */
static coda_value grow_view(struct rows_maker *m, coda_value x)
{
    int64_t dim[CODA_MAX_RANK];
    int rank = shape_of(m, x, dim), axis = rank ? (int)random_below(&m->r, rank) : 0;
    if (m->opt.elements || rank < 2) return CODA_NONE;
    if (rank > 2 && random_chance(&m->r, 40)) {
        int64_t flat[2] = {1, dim[rank - 1]};
        for (int d = 0; d + 1 < rank; d++) flat[0] *= dim[d];
        return coda_reshape(m->g, x, 2, flat);
    }
    int64_t half = dim[axis] / 2;
    if (half < 1) return CODA_NONE;
    coda_value a = coda_slice(m->g, x, axis, 0, half, 1);
    if (random_chance(&m->r, 50)) return a;
    coda_value b = coda_slice(m->g, x, axis, half, dim[axis], 1);
    return coda_concat(m->g, axis, (coda_value[]){coda_tanh(m->g, a), b}, 2);
}

/* Each of its elements, perhaps mapped, times those of a row of another tensor. */
static coda_value grow_level(struct rows_maker *m, coda_value x)
{
    int64_t dim[CODA_MAX_RANK];
    int rank = shape_of(m, x, dim), more = 1 + (int)random_below(&m->r, 2);
    if (m->opt.elements || rank < 1 || rank > 2) return CODA_NONE;
    dim[rank] = dim[rank + 1] = 1;
    if (random_chance(&m->r, 50)) x = grow_unary(m, x);
    coda_value v = coda_reshape(m->g, x, rank + more, dim);
    if (random_chance(&m->r, 60)) v = grow_unary(m, v);
    if (more == 2) dim[rank] = 1 + random_below(&m->r, 5);
    dim[rank + more - 1] = 1 + random_below(&m->r, 20);
    coda_value y = coda_input(m->g, new_name(m, "z"), dtype_of(m, x), rank + more, dim);
    if (random_chance(&m->r, 40)) y = coda_add(m->g, y, v);
    return coda_mul(m->g, v, y);
}

/* Sums of the last few rows, x the newest: of a state, which is shifted, or of a tensor. */
static coda_value grow_window(struct rows_maker *m, coda_value x)
{
    int64_t dim[CODA_MAX_RANK], rows = 2 + random_below(&m->r, 5), all[CODA_MAX_RANK];
    int rank = shape_of(m, x, dim);
    if (m->opt.elements || rank < 1 || rank > 3) return CODA_NONE;
    memcpy(all, dim, sizeof all);
    all[rank] = dim[rank - 1], all[rank - 1] = rows;
    int64_t weight[2] = {rows, dim[rank - 1]};
    bool state = random_chance(&m->r, 60), shifts = random_chance(&m->r, 75);
    coda_value v = state ? coda_state(m->g, new_name(m, "s"), dtype_of(m, x), rank + 1, all)
                         : coda_input(m->g, new_name(m, "x"), dtype_of(m, x), rank + 1, all);
    if (random_chance(&m->r, 15)) keep(m, coda_reduce_columns(m->g, "max", v));
    if (shifts) {
        int64_t one[CODA_MAX_RANK];
        memcpy(one, all, sizeof one);
        one[rank - 1] = 1;
        coda_value old = coda_slice(m->g, v, rank - 1, 1, rows, 1),
                   row = coda_reshape(m->g, x, rank + 1, one);
        coda_value c = coda_concat(m->g, rank - 1, (coda_value[]){old, row}, 2);
        v = state ? coda_assign(m->g, v, c) : c;
    }
    if (random_chance(&m->r, 15)) keep(m, coda_tanh(m->g, v));
    coda_value y = coda_mul(m->g, v, coda_input(m->g, new_name(m, "x"), dtype_of(m, x), 2, weight));
    if (random_chance(&m->r, 20)) y = coda_add(m->g, y, coda_scale(m->g, v, 0.5f));
    y = coda_reduce_columns(m->g,
                            random_chance(&m->r, 60)   ? "sum"
                            : random_chance(&m->r, 50) ? "mean"
                                                       : "max",
                            y);
    return coda_tanh(m->g, random_chance(&m->r, 70) ? coda_reshape(m->g, y, rank, dim) : y);
}

static coda_value grow_lookup(struct rows_maker *m)
{
    int64_t table[2] = {1 + random_below(&m->r, 9), m->dim[m->rank - 1]};
    if (m->opt.elements || m->rank < 2) return CODA_NONE;
    coda_value t = coda_input(m->g, new_name(m, "t"), m->opt.dtype, 2, table);
    return coda_embedding(m->g, t, coda_input(m->g, new_name(m, "i"), CODA_I32, m->rank - 1, m->dim));
}

/* A state that is read, becomes a value of its shape, and perhaps is read again. */
static coda_value grow_state(struct rows_maker *m, coda_value x)
{
    int64_t dim[CODA_MAX_RANK];
    int rank = shape_of(m, x, dim);
    if (rank < 1) return CODA_NONE;
    coda_value s = coda_state(m->g, new_name(m, "s"), dtype_of(m, x), rank, dim), y = x;
    if (random_chance(&m->r, 70)) y = coda_add(m->g, coda_scale(m->g, s, 0.5f), x);
    if (random_chance(&m->r, 40)) keep(m, grow_unary(m, s));
    s = coda_assign(m->g, s, y);
    if (random_chance(&m->r, 50)) return random_chance(&m->r, 40) ? coda_tanh(m->g, s) : y;
    return coda_mul(m->g, s, x);
}

static void grow(struct rows_maker *m)
{
    coda_value x = m->pool[draw(m)];
    int kind = (int)random_below(&m->r, 100);
    if (kind < 22) keep(m, grow_unary(m, x));
    else if (kind < 66) keep(m, grow_binary(m, x));
    else if (kind < 76) keep(m, grow_statistic(m, x));
    else if (kind < 81) keep(m, grow_columns(m, x));
    else if (kind < 86) keep(m, grow_view(m, x));
    else if (kind < 88) keep(m, grow_lookup(m));
    else if (kind < 91) keep(m, grow_level(m, x));
    else if (kind < 94) keep(m, grow_window(m, x));
    else if (kind < 97) keep(m, grow_state(m, x));
    else new_leaf(m);
}

/* What nobody reads, and some of the rest. */
static void add_outputs(struct rows_maker *m)
{
    char name[32];
    for (int i = 0, n = 0; i < m->pooled; i++) {
        bool last = i == m->pooled - 1 && !n;
        if (m->read[i] && !last && !random_chance(&m->r, 6)) continue;
        snprintf(name, sizeof name, "y%d", n++);
        coda_output(m->g, name, coda_tanh(m->g, m->pool[i]));
    }
}

graph *random_rows(uint64_t seed, const struct rows_options *opt)
{
    struct rows_maker m = {.g = coda_graph_new(), .r = {seed * 2654435761u + 17}};
    if (!m.g) return NULL;
    if (opt) m.opt = *opt;
    if (!m.opt.dtype) m.opt.dtype = CODA_F32;
    int64_t most = m.opt.most ? m.opt.most : 40;
    m.rank = 1 + (int)random_below(&m.r, 4);
    for (int d = 0; d < m.rank; d++) m.dim[d] = 1 + random_below(&m.r, d + 2 < m.rank ? MIN(most, 5) : most);
    if (random_chance(&m.r, 30)) m.dim[m.rank - 1] = CEIL_DIV(m.dim[m.rank - 1], 8) * 8;
    for (int i = 2 + (int)random_below(&m.r, LEAVES); i > 0; i--) new_leaf(&m);
    int operations = m.opt.operations ? m.opt.operations : 5 + (int)random_below(&m.r, 24);
    while (operations-- > 0) grow(&m);
    add_outputs(&m);
    return m.g;
}
