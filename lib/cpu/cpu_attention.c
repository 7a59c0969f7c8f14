/*
 * cpu_attention.c -- attention on the CPU device: for each query, o = sum_j p_j v_j with
 * p = softmax(scores) over the keys it sees.
 *
 * A block of queries of one head shares its keys: their scores are one product along head_dim, each query's
 * softmax is over its own keys, and o adds up values in the order of the keys, for several queries at once
 * where they see the same ones. Keys and values are read where they lie, unless they are in pages, of 8 bits,
 * or of a head_dim that is no multiple of eight lanes.
 */
#include "cpu_attention.h"
#include "dot.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_QUERIES = 4, BLOCK_KEYS = 128 };

struct attention_job {
    const struct cpu *cpu;
    const struct attention_spec *s;
    struct piece *piece;
    int64_t pieces;
    const struct prim *max, *sum, *exp_sub;
    atomic_bool failed;
};

/* Rows of keys or values of one head: `from` on, of a type that products take. */
struct rows {
    coda_dtype type;
    const void *from;
    int64_t pitch;
};

/* One head's memory while a block runs. */
struct head {
    const struct piece *piece;
    int64_t batch, index;
    struct key_range keys;                /* that some query of the block sees */
    struct key_range seen[BLOCK_QUERIES]; /* that each one sees */
    int64_t queries, width;               /* of the block; head_dim, rounded up to whole lanes */
    float slope, sink, k_scale, v_scale;
    struct rows k, v;
    float *copy_k, *copy_v;   /* [keys][width], where rows cannot be read in place */
    float *score, *q, *o;     /* [queries][keys], [queries][width], [queries][width] */
    float sum[BLOCK_QUERIES]; /* of a query's exponentials */
};

/* Element i of a tensor of integers, counted from its first one. */
static int64_t index_at(const struct cpu *c, const struct tensor_use *u, int64_t i)
{
    const void *base = cpu_buffer(c, u->buffer);
    if (u->dtype == CODA_I64) return ((const int64_t *)base)[u->offset + i];
    return ((const int32_t *)base)[u->offset + i];
}

int64_t attention_length(const struct cpu *c, const struct attention_spec *s, int64_t batch)
{
    if (batch < 0) return 0;
    if (!attention_has(s, ATTENTION_LENGTHS)) return s->tk;
    int64_t n = index_at(c, &s->use[ATTENTION_LENGTHS], batch * s->use[ATTENTION_LENGTHS].stride[0]);
    return MAX(0, MIN(n, s->tk));
}

/* The keys that query i of the sequence sees. */
struct key_range attention_visible(const struct cpu *c, const struct attention_spec *s, const struct piece *p,
                                   int64_t i)
{
    int64_t keys = attention_length(c, s, p->batch), position = i + attention_shift(s, p->queries, keys);
    struct key_range r = {0, keys};
    if (attention_is_limited(s)) r.end = MAX(0, MIN(keys, position + s->ahead + 1));
    if (s->align == CODA_ALIGN_LENGTH && position < 0) r.end = 0; /* no row of the sequence */
    if (s->window > 0) r.first = MIN(MAX(0, position - s->window + 1), r.end);
    if (!attention_has(s, ATTENTION_RANGES)) return r;
    const struct tensor_use *u = &s->use[ATTENTION_RANGES];
    int64_t own = MAX(p->batch, 0) * u->stride[0] + (p->row + i) * u->stride[1];
    r.first = MAX(r.first, index_at(c, u, own));
    r.end = MAX(r.first, MIN(r.end, index_at(c, u, own + u->stride[2])));
    return r;
}

/* The keys that some query of first .. end - 1 sees. */
struct key_range attention_some(const struct cpu *c, const struct attention_spec *s, const struct piece *p,
                                int64_t end)
{
    struct key_range all = {s->tk, 0};
    for (int64_t i = p->first; i < end; i++) {
        struct key_range r = attention_visible(c, s, p, i);
        if (r.first < r.end) all.first = MIN(all.first, r.first), all.end = MAX(all.end, r.end);
    }
    return all.first < all.end ? all : (struct key_range){0, 0};
}

/* Where a key's row is: its sequence, or page, and which row of that. False: a page that the pool has not. */
static bool find_row(const struct attention_job *j, const struct head *h, int64_t key, int64_t *lot,
                     int64_t *row)
{
    const struct attention_spec *s = j->s;
    const struct tensor_use *u = &s->use[ATTENTION_TABLE];
    *lot = h->batch, *row = key;
    if (!s->page) return true;
    *lot = index_at(j->cpu, u, h->batch * u->stride[0] + key / s->page * u->stride[1]);
    *row = key % s->page;
    return *lot >= 0 && *lot < attention_lots(s);
}

static bool is_in_place(const struct attention_job *j, const struct tensor_use *u)
{
    return !j->s->page && dot_takes(u->dtype) && j->s->head_dim % DOT_LANES == 0;
}

static int64_t row_of(const struct attention_job *j, const struct head *h, const struct tensor_use *u,
                      int64_t lot, int64_t row)
{
    int64_t shared = h->index / (j->s->heads / j->s->kv_heads);
    return u->offset + lot * u->batch + row * u->time + shared * u->head;
}

/* A page that the pool has not holds zeros. */
static void copy_key_rows(const struct attention_job *j, const struct head *h, const struct tensor_use *u,
                          float *to)
{
    const void *base = cpu_buffer(j->cpu, u->buffer);
    for (int64_t key = h->keys.first; key < h->keys.end; key++, to += h->width) {
        int64_t lot, row;
        memset(to, 0, sizeof *to * (size_t)h->width);
        if (find_row(j, h, key, &lot, &row))
            cpu_read(to, u->dtype, base, row_of(j, h, u, lot, row), 1, j->s->head_dim);
    }
}

static struct rows key_rows(const struct attention_job *j, const struct head *h, const struct tensor_use *u,
                            float *copy)
{
    if (is_in_place(j, u)) {
        const char *base = cpu_buffer(j->cpu, u->buffer);
        int64_t at = row_of(j, h, u, h->batch, h->keys.first);
        return (struct rows){u->dtype, base + dtype_bytes(u->dtype, at), u->time};
    }
    copy_key_rows(j, h, u, copy);
    return (struct rows){CODA_F32, copy, h->width};
}

static float map_score(const struct attention_spec *s, float x, int64_t position, int64_t key, int64_t head)
{
    double in[PRIM_MAX_INPUTS] = {x, (double)position, (double)key, (double)head}, param[PRIM_MAX_PARAMS];
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) param[i] = s->score_param[i];
    return (float)s->score->reference(in, param);
}

/* Adds the row's bias of the n keys from `key` on, if there is one. */
static void add_bias(const struct attention_job *j, const struct head *h, int64_t row, int64_t key, int64_t n,
                     float *score)
{
    const struct tensor_use *u = &j->s->use[ATTENTION_BIAS];
    if (u->buffer < 0) return;
    int64_t at = u->offset + h->batch * u->stride[0] + h->index * u->stride[1] + row * u->stride[2];
    for (int64_t t = 0; t < n; t += BLOCK_KEYS) {
        float bias[BLOCK_KEYS];
        int64_t part = MIN(BLOCK_KEYS, n - t);
        cpu_read(bias, u->dtype, cpu_buffer(j->cpu, u->buffer), at + (key + t) * u->stride[3], u->stride[3],
                 part);
        for (int64_t i = 0; i < part; i++) score[t + i] += bias[i];
    }
}

/* Turns q . k of the n keys from `key` on into scores: softcap, slopes, bias and map, where there are any. */
static void turn_scores(const struct attention_job *j, const struct head *h, int64_t i, int64_t key,
                        int64_t n, float *score)
{
    const struct attention_spec *s = j->s;
    int64_t position =
        i + attention_shift(s, h->piece->queries, attention_length(j->cpu, s, h->piece->batch));
    for (int64_t t = 0; s->softcap != 0 && t < n; t++)
        score[t] = s->softcap * tanhf(s->scale * score[t] / s->softcap);
    for (int64_t t = 0; h->slope != 0 && t < n; t++)
        score[t] -= h->slope * fabsf((float)(position - key - t));
    add_bias(j, h, h->piece->row + i, key, n, score);
    for (int64_t t = 0; s->score && t < n; t++)
        score[t] = map_score(s, score[t], position, key + t, h->index);
}

/* Turns scores into exponentials and returns their sum, the sink's included. */
static float exponentials(const struct attention_job *j, float *score, int64_t n, float sink, float *largest)
{
    double most[PRIM_MAX_STATE] = {(double)sink}, sum[PRIM_MAX_STATE] = {0};
    if (n) j->max->reduce->fold(most, score, n, (int)vectors());
    if (most[0] == -(double)INFINITY) most[0] = 0;
    *largest = (float)most[0];
    float same[BLOCK_KEYS];
    for (int i = 0; i < BLOCK_KEYS; i++) same[i] = *largest;
    for (int64_t i = 0; i < n; i += BLOCK_KEYS) {
        const float *in[PRIM_MAX_INPUTS] = {score + i, same, same, same};
        float out[BLOCK_KEYS];
        int64_t part = MIN(BLOCK_KEYS, n - i);
        j->exp_sub->loops->row[vectors()](out, in, NULL, part);
        memcpy(score + i, out, sizeof *out * (size_t)part);
    }
    if (n) j->sum->reduce->fold(sum, score, n, (int)vectors());
    return (float)(sum[0] + (sink == -INFINITY ? 0 : exp((double)sink - most[0])));
}

static float *scores_of(const struct head *h, int64_t q)
{
    return h->score + q * (h->keys.end - h->keys.first);
}

static int64_t query_row(const struct attention_job *j, const struct head *h, const struct tensor_use *u,
                         int64_t q)
{
    (void)j;
    return u->offset + h->batch * u->batch + (h->piece->row + h->piece->first + q) * u->time +
           h->index * u->head;
}

/* All scores of the block: those of keys that a query does not see are never looked at. */
static void multiply_keys(const struct attention_job *j, struct head *h)
{
    const struct attention_spec *s = j->s;
    float scale = (s->softcap != 0 ? 1 : s->scale) * h->k_scale;
    int64_t n = h->keys.end - h->keys.first;
    for (int64_t q = 0; q < h->queries; q++) {
        float *to = h->q + q * h->width;
        cpu_read(to, s->use[ATTENTION_Q].dtype, cpu_buffer(j->cpu, s->use[ATTENTION_Q].buffer),
                 query_row(j, h, &s->use[ATTENTION_Q], q), 1, s->head_dim);
        for (int64_t d = 0; d < s->head_dim; d++) to[d] *= scale;
        memset(to + s->head_dim, 0, sizeof *to * (size_t)(h->width - s->head_dim));
    }
    dot(&(struct dot){.m = h->queries,
                      .n = n,
                      .k = h->width,
                      .a = h->q,
                      .a_pitch = h->width,
                      .type = h->k.type,
                      .b = h->k.from,
                      .b_pitch = h->k.pitch,
                      .c = h->score,
                      .c_pitch = n});
}

static void soften(const struct attention_job *j, struct head *h, int64_t q)
{
    const struct attention_spec *s = j->s;
    struct key_range r = h->seen[q];
    int64_t n = r.end - r.first, i = h->piece->first + q;
    float *score = scores_of(h, q) + (r.first - h->keys.first), largest;
    if (!attention_is_plain(s)) turn_scores(j, h, i, r.first, n, score);
    h->sum[q] = exponentials(j, score, n, h->sink, &largest);
    if (!attention_has(s, ATTENTION_LSE)) return;
    float *lse = (float *)cpu_buffer(j->cpu, s->use[ATTENTION_LSE].buffer) + s->use[ATTENTION_LSE].offset;
    lse[((attention_is_packed(s) ? 0 : h->batch) * s->heads + h->index) * s->tq + h->piece->row + i] =
        n ? largest + logf(h->sum[q]) : -INFINITY;
}

/* Values of the keys first .. end - 1, for `queries` that see all of these. */
static void add_values(const struct head *h, int64_t q, int64_t queries, int64_t first, int64_t end)
{
    int64_t n = h->keys.end - h->keys.first, skip = first - h->keys.first;
    if (first >= end) return;
    add_weighted(&(struct weighted){.m = queries,
                                    .n = end - first,
                                    .columns = h->width,
                                    .p = scores_of(h, q) + skip,
                                    .p_pitch = n,
                                    .type = h->v.type,
                                    .v = (const char *)h->v.from + dtype_bytes(h->v.type, skip * h->v.pitch),
                                    .v_pitch = h->v.pitch,
                                    .o = h->o + q * h->width,
                                    .o_pitch = h->width});
}

/* Adds one block of keys: first what all of a tile's queries see together, then the rest for each query. */
static void add_block(const struct head *h, int64_t q, int64_t queries, struct key_range block)
{
    struct key_range both = block;
    for (int64_t i = q; i < q + queries; i++) {
        both.first = MAX(both.first, h->seen[i].first);
        both.end = MIN(both.end, h->seen[i].end);
    }
    both.end = MAX(both.first, both.end);
    both.first = MIN(both.first, block.end), both.end = MIN(both.end, block.end);
    for (int64_t i = q; i < q + queries; i++)
        add_values(h, i, 1, MAX(block.first, h->seen[i].first), MIN(both.first, h->seen[i].end));
    add_values(h, q, queries, both.first, both.end);
    for (int64_t i = q; i < q + queries; i++)
        add_values(h, i, 1, MAX(both.end, h->seen[i].first), MIN(block.end, h->seen[i].end));
}

static void finish(const struct attention_job *j, struct head *h, int64_t q)
{
    const struct attention_spec *s = j->s;
    float *o = h->o + q * h->width;
    bool some_keys = h->seen[q].end > h->seen[q].first;
    for (int64_t d = 0; d < s->head_dim; d++) o[d] = some_keys ? o[d] / h->sum[q] * h->v_scale : 0;
    cpu_write(s->use[ATTENTION_O].dtype, cpu_buffer(j->cpu, s->use[ATTENTION_O].buffer),
              query_row(j, h, &s->use[ATTENTION_O], q), o, s->head_dim);
}

static void run_queries(const struct attention_job *j, struct head *h)
{
    multiply_keys(j, h);
    for (int64_t q = 0; q < h->queries; q++) soften(j, h, q);
    if (!attention_has(j->s, ATTENTION_O)) return;
    memset(h->o, 0, sizeof(float) * (size_t)(h->queries * h->width));
    for (int64_t key = h->keys.first; key < h->keys.end; key += BLOCK_KEYS)
        for (int64_t q = 0; q < h->queries; q += TILE_QUERIES)
            add_block(h, q, MIN(TILE_QUERIES, h->queries - q),
                      (struct key_range){key, MIN(key + BLOCK_KEYS, h->keys.end)});
    for (int64_t q = 0; q < h->queries; q++) finish(j, h, q);
}

/* One allocation: copies of keys and values, scores, queries, their results. */
static float *head_memory(const struct attention_job *j, struct head *h)
{
    int64_t n = h->keys.end - h->keys.first, copy = n * h->width, rows = h->queries * h->width;
    int64_t k = is_in_place(j, &j->s->use[ATTENTION_K]) ? 0 : copy,
            v = is_in_place(j, &j->s->use[ATTENTION_V]) ? 0 : copy;
    float *floats = malloc(sizeof *floats * (size_t)(k + v + h->queries * n + 2 * rows + 1));
    if (!floats) return NULL;
    h->copy_k = floats;
    h->copy_v = h->copy_k + k;
    h->score = h->copy_v + v;
    h->q = h->score + h->queries * n;
    h->o = h->q + rows;
    return floats;
}

float attention_of_head(const struct cpu *c, const struct tensor_use *u, int64_t head, float none)
{
    if (u->buffer < 0) return none;
    return ((const float *)cpu_buffer(c, u->buffer))[u->offset + head * u->stride[0]];
}

static void run_block(void *ctx, int64_t item)
{
    struct attention_job *j = ctx;
    const struct attention_spec *s = j->s;
    const struct piece *p = &j->piece[item / s->heads];
    int64_t end = MIN(p->first + BLOCK_QUERIES, p->queries);
    struct head h = {.piece = p, .index = item % s->heads, .batch = MAX(p->batch, 0)};
    h.keys = attention_some(j->cpu, s, p, end);
    h.queries = end - p->first, h.width = CEIL_DIV(s->head_dim, DOT_LANES) * DOT_LANES;
    for (int64_t q = 0; q < h.queries; q++) h.seen[q] = attention_visible(j->cpu, s, p, p->first + q);
    h.slope = attention_of_head(j->cpu, &s->use[ATTENTION_SLOPES], h.index, 0);
    h.sink = attention_of_head(j->cpu, &s->use[ATTENTION_SINKS], h.index, -INFINITY);
    h.k_scale = attention_of_head(j->cpu, &s->use[ATTENTION_K_SCALE], h.index / (s->heads / s->kv_heads), 1);
    h.v_scale = attention_of_head(j->cpu, &s->use[ATTENTION_V_SCALE], h.index / (s->heads / s->kv_heads), 1);
    float *memory = head_memory(j, &h);
    if (!memory) {
        j->failed = true;
        return;
    }
    h.k = key_rows(j, &h, &s->use[ATTENTION_K], h.copy_k);
    h.v = key_rows(j, &h, &s->use[ATTENTION_V], h.copy_v);
    run_queries(j, &h);
    free(memory);
}

static int64_t cut(struct piece *to, int64_t n, int64_t batch, int64_t row, int64_t queries)
{
    for (int64_t first = 0; first < queries; first += BLOCK_QUERIES)
        to[n++] = (struct piece){batch, row, queries, first};
    return n;
}

/* Pieces of sequences whose queries are packed, and of the rows before and behind them. */
static int64_t cut_packed(const struct cpu *c, const struct attention_spec *s, struct piece *to)
{
    const struct tensor_use *u = &s->use[ATTENTION_STARTS];
    int64_t at = 0, n = 0;
    for (int64_t b = 0; b <= s->batch; b++) {
        int64_t next = MAX(at, MIN(index_at(c, u, b * u->stride[0]), s->tq));
        n = cut(to, n, b - 1, at, next - at);
        at = next;
    }
    return cut(to, n, -1, at, s->tq - at);
}

struct piece *attention_cut(const struct cpu *c, const struct attention_spec *s, int64_t *pieces)
{
    struct piece *to = malloc(sizeof *to * (size_t)(attention_tiles(s, BLOCK_QUERIES) + 1));
    *pieces = 0;
    if (to && attention_is_packed(s)) *pieces = cut_packed(c, s, to);
    for (int64_t b = 0; to && b < s->batch && !attention_is_packed(s); b++)
        *pieces = cut(to, *pieces, b, 0, s->tq);
    return to;
}

coda_status cpu_attention(const struct cpu *c)
{
    const struct attention_spec *s = c->p->spec;
    struct attention_job j = {.cpu = c, .s = s};
    j.max = prim_find("max"), j.sum = prim_find("sum"), j.exp_sub = prim_find("exp_sub");
    if (s->score && !s->score->reference)
        return fail(CODA_E_UNSUPPORTED, "map %s has no reference, so only a GPU can run it", s->score->name);
    if (attention_is_empty(s)) return CODA_OK; /* of however many sequences */
    j.piece = attention_cut(c, s, &j.pieces);
    j.failed = !j.piece;
    double operations = 2 * (double)s->heads * (double)s->tq * (double)s->tk * (double)s->head_dim;
    if (!attention_is_packed(s)) operations *= (double)s->batch;
    parallel_work(j.pieces * s->heads, operations, run_block, &j);
    free(j.piece);
    if (j.failed)
        return fail(CODA_E_MEMORY, "out of memory for %lld keys of %lld columns", (long long)s->tk,
                    (long long)s->head_dim);
    return CODA_OK;
}
