/* util_lines.c -- draws graphs of small programs over the same few rows, which a plan may put together. */
#include "util_lines.h"

#include <stdio.h>

enum { VALUES = 64, OPERATIONS = 14, TABLE = 40, CACHE = 400, LARGEST = 1 << 20 };

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
    coda_value version[4]; /* of each state: integers, integers, others, a cache of integers */
    int pooled, leaves;
};

static void put(struct lines *l, coda_value v, int64_t most, int state)
{
    if (l->pooled < VALUES) l->pool[l->pooled++] = (struct value){v, most, state};
}

/* [n], [n, 1] or [1, n]. */
static int draw_shape(struct lines *l, int64_t dim[2])
{
    int64_t shape = random_below(&l->r, 3);
    dim[0] = shape == 2 ? 1 : l->n;
    dim[1] = shape == 1 ? 1 : l->n;
    return shape ? 2 : 1;
}

static const char *name(struct lines *l, char text[8])
{
    snprintf(text, 8, "x%d", l->leaves++);
    return text;
}

static void leaf(struct lines *l, bool integer)
{
    char text[8];
    int64_t dim[2];
    int rank = draw_shape(l, dim);
    put(l, coda_input(l->g, name(l, text), integer ? CODA_I32 : CODA_F32, rank, dim), integer ? 100 : 0, 0);
}

static void state(struct lines *l, int which)
{
    char text[8];
    int64_t dim[2];
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

/* The value as a column of rows, or as any of the three shapes. */
static coda_value shaped(struct lines *l, coda_value v, bool column)
{
    int64_t dim[2] = {l->n, 1};
    int rank = column ? 2 : draw_shape(l, dim);
    return coda_reshape(l->g, v, rank, dim);
}

static void number(struct lines *l, struct value a)
{
    struct value b = pick(l, true);
    coda_value x = shaped(l, a.v, true), y = shaped(l, b.v, true);
    coda_value sum = random_chance(&l->r, 70) ? coda_add(l->g, x, y) : coda_sub(l->g, x, y);
    if (a.most + b.most < LARGEST)
        put(l, shaped(l, coda_cast(l->g, sum, CODA_I32), false), a.most + b.most, 0);
}

static void found(struct lines *l, struct value id)
{
    char text[8];
    bool own = random_chance(&l->r, 50); /* else the cache that this graph appends to */
    coda_value table =
        own ? coda_input(l->g, name(l, text), CODA_I32, 2, (int64_t[]){TABLE, 1}) : l->version[3];
    put(l, shaped(l, coda_embedding(l->g, table, shaped(l, id.v, false)), false), LARGEST / 8, 0);
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

static void appended(struct lines *l)
{
    char text[8];
    coda_value slots = coda_input(l->g, name(l, text), CODA_I32, 1, &l->n);
    struct value v = pick(l, true);
    if (v.state) return;
    written(l, 3, coda_append(l->g, l->version[3], shaped(l, v.v, true), slots, NULL), 0);
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
    l.version[3] = coda_state(l.g, "cache", CODA_I32, 2, (int64_t[]){CACHE, 1});
    for (int i = 0; i < OPERATIONS; i++) operation(&l);
    coda_output(l.g, "y", pick(&l, true).v);
    coda_output(l.g, "z", coda_tanh(l.g, pick(&l, false).v));
    return (graph *)l.g;
}
