/*
 * cpu_attention.c -- attention on the CPU device: for each query, o = sum_j p_j v_j with
 * p = softmax(scores) over the keys it sees, in two passes over its own row of scores.
 *
 * A block of queries of one head shares its keys and values, converted to floats; keys are turned to
 * [head_dim][key] so that both products run along memory.
 */
#include "cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_QUERIES = 32 };

struct attention_job {
    const struct cpu *cpu;
    const struct attention_spec *s;
    struct piece *piece;
    int64_t pieces;
    atomic_bool failed;
};

/* Up to BLOCK_QUERIES queries of a sequence, from `first` on. Its query 0 is row `row` of its batch. */
struct piece {
    int64_t batch; /* -1: rows of no sequence */
    int64_t row, queries, first;
};

struct range {
    int64_t first, end;
};

/* One head's memory while a block runs. */
struct head {
    const struct piece *piece;
    int64_t batch, index;
    struct range keys; /* that some query of the block sees */
    float slope, sink, k_scale, v_scale;
    float *k, *v;         /* [head_dim][keys], [keys][head_dim] */
    float *score, *q, *o; /* [keys], [head_dim], [head_dim] */
};

/* Element i of a tensor of integers, counted from its first one. */
static int64_t index_at(const struct cpu *c, const struct tensor_use *u, int64_t i)
{
    const void *base = cpu_buffer(c, u->buffer);
    if (u->dtype == CODA_I64) return ((const int64_t *)base)[u->offset + i];
    return ((const int32_t *)base)[u->offset + i];
}

static int64_t length_of(const struct cpu *c, const struct attention_spec *s, int64_t batch)
{
    if (batch < 0) return 0;
    if (s->lengths.buffer < 0) return s->tk;
    int64_t n = index_at(c, &s->lengths, batch * s->lengths.stride[0]);
    return MAX(0, MIN(n, s->tk));
}

/* The keys that query i of the sequence sees. */
static struct range visible(const struct cpu *c, const struct attention_spec *s, const struct piece *p,
                            int64_t i)
{
    int64_t keys = length_of(c, s, p->batch), position = i + attention_shift(s, p->queries, keys);
    struct range r = {0, keys};
    if (attention_is_limited(s)) r.end = MAX(0, MIN(keys, position + s->ahead + 1));
    if (s->align == CODA_ALIGN_LENGTH && position < 0) r.end = 0; /* no row of the sequence */
    if (s->window > 0) r.first = MIN(MAX(0, position - s->window + 1), r.end);
    if (s->ranges.buffer < 0) return r;
    const struct tensor_use *u = &s->ranges;
    int64_t own = MAX(p->batch, 0) * u->stride[0] + (p->row + i) * u->stride[1];
    r.first = MAX(r.first, index_at(c, u, own));
    r.end = MAX(r.first, MIN(r.end, index_at(c, u, own + u->stride[2])));
    return r;
}

/* The keys that some query of first .. end - 1 sees. */
static struct range some(const struct cpu *c, const struct attention_spec *s, const struct piece *p,
                         int64_t end)
{
    struct range all = {s->tk, 0};
    for (int64_t i = p->first; i < end; i++) {
        struct range r = visible(c, s, p, i);
        if (r.first < r.end) all.first = MIN(all.first, r.first), all.end = MAX(all.end, r.end);
    }
    return all.first < all.end ? all : (struct range){0, 0};
}

/* y += a x; written for the compiler's vectors of four. */
static void add_scaled(float *y, const float *x, float a, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int l = 0; l < 4; l++) y[i + l] += a * x[i + l];
    for (; i < n; i++) y[i] += a * x[i];
}

/* Where a key's row is: its sequence, or page, and which row of that. False: a page that the pool has not. */
static bool find_row(const struct attention_job *j, const struct head *h, int64_t key, int64_t *lot,
                     int64_t *row)
{
    const struct attention_spec *s = j->s;
    const struct tensor_use *u = &s->table;
    *lot = h->batch, *row = key;
    if (!s->page) return true;
    *lot = index_at(j->cpu, u, h->batch * u->stride[0] + key / s->page * u->stride[1]);
    *row = key % s->page;
    return *lot >= 0 && *lot < attention_lots(s);
}

static void read_keys(const struct attention_job *j, struct head *h)
{
    const struct attention_spec *s = j->s;
    const void *k = cpu_buffer(j->cpu, s->k.buffer), *v = cpu_buffer(j->cpu, s->v.buffer);
    int64_t n = h->keys.end - h->keys.first, shared = h->index / (s->heads / s->kv_heads);
    for (int64_t i = 0; i < n; i++) {
        int64_t lot, row;
        if (!find_row(j, h, h->keys.first + i, &lot, &row)) {
            for (int64_t d = 0; d < s->head_dim; d++) h->k[d * n + i] = h->v[i * s->head_dim + d] = 0;
            continue;
        }
        int64_t at_k = s->k.offset + lot * s->k.batch + row * s->k.time + shared * s->k.head;
        int64_t at_v = s->v.offset + lot * s->v.batch + row * s->v.time + shared * s->v.head;
        cpu_read(h->q, s->k.dtype, k, at_k, 1, s->head_dim);
        for (int64_t d = 0; d < s->head_dim; d++) h->k[d * n + i] = h->q[d];
        cpu_read(h->v + i * s->head_dim, s->v.dtype, v, at_v, 1, s->head_dim);
    }
}

static float map_score(const struct attention_spec *s, float x, int64_t position, int64_t key, int64_t head)
{
    double in[PRIM_MAX_INPUTS] = {x, (double)position, (double)key, (double)head}, param[PRIM_MAX_PARAMS];
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) param[i] = s->score_param[i];
    return (float)s->score->reference(in, param);
}

/* Where what is added to a row's scores begins; NULL: nothing is. */
static const void *bias_of(const struct attention_job *j, const struct head *h, int64_t row, int64_t *at)
{
    const struct tensor_use *u = &j->s->bias;
    if (u->buffer < 0) return NULL;
    *at = u->offset + h->batch * u->stride[0] + h->index * u->stride[1] + row * u->stride[2];
    return cpu_buffer(j->cpu, u->buffer);
}

/* Of scores that are not plain, q . k of the keys from `key` on. */
static void turn_scores(const struct attention_job *j, const struct head *h, int64_t i, int64_t key,
                        int64_t n)
{
    const struct attention_spec *s = j->s;
    int64_t position = i + attention_shift(s, h->piece->queries, length_of(j->cpu, s, h->piece->batch));
    int64_t at = 0;
    const void *bias = bias_of(j, h, h->piece->row + i, &at);
    for (int64_t t = 0; t < n; t++) {
        float x = s->scale * h->score[t];
        if (s->softcap != 0) x = s->softcap * tanhf(x / s->softcap);
        x -= h->slope * fabsf((float)(position - key - t));
        if (bias) x += (float)dtype_load(s->bias.dtype, bias, at + (key + t) * s->bias.stride[3]);
        h->score[t] = s->score ? map_score(s, x, position, key + t, h->index) : x;
    }
}

/* Turns scores into exponentials and returns their sum, the sink's included. */
static float exponentials(float *score, int64_t n, float sink, float *largest)
{
    float most = sink, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, score[i]);
    if (most == -INFINITY) most = 0;
    *largest = most;
    for (int64_t i = 0; i < n; i++) sum += score[i] = expf(score[i] - most);
    return sum + (sink == -INFINITY ? 0 : expf(sink - most));
}

static void run_query(const struct attention_job *j, struct head *h, int64_t i)
{
    const struct attention_spec *s = j->s;
    struct range r = visible(j->cpu, s, h->piece, i);
    bool plain = attention_is_plain(s);
    int64_t n = r.end - r.first, skip = r.first - h->keys.first, pitch = h->keys.end - h->keys.first;
    int64_t row = h->piece->row + i;
    int64_t at_q = s->q.offset + h->batch * s->q.batch + row * s->q.time + h->index * s->q.head;
    int64_t at_o = s->o.offset + h->batch * s->o.batch + row * s->o.time + h->index * s->o.head;
    cpu_read(h->q, s->q.dtype, cpu_buffer(j->cpu, s->q.buffer), at_q, 1, s->head_dim);
    memset(h->score, 0, sizeof(float) * (size_t)n);
    memset(h->o, 0, sizeof(float) * (size_t)s->head_dim);
    for (int64_t d = 0; d < s->head_dim; d++)
        add_scaled(h->score, h->k + d * pitch + skip, (plain ? s->scale : 1) * h->k_scale * h->q[d], n);
    if (!plain) turn_scores(j, h, i, r.first, n);
    float largest, sum = exponentials(h->score, n, h->sink, &largest);
    if (s->lse.buffer >= 0) {
        float *lse = (float *)cpu_buffer(j->cpu, s->lse.buffer) + s->lse.offset;
        lse[((attention_is_packed(s) ? 0 : h->batch) * s->heads + h->index) * s->tq + row] =
            n ? largest + logf(sum) : -INFINITY;
    }
    if (s->o.buffer < 0) return;
    for (int64_t t = 0; t < n; t++)
        add_scaled(h->o, h->v + (skip + t) * s->head_dim, h->score[t], s->head_dim);
    void *o = cpu_buffer(j->cpu, s->o.buffer);
    for (int64_t d = 0; d < s->head_dim; d++)
        dtype_store(s->o.dtype, o, at_o + d, n ? h->o[d] / sum * h->v_scale : 0);
}

/* One allocation: keys, values, scores, a query, its result. */
static float *head_memory(struct head *h, int64_t head_dim)
{
    int64_t n = h->keys.end - h->keys.first;
    float *floats = malloc(sizeof *floats * (size_t)(2 * n * head_dim + n + 2 * head_dim + 1));
    if (!floats) return NULL;
    h->k = floats;
    h->v = h->k + n * head_dim;
    h->score = h->v + n * head_dim;
    h->q = h->score + n;
    h->o = h->q + head_dim;
    return floats;
}

static float of_head(const struct cpu *c, const struct tensor_use *u, int64_t head, float none)
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
    h.keys = some(j->cpu, s, p, end);
    h.slope = of_head(j->cpu, &s->slopes, h.index, 0);
    h.sink = of_head(j->cpu, &s->sinks, h.index, -INFINITY);
    h.k_scale = of_head(j->cpu, &s->k_scale, h.index / (s->heads / s->kv_heads), 1);
    h.v_scale = of_head(j->cpu, &s->v_scale, h.index / (s->heads / s->kv_heads), 1);
    float *memory = head_memory(&h, s->head_dim);
    if (!memory) {
        j->failed = true;
        return;
    }
    read_keys(j, &h);
    for (int64_t i = p->first; i < end; i++) run_query(j, &h, i);
    free(memory);
}

static void cut(struct attention_job *j, int64_t batch, int64_t row, int64_t queries)
{
    for (int64_t first = 0; first < queries; first += BLOCK_QUERIES)
        j->piece[j->pieces++] = (struct piece){batch, row, queries, first};
}

/* Pieces of sequences whose queries are packed, and of the rows before and behind them. */
static void cut_packed(struct attention_job *j)
{
    const struct attention_spec *s = j->s;
    int64_t at = 0;
    for (int64_t b = 0; b <= s->batch; b++) {
        int64_t start = index_at(j->cpu, &s->starts, b * s->starts.stride[0]),
                next = MAX(at, MIN(start, s->tq));
        cut(j, b - 1, at, next - at);
        at = next;
    }
    cut(j, -1, at, s->tq - at);
}

coda_status cpu_attention(const struct cpu *c)
{
    const struct attention_spec *s = c->p->spec;
    struct attention_job j = {.cpu = c, .s = s};
    if (s->score && !s->score->reference)
        return fail(CODA_E_UNSUPPORTED, "map %s has no reference, so only a GPU can run it", s->score->name);
    if (attention_is_empty(s)) return CODA_OK; /* of however many sequences */
    j.piece = malloc(sizeof *j.piece * (size_t)(attention_tiles(s, BLOCK_QUERIES) + 1));
    j.failed = !j.piece;
    if (j.piece && attention_is_packed(s)) cut_packed(&j);
    for (int64_t b = 0; j.piece && b < s->batch && !attention_is_packed(s); b++) cut(&j, b, 0, s->tq);
    parallel_for(j.pieces * s->heads, run_block, &j);
    free(j.piece);
    if (j.failed)
        return fail(CODA_E_MEMORY, "out of memory for %lld keys of %lld columns", (long long)s->tk,
                    (long long)s->head_dim);
    return CODA_OK;
}
