/* util_family.c -- random model graphs of whole families. */
#include "util_family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum norm_place { PRE, POST, SANDWICH, PARALLEL };

/* What one family has drawn. */
struct maker {
    struct family *f;
    coda_graph *g;
    struct random r;
    coda_dtype dtype;
    enum known_family known;
    enum norm_place place;
    bool layer_norm, gains, biases, gated, interleaved, rope, partial, qk_norm, prefix, causal, softcap;
    bool qkv_biases, swiglu;
    int64_t sections[4]; /* of M-RoPE; else 0 */
    bool in_turn;        /* they are interleaved */
    bool masked;         /* the stream itself is padded: keys past its lengths are invisible */
    int64_t batch, tokens, d, hd, heads, kv_heads, window; /* batch 0: no batch dimension */
    int64_t inner, vocabulary;                             /* 0: drawn where they are wanted */
    coda_value lengths, kept[8];
    int keeps, layer;
};

/* ---- Leaves ---- */

static coda_value leaf_as(struct maker *m, const char *word, enum fill fill, int64_t limit, coda_dtype t,
                          int rank, const int64_t *dims)
{
    char name[40];
    if (m->f->leaves == FAMILY_LEAVES) return CODA_NONE;
    snprintf(name, sizeof name, "%s%d", word, m->f->leaves);
    m->f->leaf[m->f->leaves++] = (struct leaf_fill){fill, limit};
    bool weight = fill == FILL_WEIGHT || fill == FILL_GAIN || fill == FILL_BIAS;
    return weight ? coda_weight(m->g, name, t, rank, dims) : coda_input(m->g, name, t, rank, dims);
}

static coda_value leaf(struct maker *m, const char *word, enum fill fill, int rank, const int64_t *dims)
{
    return leaf_as(m, word, fill, 0, m->dtype, rank, dims);
}

/* [batch, rows, columns], or [rows, columns] in a family without a batch. */
static coda_value stream(struct maker *m, const char *word, enum fill fill, int64_t rows, int64_t columns)
{
    int64_t dims[3] = {m->batch, rows, columns};
    return leaf(m, word, fill, m->batch ? 3 : 2, dims + !m->batch);
}

static coda_value vector(struct maker *m, const char *word, enum fill fill, int64_t n)
{
    return leaf(m, word, fill, 1, &n);
}

static int64_t columns(const struct maker *m, coda_value v)
{
    int64_t dims[CODA_MAX_RANK];
    int rank = coda_value_shape(m->g, v, dims, NULL);
    return rank > 0 ? dims[rank - 1] : 1;
}

/* ---- Pieces ---- */

static coda_value linear_with(struct maker *m, coda_value x, int64_t n, bool bias)
{
    int64_t k = columns(m, x);
    coda_value y = random_chance(&m->r, 80)
                       ? coda_matmul(m->g, x, leaf(m, "w", FILL_WEIGHT, 2, (int64_t[]){n, k}))
                       : coda_matmul_kn(m->g, x, leaf(m, "w", FILL_WEIGHT, 2, (int64_t[]){k, n}));
    return bias ? coda_bias(m->g, y, vector(m, "b", FILL_BIAS, n)) : y;
}

static coda_value linear(struct maker *m, coda_value x, int64_t n) { return linear_with(m, x, n, m->biases); }

static coda_value norm(struct maker *m, coda_value x)
{
    int64_t n = columns(m, x);
    coda_value gain = m->gains ? vector(m, "gain", FILL_GAIN, n) : CODA_NONE;
    if (!m->layer_norm) return coda_rms_norm(m->g, x, gain, 1e-5f);
    coda_value bias = m->biases ? vector(m, "shift", FILL_BIAS, n) : CODA_NONE;
    return coda_layer_norm(m->g, x, gain, bias, 1e-5f);
}

/* The library's own map, or the same as a caller would bring it. */
static double softcap_reference(const double *in, const double *params)
{
    return params[0] * tanh(in[0] / params[0]);
}

static coda_value softcap(struct maker *m, coda_value x, float cap)
{
    coda_map_def def = CODA_MAP_DEF_INIT;
    if (random_chance(&m->r, 50)) return coda_apply(m->g, "softcap", &x, 1, &cap);
    def.name = "callers_softcap";
    def.params = 1;
    def.source =
        "DEV static float apply(float x, float cap) { return cap * math::tanh(x * math::rcp(cap)); }";
    def.reference = softcap_reference;
    if (!m->g->maps && coda_define_map(m->g, &def) != CODA_OK) return CODA_NONE;
    return coda_apply(m->g, "callers_softcap", &x, 1, &cap);
}

/* ---- Attention ---- */

/* A norm over each head's columns. */
static coda_value head_norm(struct maker *m, coda_value x, int64_t heads)
{
    int64_t wide[4] = {m->batch, 0, heads, m->hd}, dims[CODA_MAX_RANK];
    int rank = coda_value_shape(m->g, x, dims, NULL);
    wide[1] = dims[rank - 2];
    coda_value y = coda_reshape(m->g, x, rank + 1, wide + !m->batch);
    return coda_reshape(m->g, coda_rms_norm(m->g, y, vector(m, "qk_gain", FILL_GAIN, m->hd), 1e-6f), rank,
                        dims);
}

static coda_value rotate(struct maker *m, coda_value x, coda_value positions)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.head_dim = m->hd;
    if (m->partial) o.rotary = MAX(m->hd / 4 * 2, 2);
    o.style = m->interleaved ? CODA_ROPE_INTERLEAVED : CODA_ROPE_HALF;
    memcpy(o.sections, m->sections, sizeof o.sections);
    o.interleave_sections = m->in_turn;
    return coda_rope(m->g, x, positions, &o);
}

/* Of each token, or in M-RoPE its time, height and width: of all sequences alike, or of each its own. */
static coda_value positions_of(struct maker *m)
{
    int64_t dims[3] = {m->batch, m->tokens, 3};
    bool each = m->batch && random_chance(&m->r, 50);
    if (m->sections[0]) return leaf_as(m, "at", FILL_INTEGERS, 2000, CODA_I32, 2 + each, dims + !each);
    if (random_chance(&m->r, 60)) return CODA_NONE;
    return leaf_as(m, "at", FILL_INTEGERS, 2000, CODA_I32, 1, &m->tokens);
}

static coda_value columns_of(struct maker *m, coda_value x, int64_t start, int64_t n)
{
    return coda_slice(m->g, x, m->batch ? 2 : 1, start, start + n, 1);
}

/* Keys or values, behind a prefix from before. */
static coda_value with_prefix(struct maker *m, coda_value x, int64_t rows)
{
    if (!m->prefix) return x;
    enum fill fill = random_chance(&m->r, 50) ? FILL_NORMAL : FILL_WEIGHT;
    coda_value before = stream(m, "before", fill, rows, m->kv_heads * m->hd);
    return coda_concat(m->g, m->batch ? 1 : 0, (coda_value[]){before, x}, 2);
}

static coda_value attention(struct maker *m, coda_value x)
{
    int64_t nq = m->heads * m->hd, nk = m->kv_heads * m->hd, rows = 1 + random_below(&m->r, 5);
    coda_value qkv = linear_with(m, x, nq + 2 * nk, m->biases || m->qkv_biases),
               q = columns_of(m, qkv, 0, nq);
    coda_value k = columns_of(m, qkv, nq, nk), v = columns_of(m, qkv, nq + nk, nk);
    if (m->qk_norm) q = head_norm(m, q, m->heads), k = head_norm(m, k, m->kv_heads);
    if (m->rope) {
        coda_value at = positions_of(m);
        q = rotate(m, q, at);
        k = rotate(m, k, at);
    }
    if (m->keeps < 6 && random_chance(&m->r, 30)) m->kept[m->keeps++] = k, m->kept[m->keeps++] = v;
    k = with_prefix(m, k, rows);
    v = with_prefix(m, v, rows);
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = m->heads;
    o.kv_heads = m->kv_heads;
    o.causal = m->causal;
    o.window = m->window;
    return linear(m, coda_attention(m->g, q, k, v, m->masked ? m->lengths : CODA_NONE, &o), m->d);
}

/* To a memory of other sequences, each as long as it is; the rest of its rows may hold anything. */
static coda_value cross_attention(struct maker *m, coda_value x)
{
    int64_t rows = 1 + random_below(&m->r, 40), n = m->kv_heads * m->hd;
    coda_value q = linear(m, x, m->heads * m->hd), lengths = CODA_NONE;
    enum fill fill = m->batch ? FILL_MEMORY : FILL_NORMAL;
    if (m->batch) lengths = leaf_as(m, "lengths", FILL_LENGTHS, rows, CODA_I32, 1, &m->batch);
    coda_value k = stream(m, "k", fill, rows, n), v = stream(m, "v", fill, rows, n);
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = m->heads;
    o.kv_heads = m->kv_heads;
    return linear(m, coda_attention(m->g, q, k, v, lengths, &o), m->d);
}

/* ---- Layers ---- */

static coda_value mlp(struct maker *m, coda_value x)
{
    typedef coda_value gate(coda_graph *, coda_value, coda_layout);
    typedef coda_value unit(coda_graph *, coda_value);
    static gate *const gates[] = {coda_swiglu, coda_geglu, coda_reglu, coda_glu};
    static unit *const units[] = {coda_gelu_erf, coda_gelu_tanh, coda_gelu_quick,
                                  coda_relu,     coda_relu2,     coda_silu};
    int64_t f = m->inner ? m->inner : 2 * (1 + random_below(&m->r, 50));
    if (!m->gated) return linear(m, units[random_below(&m->r, 6)](m->g, linear(m, x, f)), m->d);
    coda_value y = linear(m, x, 2 * f);
    gate *g = gates[m->swiglu ? 0 : random_below(&m->r, 4)];
    return linear(m, g(m->g, y, m->interleaved ? CODA_INTERLEAVED : CODA_STACKED), m->d);
}

/* x + f(x), with the norms where the family has them. */
static coda_value residual(struct maker *m, coda_value x, coda_value (*f)(struct maker *, coda_value))
{
    if (m->place == POST) return norm(m, coda_add(m->g, x, f(m, x)));
    coda_value y = f(m, norm(m, x));
    return coda_add(m->g, x, m->place == SANDWICH ? norm(m, y) : y);
}

static coda_value layer(struct maker *m, coda_value x)
{
    if (m->place == PARALLEL) {
        coda_value n = norm(m, x);
        return coda_add(m->g, x, coda_add(m->g, attention(m, n), mlp(m, n)));
    }
    x = residual(m, x, attention);
    if (!m->known && random_chance(&m->r, 25)) x = residual(m, x, cross_attention);
    return residual(m, x, mlp);
}

/* ---- Ends ---- */

/* What enters the first layer; *table is the embedding, where there is one. */
static coda_value enter(struct maker *m, int64_t vocabulary, coda_value *table)
{
    int64_t ids[2] = {m->batch, m->tokens};
    bool classes = !m->known && random_chance(&m->r, 25) && m->batch < 2;
    coda_value x;
    if (!m->masked && random_chance(&m->r, 40)) {
        *table = leaf(m, "table", FILL_WEIGHT, 2, (int64_t[]){vocabulary, m->d});
        x = coda_embedding(
            m->g, *table,
            leaf_as(m, "ids", FILL_INTEGERS, vocabulary, CODA_I32, m->batch ? 2 : 1, ids + !m->batch));
    } else {
        x = stream(m, "x", m->masked ? FILL_PADDED : FILL_STREAM, m->tokens, m->d);
    }
    if (!m->known && random_chance(&m->r, 20)) {
        int64_t dims[2] = {m->tokens, m->d};
        x = coda_add(m->g, x, leaf(m, "position", FILL_BIAS, 2, dims));
    }
    if (classes && !m->masked) {
        coda_value token = stream(m, "class", FILL_WEIGHT, 1, m->d);
        x = coda_concat(m->g, m->batch ? 1 : 0, (coda_value[]){token, x}, 2);
        m->tokens++;
    }
    /* As BERT does: attention to what is far from order 1 is decided by rounding. */
    return m->place == POST ? norm(m, x) : x;
}

static void leave(struct maker *m, coda_value x, int64_t vocabulary, coda_value table)
{
    int64_t dims[2] = {m->batch, m->tokens};
    coda_value logits = x;
    if (m->place != POST || random_chance(&m->r, 30)) logits = norm(m, x);
    if (random_chance(&m->r, 15)) {
        coda_output(m->g, "y", logits);
        return;
    }
    logits = table.id ? coda_matmul(m->g, logits, table) : linear(m, logits, vocabulary);
    if (m->softcap) logits = softcap(m, logits, 30.0f);
    if (random_chance(&m->r, 40)) {
        coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
        o.reduction = CODA_REDUCE_NONE;
        coda_value target =
            leaf_as(m, "target", FILL_TARGETS, vocabulary, CODA_I32, m->batch ? 2 : 1, dims + !m->batch);
        coda_output(m->g, "loss", coda_cross_entropy(m->g, logits, target, &o));
        if (random_chance(&m->r, 60)) return;
    }
    coda_output(m->g, "logits", random_chance(&m->r, 25) ? coda_softmax(m->g, logits) : logits);
}

/* As the models have it: of 64 frequencies Qwen2.5-VL gives time 16 and Qwen3-VL 24, and what is left to
 * height and width alike. */
static void fix(struct maker *m)
{
    int64_t pairs = m->hd / 2, side = 0;
    m->place = PRE;
    m->gains = m->gated = m->swiglu = m->rope = m->causal = true;
    m->layer_norm = m->biases = m->interleaved = m->partial = m->softcap = m->masked = false;
    m->window = 0;
    m->qk_norm = m->known != FAMILY_QWEN2_5_VL;
    m->qkv_biases = m->known == FAMILY_QWEN2_5_VL;
    m->in_turn = m->known == FAMILY_QWEN3_VL;
    if (m->known == FAMILY_QWEN2_5_VL) side = pairs * 24 / 64;
    if (m->known == FAMILY_QWEN3_VL) side = pairs * 20 / 64;
    if (!side) return;
    m->sections[0] = pairs - 2 * side;
    m->sections[1] = m->sections[2] = side;
}

/* Sizes, from which kernels of one text come; the first eight numbers of a family that has its own. */
static void draw_sizes(struct maker *m, struct random *r)
{
    m->batch = random_below(r, 4);
    m->tokens = 1 + random_below(r, random_chance(r, 30) ? 70 : 20);
    m->hd = 2 * (1 + random_below(r, 16));
    m->kv_heads = 1 + random_below(r, 2);
    m->heads = m->kv_heads * (1 + random_below(r, 3));
    m->d = random_chance(r, 50) ? 8 * (1 + random_below(r, 10)) : 4 + random_below(r, 70);
}

static void draw(struct maker *m, coda_dtype dtype, uint64_t sizes)
{
    static const coda_dtype any[] = {CODA_F32, CODA_BF16, CODA_F16};
    struct random *r = &m->r;
    m->dtype = dtype ? dtype : any[random_below(r, 3)];
    m->place = (enum norm_place)random_below(r, 4);
    struct random shared = {sizes};
    draw_sizes(m, sizes ? &shared : r);
    if (sizes) m->inner = 2 * (1 + random_below(&shared, 50)), m->vocabulary = 5 + random_below(&shared, 120);
    m->layer_norm = random_chance(r, 40);
    m->gains = random_chance(r, 80);
    m->biases = random_chance(r, 35);
    m->gated = random_chance(r, 60);
    m->interleaved = random_chance(r, 40);
    m->rope = random_chance(r, 65);
    m->partial = random_chance(r, 30);
    m->qk_norm = random_chance(r, 30);
    m->prefix = random_chance(r, 30);
    m->softcap = random_chance(r, 25);
    m->masked = m->batch && !m->prefix && random_chance(r, 30);
    m->causal = !m->masked && random_chance(r, 60);
    m->window = !m->masked && random_chance(r, 20) ? 1 + random_below(r, 12) : 0;
    if (m->qk_norm || m->known)
        m->hd = 8 * CEIL_DIV(m->hd, 8); /* a norm of two columns is little but signs */
    if (m->known) fix(m);
    double most = m->dtype == CODA_F16 ? 3 : 30;
    m->f->magnitude =
        random_chance(r, 50) ? 1 : pow(10, most * (2 * (double)random_below(r, 1001) / 1000 - 1));
}

static void describe(const struct maker *m)
{
    static const char *const place[] = {"pre", "post", "sandwich", "parallel"};
    static const char *const known[] = {"", "Qwen3: ", "Qwen2.5-VL: ", "Qwen3-VL: "};
    format_line(
        m->f->name, sizeof m->f->name,
        "%s%s-norm %s%s%s%s%s%s%s%s%s%s%s, %s B %lld T %lld D %lld heads %lld/%lld x %lld, magnitude %.1e",
        known[m->known], place[m->place], m->layer_norm ? "layer" : "rms", m->gains ? " gains" : "",
        m->biases ? " biases" : "", m->gated ? " gated" : "",
        m->rope ? m->partial ? " partial-rope" : " rope" : "", m->qk_norm ? " qk-norm" : "",
        m->prefix ? " prefix" : "", m->softcap ? " softcap" : "", m->masked ? " masked" : "",
        m->causal ? " causal" : "", m->window ? " window" : "", dtype_name(m->dtype), (long long)m->batch,
        (long long)m->tokens, (long long)m->d, (long long)m->heads, (long long)m->kv_heads, (long long)m->hd,
        m->f->magnitude);
}

void family_make(struct family *f, uint64_t seed, coda_dtype dtype)
{
    family_make_known(f, FAMILY_DRAWN, seed, dtype);
}

void family_make_known(struct family *f, enum known_family known, uint64_t seed, coda_dtype dtype)
{
    family_make_sized(f, known, seed, dtype, 0);
}

void family_make_sized(struct family *f, enum known_family known, uint64_t seed, coda_dtype dtype,
                       uint64_t sizes)
{
    *f = (struct family){.g = coda_graph_new(), .seed = seed};
    struct maker m = {.f = f, .g = f->g, .r = {seed}, .known = known};
    coda_value table = CODA_NONE;
    draw(&m, dtype, sizes);
    int64_t vocabulary = m.vocabulary ? m.vocabulary : 5 + random_below(&m.r, 120),
            layers = 1 + random_below(&m.r, 3);
    if (m.masked) m.lengths = leaf_as(&m, "lengths", FILL_LENGTHS, m.tokens, CODA_I32, 1, &m.batch);
    coda_value x = enter(&m, vocabulary, &table);
    describe(&m);
    for (m.layer = 0; m.layer < layers; m.layer++) x = layer(&m, x);
    if (random_chance(&m.r, 30)) coda_output(m.g, "stream", x);
    leave(&m, x, vocabulary, table);
    for (int i = 0; i < m.keeps; i++) {
        char name[16];
        snprintf(name, sizeof name, "kept%d", i);
        coda_output(m.g, name, m.kept[i]);
    }
    if (coda_graph_status(f->g) != CODA_OK)
        fprintf(stderr, "family %llu: %s\n", (unsigned long long)seed, coda_error());
}

/* ---- Arguments ---- */

static double draw_garbage(struct random *r)
{
    static const double garbage[] = {NAN, INFINITY, -INFINITY, 3e38, -1e30, 0};
    return garbage[random_below(r, 6)];
}

/* One element of a row of a leaf; `past`: the row lies past its sequence's length. */
static double draw_element(const struct family *f, struct random *r, const struct leaf_fill *l,
                           double row_scale, int64_t fan_in, bool past)
{
    switch (l->fill) {
    case FILL_WEIGHT: return random_normal(r) / sqrt((double)MAX(fan_in, 1));
    case FILL_GAIN: return 1 + 0.1 * random_normal(r);
    case FILL_BIAS: return 0.1 * random_normal(r);
    case FILL_NORMAL: return random_normal(r);
    case FILL_STREAM: return random_normal(r) * row_scale;
    case FILL_MEMORY: return past ? draw_garbage(r) : random_normal(r);
    case FILL_PADDED: return past ? NAN : random_normal(r) * row_scale;
    case FILL_LENGTHS: return (double)random_below(r, l->limit + 1);
    case FILL_TARGETS:
        if (random_chance(r, 10)) return -100;
        break;
    case FILL_INTEGERS: break;
    }
    (void)f;
    return (double)random_below(r, l->limit);
}

static void fill_leaf(const struct family *f, struct random *r, const struct node *n,
                      const struct leaf_fill *l, const int32_t *lengths, void *base)
{
    int64_t cols = type_columns(&n->type), rows = cols ? type_elements(&n->type) / cols : 0;
    int64_t tokens = n->type.rank > 1 ? n->type.dim[n->type.rank - 2] : 1;
    for (int64_t i = 0; i < rows; i++) {
        double scale = random_chance(r, 6) ? 0 : f->magnitude;
        bool past = lengths && i % tokens >= lengths[i / tokens];
        for (int64_t c = 0; c < cols; c++)
            dtype_store(n->type.dtype, base, i * cols + c, draw_element(f, r, l, scale, cols, past));
    }
}

static void *poisoned(size_t bytes)
{
    void *p = malloc(MAX(bytes, 1));
    if (p) memset(p, 0xff, MAX(bytes, 1));
    return p;
}

void **family_args(const struct family *f, uint64_t seed, bool evaluate)
{
    const graph *g = f->g;
    struct random r = {seed ^ f->seed * 0x9e3779b97f4a7c15u};
    void **args = calloc((size_t)(f->leaves + g->outputs) + 1, sizeof *args);
    const int32_t *lengths = NULL;
    int count = 0;
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        if (!op_is_leaf(n->op)) continue;
        const struct leaf_fill *l = &f->leaf[count];
        args[count] = poisoned(random_arg_bytes(&n->type, n->stride));
        bool padded = l->fill == FILL_MEMORY || l->fill == FILL_PADDED;
        fill_leaf(f, &r, n, l, padded ? lengths : NULL, args[count]);
        if (l->fill == FILL_LENGTHS) lengths = args[count];
        count++;
    }
    for (int i = 0; i < g->outputs; i++) {
        const struct output *o = &g->output[i];
        const struct type *t = &g->node[o->value].type;
        args[count++] =
            poisoned(evaluate ? (size_t)type_elements(t) * sizeof(double) : random_arg_bytes(t, o->stride));
    }
    return args;
}
