/* util_symbolic.c -- draws graphs over symbols, by one code for symbols and for numbers. */
#include "util_symbolic.h"

#include "util_random.h"

#include <stdio.h>
#include <string.h>

struct maker {
    coda_graph *g;
    struct random r;
    bool numbers;
    int64_t b, t, s; /* extents */
    int64_t rows;    /* B*T */
    int64_t columns; /* of the stream, x [B*T, columns] */
    coda_dtype dtype;
    int leaves;
    bool smooth; /* all patterns have a gradient */
    bool many;   /* rows of a sequence: their square times S would be a million */
};

static struct symbol range_of(uint64_t seed, int symbol)
{
    struct random r = {seed ^ 0x9e3779b9u};
    bool empty = random_chance(&r, 30);
    static const int64_t most[] = {24, 70, 130};
    int64_t t = most[random_below(&r, 3)], s = 8 * (1 + random_below(&r, 8));
    if (seed & SYMBOLIC_WIDE && symbol == 0) return (struct symbol){"B", 1, 90, 1};
    if (seed & SYMBOLIC_WIDE) t *= 20, s *= 50;
    if (symbol == 0) return (struct symbol){"B", 1, 1 + random_below(&r, 3), 1};
    if (symbol == 1) return (struct symbol){"T", !empty, t, 1};
    return (struct symbol){"S", empty ? 0 : 8, s, 8};
}

void symbolic_shape(uint64_t seed, int shape, int64_t *values)
{
    struct random r = {seed + 77 * (uint64_t)shape};
    for (int i = 0; i < SYMBOLIC_DIMS; i++) {
        struct symbol s = range_of(seed, i);
        int64_t v = s.least + random_below(&r, s.most - s.least + 1);
        if (random_chance(&r, 50)) v = 8 * random_below(&r, s.most / 8 + 1) - 1 + random_below(&r, 3);
        if (shape == 0) v = s.least;
        if (shape == 1) v = s.most;
        if (shape == 2) v = 1;
        v = MIN(MAX(v / s.multiple * s.multiple, s.least), s.most);
        values[i] = v;
    }
}

/* ---- Extents: numbers are computed with here, not by the library ---- */

static int64_t times(struct maker *m, int64_t a, int64_t b)
{
    return m->numbers ? a * b : coda_dim_mul(m->g, a, b);
}
static int64_t plus(struct maker *m, int64_t a, int64_t b)
{
    return m->numbers ? a + b : coda_dim_add(m->g, a, b);
}
static int64_t minus(struct maker *m, int64_t a, int64_t b)
{
    return m->numbers ? a - b : coda_dim_sub(m->g, a, b);
}

/* ---- Leaves ---- */

static const char *name(struct maker *m, const char *stem)
{
    static char text[32];
    snprintf(text, sizeof text, "%s%d", stem, m->leaves++);
    return text;
}

/* Of integers some are int64. */
static coda_value leaf(struct maker *m, coda_dtype t, int rank, const int64_t *dims)
{
    if (t == CODA_I32 && m->leaves % 3 == 0) t = CODA_I64;
    return coda_input(m->g, name(m, "x"), t, rank, dims);
}

static coda_value weight(struct maker *m, int64_t n, int64_t k)
{
    return coda_weight(m->g, name(m, "w"), m->dtype, 2, (int64_t[]){n, k});
}

/* Rows with room behind each, now and then. */
static coda_value stream(struct maker *m, int64_t rows, int64_t columns)
{
    int64_t dims[] = {rows, columns};
    if (!random_chance(&m->r, 25)) return leaf(m, m->dtype, 2, dims);
    return coda_input_strided(m->g, name(m, "x"), m->dtype, 2, dims, (int64_t[]){columns + 8, 1});
}

static coda_value reshape(struct maker *m, coda_value x, int rank, const int64_t *dims)
{
    return coda_reshape(m->g, x, rank, dims);
}

/* ---- Patterns: x is [B*T, columns], as is what they return ---- */

typedef coda_value pattern(struct maker *m, coda_value x);

static coda_value product(struct maker *m, coda_value x)
{
    coda_value w = weight(m, m->columns, m->columns);
    return random_chance(&m->r, 50) ? coda_matmul(m->g, x, w) : coda_matmul_kn(m->g, x, w);
}

static coda_value norm(struct maker *m, coda_value x)
{
    int64_t n = m->columns;
    coda_value gain = coda_weight(m->g, name(m, "g"), m->dtype, 1, &n);
    if (random_chance(&m->r, 50)) return coda_rms_norm(m->g, x, gain, 1e-5f);
    return coda_layer_norm(m->g, x, gain, CODA_NONE, 1e-5f);
}

static coda_value gate(struct maker *m, coda_value x)
{
    coda_value h = coda_matmul(m->g, norm(m, x), weight(m, 2 * m->columns, m->columns));
    return coda_add(m->g, coda_swiglu(m->g, h, random_chance(&m->r, 50) ? CODA_STACKED : CODA_INTERLEAVED),
                    x);
}

/* A leaf of every extent, one that repeats, and one for each row. */
static coda_value elementwise(struct maker *m, coda_value x)
{
    coda_value a = stream(m, m->rows, m->columns), b = leaf(m, m->dtype, 2, (int64_t[]){1, m->columns});
    coda_value c = leaf(m, CODA_F32, 2, (int64_t[]){m->rows, 1});
    return coda_mul(m->g, coda_gelu_tanh(m->g, coda_add(m->g, x, coda_mul(m->g, a, b))), c);
}

/* Vectors that maps make of weights, and of each sequence's own. */
static coda_value computed(struct maker *m, coda_value x)
{
    int64_t n = m->columns, one = 1, d[] = {m->b, m->t, n};
    int rank = 1 + (int)random_below(&m->r, 2);
    coda_value w = coda_weight(m->g, name(m, "g"), m->dtype, rank, rank > 1 ? (int64_t[]){1, n} : &n);
    coda_value v = random_chance(&m->r, 50) ? leaf(m, m->dtype, 1, &n)
                                            : coda_weight(m->g, name(m, "g"), m->dtype, 1, &one);
    w = coda_add(m->g, w, random_chance(&m->r, 50) ? coda_constant(m->g, m->dtype, 1) : v);
    if (random_chance(&m->r, 40)) w = coda_silu(m->g, coda_mul(m->g, w, v));
    x = coda_mul(m->g, x, w);
    if (random_chance(&m->r, 40)) return x;
    coda_value s = coda_add(m->g, leaf(m, m->dtype, 3, (int64_t[]){m->b, 1, n}), w);
    x = coda_add(m->g, reshape(m, x, 3, d), coda_tanh(m->g, s));
    return reshape(m, x, 2, (int64_t[]){m->rows, n});
}

static coda_value statistic(struct maker *m, coda_value x)
{
    coda_value row = coda_row_mean(m->g, x);
    if (random_chance(&m->r, 50)) row = reshape(m, reshape(m, row, 1, &m->rows), 2, (int64_t[]){m->rows, 1});
    return coda_sub(m->g, x, row);
}

static coda_value columns(struct maker *m, coda_value x)
{
    return coda_add(m->g, x, coda_reduce_columns(m->g, random_chance(&m->r, 50) ? "max" : "sum", x));
}

/* To [B, T, columns], turned, and back. */
static coda_value turned(struct maker *m, coda_value x)
{
    int64_t flat[] = {m->rows, m->columns};
    coda_value y = reshape(m, x, 3, (int64_t[]){m->b, m->t, m->columns});
    y = coda_silu(m->g, coda_transpose(m->g, y, (int[]){1, 0, 2}));
    return reshape(m, coda_transpose(m->g, y, (int[]){1, 0, 2}), 2, flat);
}

static coda_value rotated(struct maker *m, coda_value x)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.head_dim = m->columns / 2;
    coda_value p = random_chance(&m->r, 50) ? CODA_NONE : leaf(m, CODA_I32, 1, &m->t);
    coda_value y = reshape(m, x, 3, (int64_t[]){m->b, m->t, m->columns});
    return reshape(m, coda_rope(m->g, y, p, &o), 2, (int64_t[]){m->rows, m->columns});
}

/* Older keys before those of this run: [B, S + T, columns]. */
static coda_value attention(struct maker *m, coda_value x)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    int64_t d[] = {m->b, m->t, m->columns}, old[] = {m->b, m->s, m->columns};
    coda_value q = reshape(m, product(m, x), 3, d), k = q, lengths = CODA_NONE;
    bool longer = random_chance(&m->r, 60);
    o.heads = 2;
    o.causal = random_chance(&m->r, 60);
    if (longer) k = coda_concat(m->g, 1, (coda_value[]){leaf(m, m->dtype, 3, old), q}, 2);
    if (random_chance(&m->r, 40)) {
        lengths = leaf(m, CODA_I32, 1, &m->b);
        o.align = CODA_ALIGN_END;
    }
    int64_t pairs[] = {2, m->t, longer ? plus(m, m->s, m->t) : m->t};
    if (random_chance(&m->r, 30)) o.bias = leaf(m, CODA_F32, 3, pairs);
    return reshape(m, coda_attention(m->g, q, k, k, lengths, &o), 2, (int64_t[]){m->rows, m->columns});
}

/* The rows as those of B sequences, whose keys are in a cache. */
static coda_value packed(struct maker *m, coda_value x)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    int64_t cache[] = {m->b, m->s, m->columns}, starts = plus(m, m->b, 1);
    coda_value k = leaf(m, m->dtype, 3, cache);
    o.heads = 2, o.causal = random_chance(&m->r, 60), o.align = CODA_ALIGN_LENGTH;
    o.starts = leaf(m, CODA_I32, 1, &starts);
    if (random_chance(&m->r, 40)) o.bias = leaf(m, CODA_F32, 3, (int64_t[]){2, m->rows, m->s});
    return coda_attention(m->g, product(m, x), k, k, leaf(m, CODA_I32, 1, &m->b), &o);
}

/* The rows as those of B sequences, packed or of T tokens each, behind what they have seen. */
static coda_value convolved(struct maker *m, coda_value x)
{
    int64_t kept[] = {m->b, 3, m->columns}, starts = plus(m, m->b, 1), rows[] = {m->rows, m->columns};
    coda_value before = leaf(m, m->dtype, 3, kept), w = weight(m, m->columns, 4), after;
    bool packed = random_chance(&m->r, 50);
    coda_value at = packed ? leaf(m, CODA_I32, 1, &starts) : CODA_NONE;
    if (!packed) x = reshape(m, x, 3, (int64_t[]){m->b, m->t, m->columns});
    coda_value y = coda_conv1d(m->g, x, w, CODA_NONE, before, at, &after);
    coda_output(m->g, name(m, "a"), after);
    m->smooth = false;
    return packed ? y : reshape(m, y, 2, rows);
}

/* Their columns as heads of one, with states that go from run to run. */
static coda_value scanned(struct maker *m, coda_value x)
{
    int64_t states[] = {m->b, m->columns, 4}, starts = plus(m, m->b, 1), rows[] = {m->rows, m->columns};
    bool packed = random_chance(&m->r, 50);
    coda_scan_options o = CODA_SCAN_OPTIONS_INIT;
    coda_value at = packed ? leaf(m, CODA_I32, 1, &starts) : CODA_NONE, after;
    coda_value a = coda_neg(m->g, coda_exp(m->g, coda_cast(m->g, weight(m, m->columns, 4), CODA_F32)));
    coda_value b = coda_matmul(m->g, x, weight(m, 4, m->columns)), c = coda_tanh(m->g, b);
    int64_t batch[] = {m->b, m->t, m->columns}, few[] = {m->b, m->t, 4};
    if (!packed) x = reshape(m, x, 3, batch), b = reshape(m, b, 3, few), c = reshape(m, c, 3, few);
    o.softplus = 1, o.gate = x;
    coda_value y = coda_scan(m->g, x, x, a, b, c, leaf(m, CODA_F32, 3, states), at, &o, &after);
    coda_output(m->g, name(m, "a"), after);
    m->smooth = false;
    return packed ? y : reshape(m, y, 2, rows);
}

/* The same by the gated delta rule, keys in one head, values in two. */
static coda_value remembered(struct maker *m, coda_value x)
{
    coda_delta_options o = CODA_DELTA_OPTIONS_INIT;
    bool packed = random_chance(&m->r, 50);
    int64_t rows[] = {m->rows, m->columns}, starts = plus(m, m->b, 1), k = 8, few[] = {m->rows, 2};
    int64_t cube[] = {m->b, m->t, m->columns}, heads[] = {m->b, m->t, 2}, keys[] = {m->b, m->t, k};
    o.heads = 2, o.key_heads = 1, o.norm = 1, o.eps = 1e-5f;
    coda_value before = leaf(m, CODA_F32, 4, (int64_t[]){m->b, 2, k, m->columns / 2}), after;
    coda_value b = coda_sigmoid(m->g, leaf(m, CODA_F32, 2, few)), decay = coda_scale(m->g, b, -1);
    coda_value q = coda_slice(m->g, x, 1, 0, k, 1), at = packed ? leaf(m, CODA_I32, 1, &starts) : CODA_NONE;
    if (!packed) x = reshape(m, x, 3, cube), q = reshape(m, coda_scale(m->g, q, 1), 3, keys);
    if (!packed) b = reshape(m, b, 3, heads), decay = reshape(m, decay, 3, heads);
    coda_value y = coda_delta(m->g, q, q, x, decay, b, before, at, &o, &after);
    coda_output(m->g, name(m, "a"), after);
    m->smooth = false;
    return packed ? y : reshape(m, y, 2, rows);
}

/* One more row ahead of all but the last. */
static coda_value shifted(struct maker *m, coda_value x)
{
    coda_value first = leaf(m, m->dtype, 2, (int64_t[]){1, m->columns});
    coda_value y = coda_concat(m->g, 0, (coda_value[]){first, x}, 2);
    return coda_add(m->g, x, coda_slice(m->g, y, 0, 0, m->rows, 1));
}

static coda_value tail(struct maker *m, coda_value x)
{
    int64_t all = plus(m, m->rows, 5);
    coda_value y = stream(m, all, m->columns);
    return coda_add(m->g, x, coda_slice(m->g, y, 0, minus(m, all, m->rows), all, 1));
}

static coda_value looked_up(struct maker *m, coda_value x)
{
    coda_value ids = leaf(m, CODA_I32, 2, (int64_t[]){m->b, m->t});
    coda_value y = coda_embedding(m->g, weight(m, 19, m->columns), ids);
    return coda_add(m->g, x, reshape(m, y, 2, (int64_t[]){m->rows, m->columns}));
}

static int64_t drawn(struct maker *m);

/* Rows added by id, and looked up again. */
static coda_value summed_by_id(struct maker *m, coda_value x)
{
    int64_t rows = drawn(m);
    coda_value ids = leaf(m, CODA_I32, 1, &m->rows), sums = coda_row_sums(m->g, x, ids, rows);
    coda_output(m->g, name(m, "s"), sums);
    coda_value y = coda_embedding(m->g, coda_cast(m->g, sums, m->dtype), leaf(m, CODA_I32, 1, &m->rows));
    return coda_add(m->g, x, y);
}

/* A number, a symbol, or a polynomial of them. */
static int64_t drawn(struct maker *m)
{
    switch (random_below(&m->r, 7)) {
    case 0: return random_below(&m->r, 3);
    case 1: return m->s;
    case 2: return plus(m, m->t, random_below(&m->r, 4));
    case 3: return plus(m, times(m, m->s, m->b), m->t);
    case 4: return times(m, times(m, m->many ? m->b : m->t, m->t), m->s);
    case 5: return times(m, 2 + random_below(&m->r, 2), m->rows);
    default: return m->t;
    }
}

static void leave(struct maker *m, coda_value v) { coda_output(m->g, name(m, "o"), v); }

/* Rows of several tensors one behind the other, those of each found again, and all of them in one row. */
static coda_value pieces(struct maker *m, coda_value x)
{
    enum { MOST = 3 };
    int64_t rows[MOST], first = 0, all = 0;
    coda_value part[MOST];
    int n = 1 + (int)random_below(&m->r, MOST);
    for (int i = 0; i < n; i++) {
        rows[i] = drawn(m);
        part[i] = stream(m, rows[i], m->columns);
        all = plus(m, all, rows[i]);
    }
    coda_value whole = coda_concat(m->g, 0, part, n);
    for (int i = 0; i < n; i++) {
        int64_t end = plus(m, first, rows[i]);
        leave(m, coda_add(m->g, coda_slice(m->g, whole, 0, first, end, 1), part[i]));
        first = end;
    }
    int64_t count = times(m, all, m->columns);
    leave(m, coda_silu(m->g, reshape(m, whole, 1, &count)));
    return x;
}

/* One number for all rows, beside others. */
static coda_value summed_up(struct maker *m, coda_value x)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    coda_value loss = coda_cross_entropy(m->g, x, leaf(m, CODA_I32, 1, &m->rows), &o);
    coda_value more = leaf(m, CODA_F32, 1, &m->s);
    leave(m,
          coda_concat(m->g, 0,
                      random_chance(&m->r, 50) ? (coda_value[]){loss, more} : (coda_value[]){more, loss}, 2));
    return x;
}

/* Sequences whose first rows lie together, with room behind, and what each of them adds. */
static coda_value between(struct maker *m, coda_value x)
{
    int64_t d[] = {m->b, m->t, m->columns}, step = plus(m, times(m, m->b, m->columns), m->s);
    coda_value y = coda_input_strided(m->g, name(m, "x"), m->dtype, 3, d, (int64_t[]){m->columns, step, 1});
    y = coda_add(m->g, y, leaf(m, m->dtype, 3, (int64_t[]){m->b, 1, m->columns}));
    y = coda_add(m->g, y, leaf(m, m->dtype, 2, (int64_t[]){m->t, m->columns}));
    coda_output_strided(m->g, name(m, "o"), y, (int64_t[]){m->columns, step, 1});
    return coda_add(m->g, x, reshape(m, y, 2, (int64_t[]){m->rows, m->columns}));
}

/* Pages whose heads lie together, in as many bits as rows have, or in 8. */
static coda_value paged(struct maker *m, coda_value x)
{
    enum { HEADS = 2, PAGE = 4 };
    bool narrow = random_chance(&m->r, 50);
    m->smooth = false;
    int64_t d[] = {m->b, m->t, m->columns}, heads = HEADS;
    int64_t pool[] = {plus(m, m->rows, m->s), HEADS, PAGE, m->columns / HEADS},
            table[] = {m->b, plus(m, m->s, 1)};
    coda_append_options a = CODA_APPEND_OPTIONS_INIT;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_value keys = coda_state(m->g, name(m, "k"), narrow ? CODA_F8E4M3 : m->dtype, 4, pool);
    a.layout = o.layout = CODA_LAYOUT_HND;
    if (narrow) a.scale = o.k_scale = o.v_scale = leaf(m, CODA_F32, 1, &heads);
    keys = coda_append(m->g, keys, x, leaf(m, CODA_I32, 1, &m->rows), &a);
    o.heads = o.kv_heads = HEADS, o.page = PAGE, o.causal = 1, o.align = CODA_ALIGN_LENGTH;
    o.table = leaf(m, CODA_I32, 2, table);
    if (random_chance(&m->r, 40)) o.bias = leaf(m, m->dtype, 3, (int64_t[]){HEADS, m->t, 1});
    coda_value q = reshape(m, x, 3, d), lengths = leaf(m, CODA_I32, 1, &m->b);
    return reshape(m, coda_attention(m->g, q, keys, keys, lengths, &o), 2, (int64_t[]){m->rows, m->columns});
}

static coda_value appended(struct maker *m, coda_value x)
{
    coda_value pool = coda_state(m->g, name(m, "k"), m->dtype, 2, (int64_t[]){times(m, m->b, 9), m->columns});
    coda_value slots = leaf(m, CODA_I32, 1, &m->b);
    coda_value rows = stream(m, m->b, m->columns);
    coda_append(m->g, pool, rows, slots, NULL);
    return x;
}

static void finish(struct maker *m, coda_value x)
{
    coda_value best, where, targets = leaf(m, CODA_I32, 1, &m->rows);
    coda_output(m->g, "y", x);
    if (random_chance(&m->r, 30)) {
        coda_top_k(m->g, x, 3, &best, &where);
        coda_output(m->g, "best", best);
        coda_output(m->g, "where", where);
    }
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.reduction = random_chance(&m->r, 50) ? CODA_REDUCE_NONE : CODA_REDUCE_SUM;
    if (random_chance(&m->r, 30)) coda_output(m->g, "loss", coda_cross_entropy(m->g, x, targets, &o));
}

/* Gradients of all that y is made of: products of symbolic inner sizes, sums of symbolic numbers of rows. */
static void differentiate(struct maker *m, coda_value y, coda_value x)
{
    enum { MOST = 64 };
    coda_value leaf_of[MOST], dx[MOST];
    coda_value dy = coda_input(m->g, "dy", m->dtype, 2, (int64_t[]){m->rows, m->columns});
    int n = 0;
    leaf_of[n++] = x;
    for (int i = 0; i < m->g->leaves && n < MOST; i++)
        if (m->g->node[m->g->leaf[i]].op == OP_WEIGHT)
            leaf_of[n++] = (coda_value){(uint32_t)m->g->leaf[i] + 1};
    coda_grad(m->g, &y, &dy, 1, leaf_of, n, dx, NULL);
    for (int i = 0; i < n; i++)
        if (dx[i].id) coda_output(m->g, name(m, "d"), dx[i]);
}

static pattern *const patterns[] = {
    product, norm,     gate,      elementwise,  statistic, columns, turned,    rotated, attention,
    shifted, tail,     looked_up, appended,     attention, pieces,  summed_up, between, paged,
    packed,  computed, computed,  summed_by_id, convolved, scanned, remembered};

static int64_t extent(struct maker *m, uint64_t seed, int symbol, const int64_t *values)
{
    struct symbol s = range_of(seed, symbol);
    return m->numbers ? values[symbol] : coda_symbol(m->g, s.name, s.least, s.most, s.multiple);
}

graph *symbolic_graph(uint64_t seed, const int64_t *values)
{
    static const int64_t width[] = {16, 32, 64, 128};
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    struct maker m = {.g = coda_graph_new(), .r = {seed}, .numbers = values != NULL, .smooth = true};
    if (!m.g) return NULL;
    m.columns = width[random_below(&m.r, 4)];
    m.dtype = dtype[random_below(&m.r, 3)];
    m.b = extent(&m, seed, 0, values);
    m.t = extent(&m, seed, 1, values);
    m.s = extent(&m, seed, 2, values);
    m.rows = times(&m, m.b, m.t);
    m.many = !(seed & SYMBOLIC_WIDE) && range_of(seed, 1).most > 24;
    coda_value first = stream(&m, m.rows, m.columns), x = first;
    for (int n = 1 + (int)random_below(&m.r, 5); n; n--)
        x = patterns[random_below(&m.r, ARRAY_SIZE(patterns))](&m, x);
    finish(&m, x);
    if (seed & SYMBOLIC_GRADIENTS && m.smooth) differentiate(&m, x, first);
    return m.g;
}
