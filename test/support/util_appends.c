/* util_appends.c -- draws graphs that append to caches, as text. */
#include "util_appends.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_CUTS = 4 };

struct caches {
    struct text t;
    struct random r;
    int64_t batch, rows, columns; /* of what is appended: [batch, rows, columns], without batch if it is 0 */
    int values, appends;
};

static bool chance(struct caches *c, int percent) { return random_chance(&c->r, percent); }
static int64_t below(struct caches *c, int64_t n) { return random_below(&c->r, n); }

static int64_t one_of(struct caches *c, const int64_t *from, int n) { return from[below(c, n)]; }

/* Begins the line of a new value, and returns its number. */
static int line(struct caches *c)
{
    text_printf(&c->t, "%%v%d = ", c->values);
    return c->values++;
}

/* "[2,3,": what leads the columns. */
static void print_rows(struct caches *c)
{
    text_append(&c->t, "[");
    if (c->batch) text_printf(&c->t, "%" PRId64 ",", c->batch);
    text_printf(&c->t, "%" PRId64, c->rows);
}

/* Integers of 0..99, as f32 or as 16 bits, which hold them. */
static int integers(struct caches *c, int64_t columns, const char *dtype)
{
    int leaf = line(c);
    text_append(&c->t, "input i32");
    print_rows(c);
    text_printf(&c->t, ",%" PRId64 "]\n", columns);
    int x = line(c);
    text_printf(&c->t, "cast %%v%d {to=%s}\n", leaf, dtype);
    return x;
}

/* Of at most 99 * 99 * 24: below 2^24 also in what is summed on the way. */
static int product(struct caches *c, const char *dtype)
{
    static const int64_t sizes[] = {8, 16, 24, 5};
    int64_t k = one_of(c, sizes, 4);
    int x = integers(c, k, dtype), leaf = line(c);
    text_printf(&c->t, "%s i32[%" PRId64 ",%" PRId64 "]\n", chance(c, 50) ? "input" : "weight", c->columns,
                k);
    int w = line(c);
    text_printf(&c->t, "cast %%v%d {to=%s}\n", leaf, dtype);
    int y = line(c);
    text_printf(&c->t, "matmul %%v%d, %%v%d {f32=1}\n", x, w);
    return y;
}

/* Half of it, or what is above a number, or less its row's. */
static int mapped(struct caches *c, int x)
{
    int64_t which = below(c, 3);
    if (which == 2) {
        int key = integers(c, 1, "f32"), y = line(c);
        text_printf(&c->t, "sub %%v%d, %%v%d\n", x, key);
        return y;
    }
    int y = line(c);
    text_printf(&c->t, which ? "scale %%v%d {alpha=-0.5}\n" : "relu %%v%d\n", x);
    return y;
}

/* Each segment of some columns less its largest. */
static int less_largest(struct caches *c, int x, int64_t columns, int64_t each)
{
    int heads = line(c);
    text_printf(&c->t, "reshape %%v%d {", x);
    int d = 0;
    if (c->batch) text_printf(&c->t, "d%d=%" PRId64 ", ", d++, c->batch);
    text_printf(&c->t, "d%d=%" PRId64 ", d%d=%" PRId64 ", d%d=%" PRId64 ", rank=%d}\n", d, c->rows, d + 1,
                columns / each, d + 2, each, d + 3);
    int most = line(c);
    text_printf(&c->t, "max %%v%d\n", heads);
    int less = line(c);
    text_printf(&c->t, "sub %%v%d, %%v%d\n", heads, most);
    int y = line(c);
    text_printf(&c->t, "reshape %%v%d {", less);
    if (c->batch) text_printf(&c->t, "d0=%" PRId64 ", ", c->batch);
    text_printf(&c->t, "d%d=%" PRId64 ", d%d=%" PRId64 ", rank=%d}\n", d, c->rows, d + 1, columns, d + 2);
    return y;
}

/* ---- Caches ---- */

struct cache {
    int state;
    bool by_heads, narrow;
    int64_t heads, columns;
    const char *dtype;
};

static int64_t divisor(struct caches *c, int64_t n, int64_t most)
{
    int64_t d = 1 + below(c, most);
    while (n % d) d--;
    return d;
}

/* Strides in which dimensions lie in any order, with gaps; columns of rows evenly apart. */
static void print_strides(struct caches *c, int rank, const int64_t *dim, bool any)
{
    int order[4] = {0, 1, 2, 3};
    int64_t stride[4], step = chance(c, 30) ? 2 : 1;
    for (int i = rank - 1; i > 0 && any; i--) {
        int j = (int)below(c, i + 1), swap = order[i];
        order[i] = order[j], order[j] = swap;
    }
    for (int i = rank - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step = step * dim[order[i]] + (any || i == rank - 1 ? below(c, 3) * 4 : 0);
    }
    text_append(&c->t, " stride=[");
    for (int d = 0; d < rank; d++) text_printf(&c->t, "%s%" PRId64, d ? "," : "", stride[d]);
    text_append(&c->t, "]");
}

static struct cache new_cache(struct caches *c, int64_t columns)
{
    static const char *const dtype[] = {"f8e4m3", "f8e4m3", "f32", "bf16", "f16"};
    static const int64_t pages[] = {1, 2, 3, 4, 7, 16};
    struct cache k = {.columns = columns, .by_heads = chance(c, 60), .dtype = dtype[below(c, 5)]};
    int64_t dim[4] = {1 + below(c, 40), columns};
    int rank = 2;
    k.narrow = k.dtype[1] == '8';
    k.heads = divisor(c, columns, 8);
    if (k.by_heads) {
        rank = 4;
        dim[0] = 1 + below(c, 9), dim[1] = k.heads, dim[2] = one_of(c, pages, 6), dim[3] = columns / k.heads;
    } else if (chance(c, 40)) {
        rank = 3;
        dim[2] = columns, dim[1] = 1 + below(c, 9);
    }
    k.state = line(c);
    text_printf(&c->t, "state %s[", k.dtype);
    for (int d = 0; d < rank; d++) text_printf(&c->t, "%s%" PRId64, d ? "," : "", dim[d]);
    text_append(&c->t, "]");
    if (chance(c, 40)) print_strides(c, rank, dim, k.by_heads);
    text_append(&c->t, "\n");
    return k;
}

/* Integers of -25..99, one or one for each head; 0 among them. */
static int scales(struct caches *c, const struct cache *k)
{
    int64_t n = chance(c, 40) ? 1 : k->heads;
    int leaf = line(c);
    text_printf(&c->t, "input i32[%" PRId64 "]\n", n);
    int x = line(c);
    text_printf(&c->t, "cast %%v%d {to=f32}\n", leaf);
    if (chance(c, 60)) return x;
    int y = line(c);
    text_printf(&c->t, "scale %%v%d {alpha=-0.25}\n", x);
    return y;
}

static void append(struct caches *c, struct cache *k, int x)
{
    int slots = line(c), scale = -1;
    text_append(&c->t, "input i32");
    print_rows(c);
    text_append(&c->t, "]\n");
    if (k->narrow && chance(c, 70)) scale = scales(c, k);
    if (!k->narrow && k->dtype[0] != 'f') {
        int cast = line(c);
        text_printf(&c->t, "cast %%v%d {to=%s}\n", x, k->dtype);
        x = cast;
    } else if (!k->narrow && k->dtype[1] == '1') {
        int cast = line(c);
        text_printf(&c->t, "cast %%v%d {to=f16}\n", x);
        x = cast;
    }
    int next = line(c);
    text_printf(&c->t, "append %%v%d, %%v%d, %%v%d", k->state, x, slots);
    if (scale >= 0) text_printf(&c->t, ", %%v%d", scale);
    text_append(&c->t, k->by_heads ? " {layout=1}\n" : "\n");
    k->state = next;
    c->appends++;
}

static void read_whole(struct caches *c, const struct cache *k)
{
    int y = line(c);
    text_printf(&c->t, "cast %%v%d {to=%s}\noutput %%y%d = %%v%d\n", k->state, k->narrow ? "f32" : k->dtype,
                y, y); /* which the reference does not round to 16 bits */
}

/* Columns first..end of x, which are perhaps computed with, to a cache of their own. */
static void part(struct caches *c, int x, int64_t first, int64_t end)
{
    static const int64_t segment[] = {16, 32, 64};
    int64_t each = one_of(c, segment, 3), columns = end - first;
    int v = x;
    if (columns < c->columns) {
        v = line(c);
        text_printf(&c->t, "slice %%v%d {axis=%d, start=%" PRId64 ", stop=%" PRId64 ", step=1}\n", x,
                    c->batch ? 2 : 1, first, end);
    }
    if (columns % each == 0 && chance(c, 40)) v = less_largest(c, v, columns, each);
    else if (chance(c, 30)) v = mapped(c, v);
    if (chance(c, 20)) text_printf(&c->t, "output %%o%d = %%v%d\n", v, v);
    struct cache k = new_cache(c, columns);
    if (chance(c, 30)) read_whole(c, &k);
    append(c, &k, v);
    if (chance(c, 30)) read_whole(c, &k);
    if (chance(c, 20)) append(c, &k, v);
}

/* What is made of both halves, or of every other column. */
static void halves(struct caches *c, int x, int64_t axis, int64_t half)
{
    bool apart = chance(c, 50);
    int a = line(c);
    text_printf(&c->t, "slice %%v%d {axis=%" PRId64 ", stop=%" PRId64 ", step=%d}\n", x, axis,
                apart ? half : 2 * half - 1, apart ? 1 : 2);
    int b = line(c);
    text_printf(&c->t, "slice %%v%d {axis=%" PRId64 ", start=%" PRId64 ", stop=%" PRId64 ", step=%d}\n", x,
                axis, apart ? half : 1, 2 * half, apart ? 1 : 2);
    int y = line(c);
    text_printf(&c->t, "sub %%v%d, %%v%d\n", a, b);
    struct cache k = new_cache(c, half);
    append(c, &k, chance(c, 50) ? y : chance(c, 50) ? a : b);
    text_printf(&c->t, "output %%h%d = %%v%d\n", y, y);
}

/* All columns, or ranges of them, of which some go nowhere. */
static void parts(struct caches *c, int x)
{
    int cuts = (int)below(c, MOST_CUTS + 1);
    int64_t axis = c->batch ? 2 : 1, half = c->columns / 2, first = 0,
            unit = c->columns % 16 || chance(c, 30) ? 1 : 16;
    if (!cuts) part(c, x, 0, c->columns);
    if (half && chance(c, 30)) halves(c, x, axis, half);
    for (int i = 0; i < cuts && first < c->columns; i++) {
        int64_t end = first + unit * (1 + below(c, (c->columns - first) / unit));
        if (i == cuts - 1 && chance(c, 50)) end = c->columns;
        if (chance(c, 80)) part(c, x, first, end);
        first = end;
    }
}

graph *random_appends(uint64_t seed)
{
    static const int64_t rows[] = {1, 2, 3, 8, 17, 64, 130}, columns[] = {1, 2, 5, 12, 48, 64, 96, 160, 192};
    struct caches c = {.r = {seed ^ 0x517cc1b727220a95u}};
    coda_graph *g = NULL;
    c.batch = chance(&c, 30) ? 1 + below(&c, 3) : 0;
    c.rows = one_of(&c, rows, 7);
    c.columns = one_of(&c, columns, 9);
    bool multiplied = chance(&c, 70);
    int x = multiplied ? product(&c, chance(&c, 60)   ? "bf16"
                                     : chance(&c, 50) ? "f16"
                                                      : "f32")
                       : integers(&c, c.columns, "f32");
    if (chance(&c, 30)) x = mapped(&c, x);
    parts(&c, x);
    if (c.appends == 0 || chance(&c, 40)) text_printf(&c.t, "output %%x = %%v%d\n", x);
    coda_graph_parse(&g, text_str(&c.t));
    text_free(&c.t);
    return g;
}
