/* util_cache.c -- random programs that append to caches and attend to them, against fp64. */
#include "util_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_device.h"

enum {
    MOST_BATCH = 4,
    MOST_KEYS = 256,
    MOST_PAGE = 128,
    MOST_ROOM = MOST_KEYS + MOST_PAGE, /* of whole pages */
    MOST_HEAD = 128,
    SPARE_PAGES = 5
};

/* ---- Drawing ---- */

static void draw_mask(struct cache_case *c, struct random *r)
{
    c->causal = random_chance(r, 75);
    c->window = random_chance(r, 30) ? 1 + random_below(r, c->tk) : 0;
    c->ahead = !c->causal && random_chance(r, 30) ? 1 + random_below(r, c->tk) : 0;
    c->softcap = random_chance(r, 25) ? 1 + (float)random_below(r, 20) : 0;
    c->slopes = random_chance(r, 20);
    c->sinks = random_chance(r, 25);
    c->lse = random_chance(r, 30);
}

struct cache_case cache_draw(uint64_t seed)
{
    static const coda_dtype dtypes[] = {CODA_BF16, CODA_BF16, CODA_F16, CODA_F32};
    struct random r = {seed};
    struct cache_case c = {.seed = random_next(&r), .dtype = dtypes[random_below(&r, 4)]};
    c.keys = random_chance(&r, 30) ? CODA_F8E4M3 : c.dtype;
    c.scales = c.keys == CODA_F8E4M3 ? (int)random_below(&r, 3) : 0;
    c.layout = random_chance(&r, 50) ? CODA_LAYOUT_HND : CODA_LAYOUT_NHD;
    c.batch = 1 + random_below(&r, MOST_BATCH);
    c.tq = random_chance(&r, 60) ? 1 + random_below(&r, 4) : 1 + random_below(&r, 20);
    c.kv_heads = 1 + random_below(&r, 3);
    c.heads = c.kv_heads * (1 + random_below(&r, 8));
    c.head_dim = 32 << random_below(&r, 3);
    c.tk = 1 + random_below(&r, MOST_KEYS);
    if (random_chance(&r, 50)) {
        c.page = 8 << random_below(&r, 5);
        c.tk = CEIL_DIV(c.tk, c.page) * c.page;
        c.pool = c.batch * (c.tk / c.page) + SPARE_PAGES;
    }
    c.scale = random_chance(&r, 70) ? 0 : (float)(random_normal(&r) * 0.2);
    c.steps = 2 + (int)random_below(&r, 3);
    draw_mask(&c, &r);
    return c;
}

const char *cache_describe(const struct cache_case *c)
{
    static _Thread_local char text[400];
    snprintf(text, sizeof text,
             "%s in %s scales %d, %s, b%d q%d k%d h%d/%d d%d page %d%s window %d ahead %d scale %g softcap %g"
             "%s%s%s, %d steps",
             dtype_name(c->dtype), dtype_name(c->keys), c->scales,
             c->layout == CODA_LAYOUT_HND ? "heads apart" : "rows", (int)c->batch, (int)c->tq, (int)c->tk,
             (int)c->heads, (int)c->kv_heads, (int)c->head_dim, (int)c->page, c->causal ? " causal" : "",
             (int)c->window, (int)c->ahead, (double)c->scale, (double)c->softcap, c->slopes ? " slopes" : "",
             c->sinks ? " sinks" : "", c->lse ? " lse" : "", c->steps);
    return text;
}

/* ---- The program ---- */

enum { Q, K, V, SLOTS, LENGTHS, TABLE, SLOPES, SINKS, K_SCALE, V_SCALE, KEYS, VALUES, OUT, LSE, TENSORS };

struct rig {
    const struct cache_case *c;
    enum cache_device on;
    struct random r;
    graph *g;
    coda_plan *plan;
    coda_value value[TENSORS];
    int tensor[TENSORS], args; /* in the order of the arguments */
    size_t bytes[TENSORS];
    void *host[TENSORS], *at[TENSORS]; /* as the test has it; what the run has */
    void *workspace;
    int64_t *length,
        *pages; /* [batch] keys of each sequence; [pool] the pages: the sequences', then nobody's */
    double worst;
    bool wrong; /* the message says what */
};

static coda_value leaf(struct rig *g, int tensor, const char *name, coda_dtype t, int rank,
                       const int64_t *dims)
{
    g->tensor[g->args++] = tensor;
    bool state = tensor == KEYS || tensor == VALUES;
    return g->value[tensor] = (state ? coda_state : coda_input)(g->g, name, t, rank, dims);
}

static coda_value of_heads(struct rig *g, int tensor, const char *name, bool there, int64_t n)
{
    return there ? leaf(g, tensor, name, CODA_F32, 1, &n) : CODA_NONE;
}

static coda_value cache(struct rig *g, int tensor, const char *name)
{
    const struct cache_case *c = g->c;
    int64_t columns = c->kv_heads * c->head_dim, lots = c->page ? c->pool : c->batch;
    int64_t keys = c->page ? c->page : c->tk;
    if (c->layout == CODA_LAYOUT_HND)
        return leaf(g, tensor, name, c->keys, 4, (int64_t[]){lots, c->kv_heads, keys, c->head_dim});
    if (c->page) return leaf(g, tensor, name, c->keys, 2, (int64_t[]){lots * keys, columns});
    return leaf(g, tensor, name, c->keys, 3, (int64_t[]){lots, keys, columns});
}

static void build(struct rig *g)
{
    const struct cache_case *c = g->c;
    int64_t q_columns = c->heads * c->head_dim, columns = c->kv_heads * c->head_dim;
    coda_append_options ko = CODA_APPEND_OPTIONS_INIT, vo;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    g->g = coda_graph_new();
    coda_value q = leaf(g, Q, "q", c->dtype, 3, (int64_t[]){c->batch, c->tq, q_columns});
    coda_value k = leaf(g, K, "k", c->dtype, 3, (int64_t[]){c->batch, c->tq, columns});
    coda_value v = leaf(g, V, "v", c->dtype, 3, (int64_t[]){c->batch, c->tq, columns});
    coda_value slots = leaf(g, SLOTS, "slots", CODA_I32, 2, (int64_t[]){c->batch, c->tq});
    coda_value lengths = leaf(g, LENGTHS, "lengths", CODA_I32, 1, &c->batch);
    if (c->page)
        o.table = leaf(g, TABLE, "table", CODA_I32, 2, (int64_t[]){c->batch, c->tk / c->page}),
        o.page = c->page;
    o.slopes = of_heads(g, SLOPES, "slopes", c->slopes, c->heads);
    o.sinks = of_heads(g, SINKS, "sinks", c->sinks, c->heads);
    o.k_scale = of_heads(g, K_SCALE, "k_scale", c->scales, c->scales == 2 ? c->kv_heads : 1);
    o.v_scale = of_heads(g, V_SCALE, "v_scale", c->scales, c->scales == 2 ? c->kv_heads : 1);
    o.heads = c->heads, o.kv_heads = c->kv_heads, o.layout = ko.layout = c->layout;
    o.window = c->window, o.ahead = c->ahead, o.causal = c->causal;
    o.scale = c->scale, o.softcap = c->softcap, o.align = CODA_ALIGN_LENGTH;
    vo = ko, ko.scale = o.k_scale, vo.scale = o.v_scale;
    coda_value keys = coda_append(g->g, cache(g, KEYS, "keys"), k, slots, &ko);
    coda_value values = coda_append(g->g, cache(g, VALUES, "values"), v, slots, &vo);
    g->value[OUT] = c->lse ? coda_attention_lse(g->g, q, keys, values, lengths, &o, &g->value[LSE])
                           : coda_attention(g->g, q, keys, values, lengths, &o);
    coda_output(g->g, "o", g->value[OUT]);
    g->tensor[g->args++] = OUT;
    if (!c->lse) return;
    coda_output(g->g, "lse", g->value[LSE]);
    g->tensor[g->args++] = LSE;
}

/* ---- Memory ---- */

static void *alloc(const struct rig *g, size_t bytes)
{
    return g->on == CACHE_ON_GPU ? device_alloc(bytes) : aligned_alloc(256, (bytes + 511) / 256 * 256);
}

static void release(const struct rig *g, void *p) { (g->on == CACHE_ON_GPU ? device_free : free)(p); }

static bool upload(struct rig *g, int t)
{
    if (g->on == CACHE_ON_GPU) return device_upload(g->at[t], g->host[t], g->bytes[t]);
    memcpy(g->at[t], g->host[t], g->bytes[t]);
    return true;
}

static bool download(const struct rig *g, int t, void *to)
{
    if (g->on == CACHE_ON_GPU) return device_wait() && device_download(to, g->at[t], g->bytes[t]);
    memcpy(to, g->at[t], g->bytes[t]);
    return true;
}

static unsigned char poison(struct rig *g)
{
    static const unsigned char bytes[] = {0xff, 0x7b, 0x5f, 0x00};
    return bytes[random_below(&g->r, ARRAY_SIZE(bytes))];
}

static bool make_memory(struct rig *g)
{
    for (int i = 0; i < g->args; i++) {
        int t = g->tensor[i];
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_graph_arg(g->g, i, &info) != CODA_OK) return false;
        bool wide = g->on == CACHE_BY_EVALUATION && (t == OUT || t == LSE); /* doubles */
        g->bytes[t] = wide ? info.bytes / (size_t)dtype_bytes(info.dtype, 1) * sizeof(double) : info.bytes;
        g->host[t] = malloc(g->bytes[t] + 1);
        g->at[t] = alloc(g, g->bytes[t]);
        if (!g->host[t] || !g->at[t]) return false;
        memset(g->host[t], poison(g), g->bytes[t]);
    }
    size_t work = g->plan ? coda_plan_workspace(g->plan) : 0;
    g->workspace = alloc(g, work);
    g->length = calloc((size_t)g->c->batch, sizeof *g->length);
    g->pages = calloc((size_t)g->c->pool + 1, sizeof *g->pages);
    for (int64_t i = 0; g->pages && i < g->c->pool; i++) {
        int64_t k = random_below(&g->r, i + 1); /* Fisher and Yates, from the inside out */
        g->pages[i] = g->pages[k], g->pages[k] = i;
    }
    return g->workspace && g->length && g->pages;
}

/* ---- Where things are ---- */

/* The slot of a sequence's key. */
static int64_t slot_of(const struct rig *g, int64_t b, int64_t at)
{
    const struct cache_case *c = g->c;
    if (!c->page) return b * c->tk + at;
    return g->pages[b * (c->tk / c->page) + at / c->page] * c->page + at % c->page;
}

/* The first element of that slot and head. */
static int64_t element_of(const struct rig *g, int64_t slot, int64_t kv)
{
    const struct cache_case *c = g->c;
    int64_t lot = c->page ? c->page : c->tk;
    if (c->layout == CODA_LAYOUT_NHD) return (slot * c->kv_heads + kv) * c->head_dim;
    return ((slot / lot * c->kv_heads + kv) * lot + slot % lot) * c->head_dim;
}

static double scale_of(const struct rig *g, int tensor, int64_t kv)
{
    return g->c->scales ? ((float *)g->host[tensor])[g->c->scales == 2 ? kv : 0] : 1;
}

/* ---- A step's data ---- */

static void fill_rows(struct rig *g, int t, int64_t columns, double size)
{
    for (int64_t i = 0; i < g->c->batch * g->c->tq * columns; i++)
        dtype_store(g->c->dtype, g->host[t], i, size * random_normal(&g->r));
}

static void fill_of_heads(struct rig *g)
{
    for (int t = SLOPES; t <= V_SCALE; t++)
        for (size_t i = 0; g->host[t] && i < g->bytes[t] / 4; i++)
            ((float *)g->host[t])[i] = t == SLOPES  ? (float)ldexp(1, -(int)(1 + random_below(&g->r, 8)))
                                       : t == SINKS ? (float)random_normal(&g->r) * 3
                                                    : (float)(0.02 + fabs(random_normal(&g->r)));
}

/* A slot that the cache does not have. */
static int32_t nowhere(struct rig *g)
{
    int64_t slots = g->c->page ? g->c->pool * g->c->page : g->c->batch * g->c->tk;
    const int32_t all[] = {-1, -1, INT32_MIN, INT32_MAX, (int32_t)slots};
    return all[random_below(&g->r, ARRAY_SIZE(all))];
}

/* A sequence that starts anew may get other pages; what its old ones hold stays there. */
static void start_anew(struct rig *g, int64_t b)
{
    int64_t each = g->c->page ? g->c->tk / g->c->page : 0, owned = g->c->batch * each;
    g->length[b] = 0;
    for (int64_t i = b * each; i < (b + 1) * each; i++) {
        int64_t with = owned + random_below(&g->r, SPARE_PAGES), page = g->pages[i];
        g->pages[i] = g->pages[with], g->pages[with] = page;
    }
}

/* The last rows of a sequence's step are new, those before them are of keys that it has, or of none. */
static void grow(struct rig *g, int64_t b)
{
    int64_t tq = g->c->tq, room;
    int32_t *slots = (int32_t *)g->host[SLOTS] + b * tq, *lengths = g->host[LENGTHS];
    if (random_chance(&g->r, 15)) start_anew(g, b);
    room = g->c->tk - g->length[b];
    int64_t rows = random_chance(&g->r, 70) ? tq : random_below(&g->r, tq + 1);
    rows = MIN(rows, room);
    for (int64_t i = 0; i < tq; i++)
        slots[i] = i < tq - rows ? nowhere(g) : (int32_t)slot_of(g, b, g->length[b] + i - (tq - rows));
    g->length[b] += rows;
    lengths[b] = (int32_t)g->length[b];
    if (g->length[b] == g->c->tk && random_chance(&g->r, 50)) lengths[b] += 7;
    if (!g->length[b] && random_chance(&g->r, 50)) lengths[b] = -3;
}

/* What earlier steps may have left: keys of most sequences, poison in all other places. */
static bool fill_caches(struct rig *g)
{
    const struct cache_case *c = g->c;
    for (int64_t b = 0; b < c->batch; b++) {
        g->length[b] = random_chance(&g->r, 25) ? 0 : random_below(&g->r, c->tk + 1);
        for (int64_t at = 0; at < g->length[b] * c->kv_heads; at++) {
            int64_t first = element_of(g, slot_of(g, b, at / c->kv_heads), at % c->kv_heads);
            for (int64_t i = first; i < first + c->head_dim; i++) {
                dtype_store(c->keys, g->host[KEYS], i, random_normal(&g->r));
                dtype_store(c->keys, g->host[VALUES], i, random_normal(&g->r));
            }
        }
    }
    fill_of_heads(g);
    return upload(g, KEYS) && upload(g, VALUES);
}

static bool fill_step(struct rig *g)
{
    const struct cache_case *c = g->c;
    int64_t columns = c->kv_heads * c->head_dim, each = c->page ? c->tk / c->page : 0;
    fill_rows(g, Q, c->heads * c->head_dim, 1);
    fill_rows(g, K, columns, 1);
    fill_rows(g, V, columns, 1);
    for (int64_t b = 0; b < c->batch; b++) grow(g, b);
    for (int64_t i = 0; i < c->batch * each; i++) /* of pages behind the last, whatever */
        ((int32_t *)g->host[TABLE])[i] =
            i % each * c->page < g->length[i / each] ? (int32_t)g->pages[i] : (int32_t)random_next(&g->r);
    bool good = true;
    for (int i = 0; i < g->args; i++) {
        int t = g->tensor[i];
        if (t == KEYS || t == VALUES) continue;
        if (t == OUT || t == LSE) memset(g->host[t], poison(g), g->bytes[t]);
        good = good && upload(g, t);
    }
    return good;
}

/* ---- The formula ---- */

static double row_at(const struct rig *g, int t, int64_t row, int64_t column, int64_t columns)
{
    return dtype_load(g->c->dtype, g->host[t], row * columns + column);
}

/* Half of what lies between neighbours of e4m3 at |x|. */
static double half_step(double x) { return 0.5 * fmax(0x1p-9, ldexp(1, ilogb(fmax(fabs(x), 1e-9)) - 3)); }

/* Puts a row's head where the test has its cache; of e4m3 what the run made of it, if that is next to it. */
static void put_row(struct rig *g, int to, int from, int64_t row, int64_t slot, int64_t kv, const void *got)
{
    const struct cache_case *c = g->c;
    for (int64_t d = 0; d < c->head_dim; d++) {
        int64_t at = element_of(g, slot, kv) + d;
        double x = row_at(g, from, row, kv * c->head_dim + d, c->kv_heads * c->head_dim);
        if (c->keys == CODA_F8E4M3) {
            double want = x / scale_of(g, to == KEYS ? K_SCALE : V_SCALE, kv);
            double y = dtype_load(c->keys, got, at);
            want = fmax(-448, fmin(448, want));
            bool near = fabs(y - want) <= half_step(want) * (1 + 1e-4);
            if (!near) fail(CODA_E_INVALID, "slot %lld has %g, not %g", (long long)slot, y, want);
            g->wrong = g->wrong || !near;
            x = y;
        }
        dtype_store(c->keys, g->host[to], at, x);
    }
}

/* The evaluator reads and writes a state as numbers: a NaN may become another one. */
static bool same_element(const struct rig *g, const void *a, const void *b, int64_t at)
{
    size_t size = (size_t)dtype_bytes(g->c->keys, 1), byte = (size_t)at * size;
    if (!memcmp((const char *)a + byte, (const char *)b + byte, size)) return true;
    return g->on == CACHE_BY_EVALUATION && isnan(dtype_load(g->c->keys, a, at)) &&
           isnan(dtype_load(g->c->keys, b, at));
}

/* The cache that the run has left is the test's, bit by bit. */
static void check_cache(struct rig *g, int to, int from)
{
    const struct cache_case *c = g->c;
    void *got = malloc(g->bytes[to] + 1), *want = g->host[to];
    int64_t elements = (int64_t)g->bytes[to] / dtype_bytes(c->keys, 1);
    const int32_t *slots = g->host[SLOTS];
    int64_t all = c->page ? c->pool * c->page : c->batch * c->tk;
    g->wrong = g->wrong || !got || !download(g, to, got);
    for (int64_t row = 0; row < c->batch * c->tq && !g->wrong; row++)
        for (int64_t kv = 0; kv < c->kv_heads && slots[row] >= 0 && slots[row] < all; kv++)
            put_row(g, to, from, row, slots[row], kv, got);
    for (int64_t i = 0; i < elements && !g->wrong; i++) {
        if (same_element(g, got, want, i)) continue;
        fail(CODA_E_INVALID, "element %lld of the %s is %g, not %g", (long long)i,
             to == KEYS ? "keys" : "values", dtype_load(c->keys, got, i), dtype_load(c->keys, want, i));
        g->wrong = true;
    }
    free(got);
}

static bool sees(const struct rig *g, int64_t position, int64_t j)
{
    const struct cache_case *c = g->c;
    bool placed = c->causal || c->window || c->ahead || c->slopes;
    if (placed && position < 0) return false;
    if (c->causal && j > position) return false;
    if (c->ahead && j > position + c->ahead) return false;
    return !c->window || j > position - c->window;
}

/* The keys or values of a sequence, as one head has them: [length][head_dim]. */
static void load_keys(const struct rig *g, double *to, int cache, int64_t b, int64_t kv)
{
    const struct cache_case *c = g->c;
    double scale = scale_of(g, cache == KEYS ? K_SCALE : V_SCALE, kv);
    for (int64_t j = 0; j < g->length[b]; j++) {
        int64_t first = element_of(g, slot_of(g, b, j), kv);
        for (int64_t d = 0; d < c->head_dim; d++)
            *to++ = scale * dtype_load(c->keys, g->host[cache], first + d);
    }
}

static double score_of(const struct rig *g, const double *q, const double *k, int64_t h, int64_t distance)
{
    const struct cache_case *c = g->c;
    double sum = 0;
    for (int64_t d = 0; d < c->head_dim; d++) sum += q[d] * k[d];
    sum *= c->scale != 0 ? (double)c->scale : 1 / sqrt((double)c->head_dim);
    if (c->softcap > 0) sum = (double)c->softcap * tanh(sum / (double)c->softcap);
    if (c->slopes) sum -= (double)((float *)g->host[SLOPES])[h] * fabs((double)distance);
    return sum;
}

static void note(struct rig *g, double error)
{
    if (!(error <= g->worst)) g->worst = error; /* NaN, too */
}

static double result_at(const struct rig *g, int t, int64_t at)
{
    coda_dtype type = t == LSE ? CODA_F32 : g->c->dtype;
    return g->on == CACHE_BY_EVALUATION ? ((double *)g->host[t])[at] : dtype_load(type, g->host[t], at);
}

/* log sum e^s; fp32 has it to some ulps of the largest score. */
static void check_lse(struct rig *g, int64_t at, double want)
{
    double got = result_at(g, LSE, at), allowed = 2e-6 * fabs(want) + 2e-5;
    note(g, isinf(want) ? (got == want ? 0 : INFINITY) : fabs(got - want) / allowed);
}

/* Weights and result are rounded to the dtype (unit u), sums are fp32: an element may be off by (u + small)
 * (sum_j p_j |v_j| + |o|). Weights that are f16, as those of e4m3 are, come in steps of 2^-24 where they are
 * small, and so does a result of f16. */
static void check_elements(struct rig *g, int64_t at, const double *p, const double *v, int64_t keys)
{
    const struct cache_case *c = g->c;
    double u = c->dtype == CODA_BF16 ? 0x1p-8 : c->dtype == CODA_F16 ? 0x1p-11 : 0;
    double o[MOST_HEAD] = {0}, size[MOST_HEAD] = {0}, all[MOST_HEAD] = {0};
    double half = c->dtype == CODA_F16 || c->keys == CODA_F8E4M3 ? 0x1p-25 : 0;
    if (g->on == CACHE_BY_EVALUATION) u = half = 0;
    for (int64_t j = 0; j < keys; j++)
        for (int64_t d = 0; d < c->head_dim && p[j] > 0; d++) { /* what is not seen may be NaN */
            double x = v[j * c->head_dim + d];
            o[d] += p[j] * x, size[d] += p[j] * fabs(x), all[d] += fabs(x);
        }
    for (int64_t d = 0; d < c->head_dim; d++) {
        double got = result_at(g, OUT, at * c->head_dim + d);
        double allowed = (u + 1e-5) * (size[d] + fabs(o[d])) + half * (all[d] + 1) + 1e-30;
        note(g, fabs(got - o[d]) / allowed);
    }
}

static void check_query(struct rig *g, int64_t b, int64_t i, int64_t h, const double *k, const double *v)
{
    const struct cache_case *c = g->c;
    int64_t keys = g->length[b], position = i + keys - c->tq, at = (b * c->tq + i) * c->heads + h;
    double q[MOST_HEAD], p[MOST_ROOM], top = -INFINITY, sum = 0;
    double sink = c->sinks ? ((float *)g->host[SINKS])[h] : 0;
    for (int64_t d = 0; d < c->head_dim; d++) q[d] = dtype_load(c->dtype, g->host[Q], at * c->head_dim + d);
    for (int64_t j = 0; j < keys; j++) {
        p[j] = sees(g, position, j) ? score_of(g, q, k + j * c->head_dim, h, position - j) : -INFINITY;
        top = fmax(top, p[j]);
    }
    bool any = top > -INFINITY;
    if (c->sinks && any) top = fmax(top, sink), sum = exp(sink - top);
    for (int64_t j = 0; j < keys; j++) sum += p[j] = any ? exp(p[j] - top) : 0;
    for (int64_t j = 0; j < keys && any; j++) p[j] /= sum;
    if (c->lse) check_lse(g, (b * c->heads + h) * c->tq + i, any ? top + log(sum) : -INFINITY);
    check_elements(g, at, p, v, keys);
}

static void check_results(struct rig *g)
{
    const struct cache_case *c = g->c;
    int64_t group = c->heads / c->kv_heads;
    double *k = malloc(2 * sizeof *k * MOST_ROOM * MOST_HEAD), *v = k + MOST_ROOM * MOST_HEAD;
    for (int64_t e = 0; e < c->batch * c->kv_heads; e++) {
        int64_t b = e / c->kv_heads, kv = e % c->kv_heads;
        load_keys(g, k, KEYS, b, kv);
        load_keys(g, v, VALUES, b, kv);
        for (int64_t i = 0; i < c->tq * group; i++)
            check_query(g, b, i / group, kv * group + i % group, k, v);
    }
    free(k);
}

/* ---- Running ---- */

static bool run_step(struct rig *g)
{
    void *args[TENSORS];
    size_t work = g->plan ? coda_plan_workspace(g->plan) : 0;
    unsigned char byte = poison(g);
    for (int i = 0; i < g->args; i++) args[i] = g->at[g->tensor[i]];
    if (g->on == CACHE_BY_EVALUATION) return coda_evaluate(g->g, args) == CODA_OK;
    if (g->on == CACHE_ON_GPU && (!device_fill(g->workspace, byte, work) || !device_wait())) return false;
    if (g->on == CACHE_ON_CPU) memset(g->workspace, byte, work);
    return coda_run(g->plan, args, NULL, g->workspace, NULL) == CODA_OK;
}

static bool step(struct rig *g)
{
    const struct cache_case *c = g->c;
    if (!fill_step(g) || !run_step(g) || !download(g, OUT, g->host[OUT])) return false;
    if (c->lse && !download(g, LSE, g->host[LSE])) return false;
    check_cache(g, KEYS, K);
    check_cache(g, VALUES, V);
    if (g->wrong) return true;
    check_results(g);
    return true;
}

static bool open_rig(struct rig *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = g->on == CACHE_ON_GPU ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    build(g);
    if (g->on != CACHE_BY_EVALUATION && coda_compile(&g->plan, g->g, &opt) != CODA_OK) return false;
    return make_memory(g) && fill_caches(g);
}

double cache_run(const struct cache_case *c, enum cache_device on)
{
    struct rig g = {.c = c, .on = on, .r = {c->seed}};
    bool ran = open_rig(&g);
    for (int i = 0; i < c->steps && ran && !g.wrong; i++) ran = step(&g);
    for (int t = 0; t < TENSORS; t++) {
        free(g.host[t]);
        if (g.at[t]) release(&g, g.at[t]);
    }
    if (g.workspace) release(&g, g.workspace);
    free(g.length), free(g.pages);
    coda_plan_free(g.plan);
    coda_graph_free(g.g);
    return !ran ? -1 : g.wrong ? INFINITY : g.worst;
}
