/* util_random_states.c -- the pattern of random graphs that writes to states. */
#include "util_random_maker.h"

#include <stdio.h>
#include <string.h>

/* Some rows of x, cut to w columns, written to a state; one of rank 4 has its heads apart. */
static coda_value append_some(struct maker *m, coda_value state, coda_value x, int64_t w)
{
    coda_append_options o = CODA_APPEND_OPTIONS_INIT;
    struct shape s = maker_shape(m, x);
    if (maker_shape(m, state).rank == 4) o.layout = CODA_LAYOUT_HND;
    int64_t n = s.dim[s.rank - 1], from = random_below(&m->r, n - w + 1);
    if (n > w) x = maker_slice(m, x, from, from + w);
    return coda_append(m->g, state, x, maker_leaf(m, false, CODA_I32, s.rank - 1, s.dim), &o);
}

/* What a version of a state says, as a value that does not look at it. */
static coda_value look(struct maker *m, coda_value state)
{
    struct shape s = maker_shape(m, state);
    coda_value x = random_chance(&m->r, 50) ? coda_slice(m->g, state, 0, 0, (s.dim[0] + 1) / 2, 1) : state;
    if (random_chance(&m->r, 30)) return coda_reduce_columns(m->g, "max", x);
    return random_chance(&m->r, 40) ? maker_linear(m, x, maker_size(m)) : coda_tanh(m->g, x);
}

/* [slots, columns] as [pages, heads, page, columns of a head]. */
static void cut_heads(struct maker *m, int64_t *dim)
{
    int64_t heads = 1 + random_below(&m->r, 4), page = 1 + random_below(&m->r, 5);
    while (dim[1] % heads) heads--;
    dim[3] = dim[1] / heads, dim[1] = heads, dim[2] = page, dim[0] = CEIL_DIV(dim[0], page);
}

/* A cache in 8 bits: of rows that each way of running has alike, else a rounding may turn. */
static coda_value grow_narrow(struct maker *m)
{
    struct shape s = maker_shape(m, maker_draw(m));
    int64_t dim[4] = {1 + maker_size(m), s.rank > 0 ? s.dim[s.rank - 1] : 0}, w = dim[1];
    int rank = random_chance(&m->r, 50) ? 4 : 2;
    char name[32];
    if (s.rank < 2 || w == 0) return CODA_NONE;
    coda_value rows = maker_leaf(m, false, m->dtype, s.rank, s.dim);
    if (rank == 4) cut_heads(m, dim);
    snprintf(name, sizeof name, "k%d", m->leaves++);
    coda_value v = coda_state(m->g, name, CODA_F8E4M3, rank, dim);
    if (random_chance(&m->r, 40)) maker_keep(m, coda_cast(m->g, v, m->dtype));
    v = append_some(m, v, rows, w);
    if (random_chance(&m->r, 40)) maker_keep(m, coda_cast(m->g, v, CODA_F32));
    if (random_chance(&m->r, 40)) v = append_some(m, v, coda_scale(m->g, rows, 0.5f), w);
    return coda_cast(m->g, v, m->dtype);
}

/* A cache that is read, appended to, read, and perhaps appended to or assigned to again. */
coda_value maker_state(struct maker *m)
{
    coda_value x = maker_draw(m), v;
    if (random_chance(&m->r, 20)) return grow_narrow(m);
    if (random_chance(&m->r, 70)) x = maker_linear(m, x, maker_size(m));
    struct shape s = maker_shape(m, x);
    char name[32];
    int64_t stride[CODA_MAX_RANK], dim[4] = {1 + maker_size(m), s.rank > 0 ? s.dim[s.rank - 1] : 0}, w;
    if (s.rank < 2 || dim[1] == 0) return CODA_NONE;
    if (random_chance(&m->r, 40)) dim[1] = (dim[1] + 1) / 2;
    int rank = random_chance(&m->r, 30) ? 4 : 2;
    w = dim[1];
    if (rank == 4) cut_heads(m, dim);
    snprintf(name, sizeof name, "k%d", m->leaves++);
    v = maker_strides(m, rank, dim, stride) ? coda_state_strided(m->g, name, s.dtype, rank, dim, stride)
                                            : coda_state(m->g, name, s.dtype, rank, dim);
    if (random_chance(&m->r, 40)) maker_keep(m, look(m, v));
    if (random_chance(&m->r, 80)) v = append_some(m, v, x, w);
    if (random_chance(&m->r, 40)) maker_keep(m, look(m, v));
    if (random_chance(&m->r, 30)) v = append_some(m, v, random_chance(&m->r, 50) ? coda_tanh(m->g, x) : x, w);
    if (random_chance(&m->r, 30)) v = coda_assign(m->g, v, coda_scale(m->g, v, 0.5f));
    return random_chance(&m->r, 20) ? v : look(m, v);
}

/* Its state is read as it is then, by a map, too. */
coda_value maker_conv1d(struct maker *m)
{
    coda_value x = maker_draw(m), before = CODA_NONE, after, y;
    struct shape s = maker_shape(m, x);
    char name[32];
    if (m->opt.loss || (s.rank != 2 && s.rank != 3) || s.dim[s.rank - 1] == 0) return CODA_NONE;
    int64_t taps = 2 + random_below(&m->r, 4), dim[] = {s.dim[0], taps - 1, s.dim[s.rank - 1]};
    snprintf(name, sizeof name, "k%d", m->leaves++);
    if (m->opt.states) before = coda_state(m->g, name, s.dtype, s.rank, dim + (3 - s.rank));
    coda_value w = maker_leaf(m, true, s.dtype, 2, (int64_t[]){dim[2], taps});
    y = coda_conv1d(m->g, x, w, CODA_NONE, before, CODA_NONE, &after);
    if (random_chance(&m->r, 50)) y = coda_silu(m->g, y);
    if (before.id) after = coda_assign(m->g, before, after);
    if (random_chance(&m->r, 60)) maker_keep(m, random_chance(&m->r, 50) ? after : coda_tanh(m->g, after));
    return y;
}
