/* util_priced.c -- draws graphs whose plans are counted: see util_priced.h. */
#include "util_priced.h"

#include "util_random.h"

#include <stdio.h>
#include <string.h>

enum { POOL = 32, MOST_COLUMNS = 4096, MOST_PATTERNS = 5 };

struct maker {
    coda_graph *g;
    struct random r;
    coda_dtype dtype;
    int64_t b, t; /* extents */
    bool symbols; /* they are no numbers */
    bool flat;    /* values are [T, columns], else [B, T, columns] */
    coda_value pool[POOL];
    int pooled, leaves, outputs;
};

void priced_shape(uint64_t seed, int64_t *dims)
{
    static const int64_t rows[] = {1, 2, 7, 16, 33, 100, 128, 512, 1000, 4096};
    struct random r = {seed ^ 0x5851f42du};
    dims[0] = 1 + random_below(&r, 3);
    dims[1] = rows[random_below(&r, 10)];
}

/* ---- Values ---- */

static int rank_of(const struct maker *m) { return m->flat ? 2 : 3; }

static int64_t columns_of(const struct maker *m, coda_value v)
{
    int64_t dim[CODA_MAX_RANK];
    coda_dtype t;
    int rank = coda_value_shape(m->g, v, dim, &t);
    return rank > 0 ? dim[rank - 1] : 0;
}

static coda_value keep(struct maker *m, coda_value v)
{
    if (v.id && m->pooled < POOL) m->pool[m->pooled++] = v;
    return v;
}

static coda_value draw(struct maker *m)
{
    int recent = m->pooled < 3 ? m->pooled : 3;
    if (random_chance(&m->r, 70)) return m->pool[m->pooled - 1 - random_below(&m->r, recent)];
    return m->pool[random_below(&m->r, m->pooled)];
}

static int64_t draw_columns(struct maker *m)
{
    static const int64_t size[] = {64,  96,  128,  192,  256,  320,  384, 512,
                                   576, 768, 1024, 1536, 2048, 2112, 4096};
    return size[random_below(&m->r, 15)];
}

static coda_value leaf(struct maker *m, bool weight, coda_dtype t, int rank, const int64_t *dim)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", weight ? "w" : "x", m->leaves++);
    return weight ? coda_weight(m->g, name, t, rank, dim) : coda_input(m->g, name, t, rank, dim);
}

/* [B, T, columns], or [T, columns]. */
static coda_value activation(struct maker *m, coda_dtype t, int64_t columns)
{
    int64_t dim[] = {m->b, m->t, columns};
    return leaf(m, false, t, rank_of(m), dim + m->flat);
}

/* Of the columns of v: [N], [1, N], or [B, 1, N], of each sample. */
static coda_value vector(struct maker *m, coda_value v)
{
    coda_dtype t = random_chance(&m->r, 50) ? CODA_F32 : m->dtype;
    int64_t dim[] = {m->b, 1, columns_of(m, v)};
    int kind = (int)random_below(&m->r, m->flat ? 2 : 3), rank = 1 + kind;
    return leaf(m, kind < 2 && random_chance(&m->r, 70), t, rank, dim + 3 - rank);
}

static coda_value gain(struct maker *m, coda_value v)
{
    int64_t n = columns_of(m, v);
    if (random_chance(&m->r, 30)) return CODA_NONE;
    return leaf(m, true, random_chance(&m->r, 50) ? CODA_F32 : m->dtype, 1, &n);
}

/* With a weight, or now and then one of each sample, which x has to be of then. */
static coda_value linear(struct maker *m, coda_value x, int64_t n)
{
    int64_t dim_of_x[CODA_MAX_RANK];
    coda_dtype t;
    coda_value_shape(m->g, x, dim_of_x, &t);
    bool kn = random_chance(&m->r, 20);
    bool apart = !m->flat && random_chance(&m->r, 8) && dim_of_x[0] == m->b;
    int64_t k = columns_of(m, x), dim[] = {m->b, kn ? k : n, kn ? n : k};
    coda_value w = apart ? leaf(m, false, m->dtype, 3, dim) : leaf(m, true, m->dtype, 2, dim + 1);
    return (kn ? coda_matmul_kn : coda_matmul)(m->g, x, w);
}

static coda_value slice(struct maker *m, coda_value x, int64_t from, int64_t to)
{
    return coda_slice(m->g, x, rank_of(m) - 1, from, to, 1);
}

static coda_value norm(struct maker *m, coda_value x)
{
    if (random_chance(&m->r, 60)) return coda_rms_norm(m->g, x, gain(m, x), 1e-6f);
    return coda_layer_norm(m->g, x, gain(m, x), gain(m, x), 1e-6f);
}

static coda_value smooth(struct maker *m, coda_value x)
{
    static coda_value (*const map[])(coda_graph *, coda_value) = {coda_silu, coda_gelu_erf, coda_tanh,
                                                                  coda_sigmoid};
    return map[random_below(&m->r, 4)](m->g, x);
}

/* ---- Patterns ---- */

static coda_value grow_linear(struct maker *m)
{
    coda_value y = linear(m, draw(m), draw_columns(m));
    if (random_chance(&m->r, 40)) y = coda_add(m->g, y, vector(m, y));
    return random_chance(&m->r, 30) ? smooth(m, y) : y;
}

/* A norm, perhaps modulated, before one to three products. */
static coda_value grow_normed(struct maker *m)
{
    coda_value h = norm(m, draw(m)), y = h;
    if (random_chance(&m->r, 30)) {
        coda_value one = coda_constant(m->g, CODA_F32, 1), scale = vector(m, h);
        h = coda_mul(m->g, h, random_chance(&m->r, 50) ? coda_add(m->g, scale, one) : scale);
        if (random_chance(&m->r, 60)) h = coda_add(m->g, h, vector(m, h));
    }
    if (random_chance(&m->r, 15)) keep(m, h);
    for (int64_t n = 1 + random_below(&m->r, 3); n > 0; n--) keep(m, y = linear(m, h, draw_columns(m)));
    return y;
}

static coda_value grow_residual(struct maker *m)
{
    coda_value x = draw(m), h = random_chance(&m->r, 70) ? norm(m, x) : x;
    coda_value up = smooth(m, linear(m, h, draw_columns(m))), down = linear(m, up, columns_of(m, x));
    if (random_chance(&m->r, 30)) down = coda_mul(m->g, down, vector(m, down));
    return coda_add(m->g, x, down);
}

static coda_value grow_gate(struct maker *m)
{
    coda_value x = linear(m, random_chance(&m->r, 50) ? norm(m, draw(m)) : draw(m), 2 * draw_columns(m));
    if (columns_of(m, x) > MOST_COLUMNS) return CODA_NONE;
    return coda_swiglu(m->g, x, random_chance(&m->r, 50) ? CODA_STACKED : CODA_INTERLEAVED);
}

/* What is made of some columns of a product: themselves, a map or norm of them, with a product behind. */
static coda_value use_range(struct maker *m, coda_value x)
{
    if (random_chance(&m->r, 60)) x = norm(m, x);
    if (random_chance(&m->r, 30)) x = smooth(m, x);
    return random_chance(&m->r, 50) ? linear(m, x, draw_columns(m)) : x;
}

static coda_value grow_ranges(struct maker *m)
{
    static const int64_t end[][3] = {{512, 576, 576}, {1536, 2048, 2112}, {256, 512, 768},
                                     {64, 192, 320},  {1024, 2048, 2048}, {100, 300, 384}};
    const int64_t *e = end[random_below(&m->r, 6)];
    coda_value x = linear(m, random_chance(&m->r, 40) ? norm(m, draw(m)) : draw(m), e[2]), y = CODA_NONE;
    if (random_chance(&m->r, 15)) keep(m, x);
    for (int i = 0; i < 3; i++)
        if (e[i] > (i ? e[i - 1] : 0)) keep(m, y = use_range(m, slice(m, x, i ? e[i - 1] : 0, e[i])));
    return y;
}

/* A norm of each head of some columns, rotated or not. */
static coda_value heads_of(struct maker *m, coda_value x, int64_t head, const coda_rope_options *rope,
                           coda_value at)
{
    int64_t dim[] = {m->b, m->t, columns_of(m, x) / head, head}, flat[] = {m->b, m->t, columns_of(m, x)};
    coda_value h = coda_reshape(m->g, x, rank_of(m) + 1, dim + m->flat);
    h = coda_reshape(m->g, norm(m, h), rank_of(m), flat + m->flat);
    return rope ? coda_rope(m->g, h, at, rope) : h;
}

static coda_value grow_heads(struct maker *m)
{
    static const int64_t size[] = {32, 64, 128};
    int64_t head = size[random_below(&m->r, 3)], q = head * (2 + random_below(&m->r, 6)), k = head * 2;
    coda_value x = linear(m, draw(m), q + 2 * k), at = CODA_NONE;
    int64_t dim[] = {m->b, m->t};
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = head;
    bool turns = random_chance(&m->r, 60), normed = random_chance(&m->r, 60);
    if (turns && random_chance(&m->r, 60)) at = leaf(m, false, CODA_I32, rank_of(m) - 1, dim + m->flat);
    if (turns && !at.id && random_chance(&m->r, 50)) at = leaf(m, false, CODA_I32, 1, &m->t);
    if (random_chance(&m->r, 20)) x = coda_add(m->g, x, vector(m, x));
    coda_value part[] = {slice(m, x, 0, q), slice(m, x, q, q + k)};
    for (int i = 0; i < 2; i++) {
        if (normed) keep(m, heads_of(m, part[i], head, turns ? &rope : NULL, at));
        else keep(m, turns ? coda_rope(m->g, part[i], at, &rope) : part[i]);
    }
    return slice(m, x, q + k, q + 2 * k);
}

/* Parts one behind the other, of columns or of rows. */
static coda_value grow_concat(struct maker *m)
{
    coda_value x = draw(m), y;
    int axis = (int)random_below(&m->r, rank_of(m));
    int64_t n = columns_of(m, x);
    bool rows = axis < rank_of(m) - 1;
    if (!rows && 2 * n > MOST_COLUMNS) return CODA_NONE;
    y = random_chance(&m->r, 50) ? linear(m, x, n) : smooth(m, x);
    if (random_chance(&m->r, 20)) y = activation(m, m->dtype, n);
    coda_value c = coda_concat(m->g, axis, (coda_value[]){x, y}, 2);
    if (!rows) return c;
    char name[16]; /* of other rows than the pool's values */
    snprintf(name, sizeof name, "y%d", m->outputs++);
    coda_output(m->g, name, random_chance(&m->r, 50) ? linear(m, c, draw_columns(m)) : c);
    return y;
}

static coda_value grow_state(struct maker *m)
{
    coda_value x = random_chance(&m->r, 70) ? linear(m, draw(m), draw_columns(m)) : draw(m);
    int64_t n = columns_of(m, x), w = random_chance(&m->r, 50) ? n : n / 2, dim[] = {1024, w},
            ids[] = {m->b, m->t};
    char name[16];
    snprintf(name, sizeof name, "k%d", m->leaves++);
    coda_value state = coda_state(m->g, name, m->dtype, 2, dim);
    coda_value rows = w < n ? slice(m, x, n - w, n) : x;
    if (random_chance(&m->r, 30)) rows = norm(m, rows);
    coda_append(m->g, state, rows, leaf(m, false, CODA_I32, rank_of(m) - 1, ids + m->flat), NULL);
    return w < n && random_chance(&m->r, 50) ? slice(m, x, 0, n - w) : x;
}

static coda_value grow_rows(struct maker *m)
{
    coda_value x = draw(m), s;
    switch (random_below(&m->r, 6)) {
    case 0: return coda_softmax(m->g, x);
    case 1: return coda_mul(m->g, x, activation(m, CODA_F32, 1));
    case 2: return coda_sub(m->g, x, coda_row_mean(m->g, x));
    case 3: return coda_mul(m->g, x, coda_tanh(m->g, coda_row_sum(m->g, x)));
    case 4: return coda_mul(m->g, smooth(m, x), coda_sigmoid(m->g, coda_row_max(m->g, x)));
    default:
        s = coda_mul(m->g, activation(m, CODA_F32, 1), vector(m, x)); /* an outer product */
        return coda_sub(m->g, linear(m, x, columns_of(m, x)), s);
    }
}

static coda_value grow_elements(struct maker *m)
{
    coda_value x = draw(m), y;
    switch (random_below(&m->r, 5)) {
    case 0: return coda_add(m->g, x, activation(m, m->dtype, columns_of(m, x)));
    case 1: return coda_mul(m->g, x, vector(m, x));
    case 2: y = coda_cast(m->g, x, CODA_F32); return coda_cast(m->g, smooth(m, y), m->dtype);
    case 3: return coda_scale(m->g, x, 0.5f);
    default: return coda_mul(m->g, x, smooth(m, x));
    }
}

/* Of many classes: of few rows and columns the states of tiles are more than the columns. */
static coda_value grow_loss(struct maker *m)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    int64_t dim[] = {m->b, m->t};
    char name[16];
    if (m->symbols) return CODA_NONE;
    coda_value x = draw(m), logits = linear(m, random_chance(&m->r, 50) ? norm(m, x) : x, 4096);
    o.reduction = (coda_reduction)random_below(&m->r, 3);
    snprintf(name, sizeof name, "y%d", m->outputs++);
    coda_output(
        m->g, name,
        coda_cross_entropy(m->g, logits, leaf(m, false, CODA_I32, rank_of(m) - 1, dim + m->flat), &o));
    return x;
}

static coda_value grow_columns(struct maker *m)
{
    static const char *const reduction[] = {"sum", "max", "mean", "sum_sq"};
    char name[16];
    coda_value x = draw(m);
    snprintf(name, sizeof name, "y%d", m->outputs++);
    coda_output(m->g, name, coda_reduce_columns(m->g, reduction[random_below(&m->r, 4)], x));
    return x;
}

/* Scores of all pairs of rows of each sample, and what they weigh. */
static coda_value grow_pairs(struct maker *m)
{
    coda_value x = draw(m);
    if (m->flat || m->symbols) return CODA_NONE;
    coda_value s = coda_matmul(m->g, linear(m, x, 128), linear(m, x, 128));
    if (random_chance(&m->r, 70)) s = coda_softmax(m->g, coda_scale(m->g, s, 0.125f));
    return coda_matmul_kn(m->g, s, x);
}

static coda_value grow_attention(struct maker *m)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_value x = linear(m, random_chance(&m->r, 50) ? norm(m, draw(m)) : draw(m), 768);
    o.heads = o.kv_heads = 4, o.causal = 1;
    coda_value q = slice(m, x, 0, 256), k = slice(m, x, 256, 512), v = slice(m, x, 512, 768);
    if (random_chance(&m->r, 50))
        q = heads_of(m, q, 64, NULL, CODA_NONE), k = heads_of(m, k, 64, NULL, CODA_NONE);
    return coda_attention(m->g, q, k, v, CODA_NONE, &o);
}

static const struct {
    coda_value (*grow)(struct maker *);
    int weight;
} patterns[] = {{grow_linear, 10}, {grow_normed, 18},  {grow_residual, 10}, {grow_gate, 6},
                {grow_ranges, 14}, {grow_heads, 10},   {grow_concat, 8},    {grow_state, 6},
                {grow_rows, 10},   {grow_elements, 8}, {grow_loss, 4},      {grow_columns, 4},
                {grow_pairs, 4},   {grow_attention, 6}};

static coda_value grow(struct maker *m)
{
    int total = 0, i = 0;
    for (int k = 0; k < ARRAY_SIZE(patterns); k++) total += patterns[k].weight;
    int64_t at = random_below(&m->r, total);
    while (at >= patterns[i].weight) at -= patterns[i++].weight;
    return patterns[i].grow(m);
}

/* Names the last value, what nothing reads, and now and then what something does. */
static void finish(struct maker *m)
{
    char name[16];
    for (int i = 1; i < m->pooled; i++) {
        bool read = graph_uses(m->g, (int)m->pool[i].id - 1) > 0, last = i == m->pooled - 1;
        if (!last && !random_chance(&m->r, read ? 8 : 90)) continue;
        snprintf(name, sizeof name, "y%d", m->outputs++);
        coda_output(m->g, name, m->pool[i]);
    }
}

graph *priced_graph(uint64_t seed, const int64_t *dims)
{
    static const coda_dtype t[] = {CODA_BF16, CODA_BF16, CODA_F16, CODA_F32};
    struct maker m = {.g = coda_graph_new(), .r = {seed}, .symbols = !dims};
    m.b = dims ? dims[0] : coda_symbol(m.g, "B", 1, 8, 1);
    m.t = dims ? dims[1] : coda_symbol(m.g, "T", 1, 4096, 1);
    m.dtype = t[random_below(&m.r, 4)];
    m.flat = random_chance(&m.r, 50);
    keep(&m, activation(&m, m.dtype, draw_columns(&m)));
    if (random_chance(&m.r, 70)) keep(&m, linear(&m, m.pool[0], draw_columns(&m)));
    int n = 1 + (int)random_below(&m.r, MOST_PATTERNS);
    while (n-- > 0) keep(&m, grow(&m));
    if (m.pooled == 1) keep(&m, grow_linear(&m));
    finish(&m);
    if (coda_graph_status(m.g) != CODA_OK) fprintf(stderr, "priced_graph: %s\n", coda_error());
    return m.g;
}
