/* util_lines.c -- draws graphs of small programs over the same few rows, which a plan may put together. */
#include "util_lines.h"

#include <stdio.h>

enum { VALUES = 64, OPERATIONS = 14, TABLE = 40, CACHE = 400, LARGEST = 1 << 20 };
enum { INTEGERS = 3, NARROW = 4 }; /* caches of i32 and of 8 bits */

struct value {
    coda_value v;
    int64_t most; /* of an integer; 0: it is no integer, and what is in it is of order 1 */
    int state;    /* 1 + the number of the state that it reads; 0: none */
};

struct lines {
    coda_graph *g;
    struct random r;
    int64_t n;
    struct value pool[VALUES];
    coda_value version[NARROW + 1]; /* of each state: integers, integers, others, and caches */
    int pooled, leaves;
};

static void put(struct lines *l, coda_value v, int64_t most, int state)
{
    if (l->pooled < VALUES) l->pool[l->pooled++] = (struct value){v, most, state};
}

/* n among up to two dimensions of 1: [n], [1, n], [1, n, 1] and so on. */
static int draw_shape(struct lines *l, int64_t dim[3])
{
    int rank = 1 + (int)random_below(&l->r, 3), place = (int)random_below(&l->r, rank);
    for (int d = 0; d < 3; d++) dim[d] = d == place ? l->n : 1;
    return rank;
}

static const char *name(struct lines *l, char text[8])
{
    snprintf(text, 8, "x%d", l->leaves++);
    return text;
}

static void leaf(struct lines *l, bool integer)
{
    char text[8];
    int64_t dim[3];
    int rank = draw_shape(l, dim);
    coda_dtype t = integer ? CODA_I32 : CODA_F32;
    coda_value v = random_chance(&l->r, 25) ? coda_weight(l->g, name(l, text), t, rank, dim)
                                            : coda_input(l->g, name(l, text), t, rank, dim);
    put(l, v, integer ? 100 : 0, 0);
}

static void state(struct lines *l, int which)
{
    char text[8];
    int64_t dim[3];
    bool integer = which < 2;
    int rank = draw_shape(l, dim);
    l->version[which] = coda_state(l->g, name(l, text), integer ? CODA_I32 : CODA_F32, rank, dim);
    put(l, l->version[which], integer ? 100 : 0, 1 + which);
}

static struct value pick(struct lines *l, bool integer)
{
    int at;
    do at = (int)random_below(&l->r, l->pooled);
    while ((l->pool[at].most > 0) != integer);
    return l->pool[at];
}

/* The value as a column of rows, or in any shape. */
static coda_value shaped(struct lines *l, coda_value v, bool column)
{
    int64_t dim[3] = {l->n, 1, 1};
    int rank = column ? 2 : draw_shape(l, dim);
    return coda_reshape(l->g, v, rank, dim);
}

/* The same elements, or one of them for all, or all in another order, as a column that is no reshape. */
static coda_value seen(struct lines *l, coda_value v)
{
    int64_t dim[] = {1, l->n, 1}, at = random_below(&l->r, l->n);
    coda_value column = shaped(l, v, true);
    switch (random_below(&l->r, 10)) {
    case 0: return coda_slice(l->g, column, 0, at, at + 1, 1);
    case 1: return shaped(l, coda_transpose(l->g, coda_reshape(l->g, v, 2, dim), (int[]){1, 0}), true);
    case 2: {
        coda_value twice = coda_concat(l->g, 0, (coda_value[]){column, column}, 2);
        return coda_slice(l->g, twice, 0, at, at + l->n, 1);
    }
    default: return column;
    }
}

static void number(struct lines *l, struct value a)
{
    char text[8];
    struct value b = pick(l, true);
    bool one = random_chance(&l->r, 10);
    coda_value x = shaped(l, a.v, true), y = one ? coda_scalar(l->g, name(l, text), CODA_I32) : seen(l, b.v);
    if (one) b.most = 100;
    coda_value sum = random_chance(&l->r, 70) ? coda_add(l->g, x, y) : coda_sub(l->g, x, y);
    if (a.most + b.most < LARGEST)
        put(l, shaped(l, coda_cast(l->g, sum, CODA_I32), false), a.most + b.most, 0);
}

/* Rows of a table that is an argument, of the cache that this graph appends to, or of what it computes. */
static void found(struct lines *l, struct value id)
{
    char text[8];
    int64_t dim[] = {TABLE, 1}, which = random_below(&l->r, 4);
    bool integer = which < 3;
    coda_value table = which == 0   ? coda_input(l->g, name(l, text), CODA_I32, 2, dim)
                       : which == 1 ? l->version[INTEGERS]
                                    : shaped(l, pick(l, integer).v, true);
    coda_value rows = coda_embedding(l->g, table, shaped(l, id.v, false));
    put(l, shaped(l, rows, false), integer ? LARGEST / 8 : 0, 0);
}

/* Of rows that are no line: a program between. */
static void summed(struct lines *l)
{
    char text[8];
    coda_value w = coda_input(l->g, name(l, text), CODA_F32, 2, (int64_t[]){l->n, 16});
    coda_value x = shaped(l, pick(l, random_chance(&l->r, 50)).v, true);
    put(l, coda_tanh(l->g, coda_reduce(l->g, "sum", coda_mul(l->g, x, w), CODA_NONE)), 0, 0);
}

/* What read the version before is not read again. */
static void written(struct lines *l, int which, coda_value next, int64_t most)
{
    int kept = 0;
    for (int i = 0; i < l->pooled; i++)
        if (l->pool[i].state != 1 + which) l->pool[kept++] = l->pool[i];
    l->pooled = kept;
    l->version[which] = next;
    if (which < 3) put(l, next, most, 1 + which);
}

static void assigned(struct lines *l)
{
    int which = (int)random_below(&l->r, 3);
    int64_t dim[CODA_MAX_RANK];
    struct value v = pick(l, which < 2);
    if (v.state) return; /* a copy of another state, or of itself */
    int rank = coda_value_shape(l->g, l->version[which], dim, NULL);
    coda_value as = coda_reshape(l->g, which < 2 ? v.v : coda_tanh(l->g, v.v), rank, dim);
    written(l, which, coda_assign(l->g, l->version[which], as), v.most);
}

static coda_value as_float(struct lines *l, coda_value v) { return coda_cast(l->g, v, CODA_F32); }

/* To a cache. In 8 bits, over a scale that is computed, too, and may be 0 or less. */
static void appended(struct lines *l)
{
    char text[8];
    coda_append_options opt = CODA_APPEND_OPTIONS_INIT;
    coda_value slots = coda_input(l->g, name(l, text), CODA_I32, 1, &l->n);
    struct value v = pick(l, true), scale = pick(l, true);
    bool narrow = random_chance(&l->r, 50);
    if (v.state || (narrow && scale.state)) return;
    coda_value rows = shaped(l, v.v, true), first = shaped(l, scale.v, true);
    if (l->n > 1) first = coda_slice(l->g, first, 0, 0, 1, 1);
    if (narrow) opt.scale = as_float(l, coda_reshape(l->g, first, 1, (int64_t[]){1}));
    int which = narrow ? NARROW : INTEGERS;
    coda_value next = coda_append(l->g, l->version[which], narrow ? as_float(l, rows) : rows, slots, &opt);
    written(l, which, next, 0);
}

static void operation(struct lines *l)
{
    struct value x = pick(l, false);
    switch (random_below(&l->r, 8)) {
    case 0: assigned(l); break;
    case 1: appended(l); break;
    case 2: found(l, pick(l, true)); break;
    case 3: summed(l); break;
    case 4: put(l, shaped(l, coda_tanh(l->g, x.v), false), 0, 0); break;
    default: number(l, pick(l, true)); break;
    }
}

graph *random_lines(uint64_t seed)
{
    static const int64_t sizes[] = {1, 2, 4, 5, 33, 300};
    struct lines l = {.g = coda_graph_new(), .r = {seed ^ 0x2b7e151628aed2a6u}};
    l.n = sizes[random_below(&l.r, ARRAY_SIZE(sizes))];
    for (int i = 0; i < 4; i++) leaf(&l, i % 2);
    for (int i = 0; i < 3; i++) state(&l, i);
    l.version[INTEGERS] = coda_state(l.g, "cache", CODA_I32, 2, (int64_t[]){CACHE, 1});
    l.version[NARROW] = coda_state(l.g, "narrow", CODA_F8E4M3, 2, (int64_t[]){CACHE, 1});
    for (int i = 0; i < OPERATIONS; i++) operation(&l);
    coda_output(l.g, "y", pick(&l, true).v);
    coda_output(l.g, "z", coda_tanh(l.g, pick(&l, false).v));
    coda_output_strided(l.g, "apart", shaped(&l, pick(&l, true).v, true), (int64_t[]){3, 1});
    coda_output_add(l.g, "added", coda_tanh(l.g, shaped(&l, pick(&l, false).v, false)));
    return (graph *)l.g;
}
