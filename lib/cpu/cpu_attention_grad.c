/*
 * cpu_attention_grad.c -- the gradients of attention on the CPU device, by the formulas of
 * eval_attention_grad.c.
 *
 * An item is a key head of a sequence: it walks the queries of the heads that read it in order, a block at
 * a time, as attention does. Scores and do v of a block are one product each; dq adds up keys in their order,
 * dk and dv queries in theirs, in fp32, and only where a query sees the key. What is summed over sequences
 * has a part of each, and parts are added in their order; a bias that several items add to is walked by one
 * thread. So bits do not depend on threads.
 */
#include "attention_grad.h"
#include "cpu_attention.h"
#include "dot.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READ_KEYS = 128 }; /* whose bias is read at once */

struct grad_job {
    const struct cpu *cpu;
    const struct attention_grad_spec *s;
    struct attention_spec a;
    struct piece *piece;
    int64_t pieces, width;  /* width: head_dim, rounded up to whole lanes */
    double *sinks, *slopes; /* [batch][heads]: parts */
    atomic_bool failed;
};

/* One item's memory. */
struct key_head {
    int64_t batch, index, keys;
    float *k, *v, *dk, *dv; /* [keys][width] */
    float *q, *d_o, *dq;    /* [BLOCK_QUERIES][width] */
    float *p, *dr;          /* [BLOCK_QUERIES][keys]: weights; derivatives by scale q k */
    float delta[BLOCK_QUERIES], lse[BLOCK_QUERIES];
};

/* A block of queries of a head. */
struct block {
    const struct piece *piece;
    int64_t head, count;
    struct key_range keys, seen[BLOCK_QUERIES];
};

/* ---- Rows ---- */

static void read_rows(const struct grad_job *j, const struct tensor_use *u, int64_t batch, int64_t head,
                      int64_t first, int64_t n, float *to)
{
    const void *base = cpu_buffer(j->cpu, u->buffer);
    for (int64_t i = 0; i < n; i++, to += j->width) {
        int64_t at = u->offset + batch * u->batch + (first + i) * u->time + head * u->head;
        cpu_read(to, u->dtype, base, at, 1, j->a.head_dim);
        memset(to + j->a.head_dim, 0, sizeof *to * (size_t)(j->width - j->a.head_dim));
    }
}

static void write_rows(const struct grad_job *j, const struct tensor_use *u, int64_t batch, int64_t head,
                       int64_t first, int64_t n, const float *from)
{
    if (u->buffer < 0) return;
    void *base = cpu_buffer(j->cpu, u->buffer);
    for (int64_t i = 0; i < n; i++, from += j->width)
        cpu_write(u->dtype, base, u->offset + batch * u->batch + (first + i) * u->time + head * u->head, from,
                  j->a.head_dim);
}

static float sum_of(const struct grad_job *j, const struct tensor_use *u, int64_t batch, int64_t head,
                    int64_t row)
{
    const float *base = cpu_buffer(j->cpu, u->buffer);
    return base[u->offset + batch * u->batch + row * u->time + head * u->head];
}

/* Rows of q and do, what their sums are, and what they see. */
static void read_block(const struct grad_job *j, struct key_head *h, struct block *b)
{
    const struct piece *p = b->piece;
    const struct tensor_use delta = attention_delta_use(j->s);
    int64_t batch = attention_is_packed(&j->a) ? 0 : h->batch, row = p->row + p->first;
    read_rows(j, &j->s->use[ATTENTION_GRAD_Q], batch, b->head, row, b->count, h->q);
    read_rows(j, &j->s->use[ATTENTION_GRAD_DO], batch, b->head, row, b->count, h->d_o);
    for (int64_t i = 0; i < b->count; i++) {
        h->delta[i] = sum_of(j, &delta, batch, b->head, row + i);
        h->lse[i] = sum_of(j, &j->s->use[ATTENTION_GRAD_LSE], batch, b->head, row + i);
        b->seen[i] = attention_visible(j->cpu, &j->a, p, p->first + i);
        if (h->lse[i] == -INFINITY) b->seen[i].end = b->seen[i].first;
    }
    b->keys = attention_some(j->cpu, &j->a, p, p->first + b->count);
}

/* ---- Pairs of a query and its keys ---- */

/* Multiplies with all keys that the block has: to[i][key] = x[i] . y[key]. */
static void multiply_rows(const struct grad_job *j, const struct key_head *h, const struct block *b,
                          const float *x, const float *y, float *to)
{
    dot(&(struct dot){.m = b->count,
                      .n = b->keys.end - b->keys.first,
                      .k = j->width,
                      .a = x,
                      .a_pitch = j->width,
                      .type = CODA_F32,
                      .b = y + b->keys.first * j->width,
                      .b_pitch = j->width,
                      .c = to + b->keys.first,
                      .c_pitch = h->keys});
}

/* Where row i of a bias, or of its gradient, begins. */
static int64_t bias_row(const struct tensor_use *u, const struct key_head *h, const struct block *b,
                        int64_t i)
{
    return u->offset + h->batch * u->stride[0] + b->head * u->stride[1] +
           (b->piece->row + b->piece->first + i) * u->stride[2];
}

/* The score that the map makes of x, and its derivative. */
static float map_score(const struct attention_spec *a, float x, int64_t position, int64_t key, int64_t head,
                       float *partial)
{
    double in[PRIM_MAX_INPUTS] = {x, (double)position, (double)key, (double)head}, param[PRIM_MAX_PARAMS];
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) param[i] = a->score_param[i];
    *partial = (float)score_partial(a->score, in, param);
    return (float)a->score->reference(in, param);
}

/* Makes the weights of a query out of q k and do v, and the derivatives by its scores, then by scale q k;
 * those by scores are added to what wants them. */
static void weigh_row(const struct grad_job *j, struct key_head *h, const struct block *b, int64_t i)
{
    const struct attention_spec *a = &j->a;
    const struct tensor_use *u = &a->use[ATTENTION_BIAS], *to = &j->s->use[ATTENTION_GRAD_DBIAS];
    float slope = attention_of_head(j->cpu, &a->use[ATTENTION_SLOPES], b->head, 0);
    int64_t shift = attention_shift(a, b->piece->queries, attention_length(j->cpu, a, h->batch));
    int64_t position = b->piece->first + i + shift;
    const void *bias = u->buffer < 0 ? NULL : cpu_buffer(j->cpu, u->buffer);
    float *d_bias = to->buffer < 0 ? NULL : cpu_buffer(j->cpu, to->buffer);
    float *p = h->p + i * h->keys, *dr = h->dr + i * h->keys;
    double slopes = 0;
    float added[READ_KEYS];
    for (int64_t t = b->seen[i].first; t < b->seen[i].end; t++) {
        int64_t some = (t - b->seen[i].first) % READ_KEYS;
        if (bias && !some)
            cpu_read(added, u->dtype, bias, bias_row(u, h, b, i) + t * u->stride[3], u->stride[3],
                     MIN(READ_KEYS, b->seen[i].end - t));
        float x = a->scale * p[t], away = fabsf((float)(position - t)), by_product = 1, by_map = 1;
        if (a->softcap != 0) {
            float bent = tanhf(x / a->softcap);
            x = a->softcap * bent, by_product = 1 - bent * bent;
        }
        x -= slope * away;
        if (bias) x += added[some];
        if (a->score) x = map_score(a, x, position, t, b->head, &by_map);
        p[t] = x == -INFINITY ? 0 : expf(x - h->lse[i]);
        float ds = x == -INFINITY ? 0 : by_map * p[t] * (dr[t] - h->delta[i]);
        if (d_bias) d_bias[bias_row(to, h, b, i) + t * to->stride[3]] += ds;
        slopes -= (double)(ds * away);
        dr[t] = a->scale * ds * by_product;
    }
    if (j->slopes) j->slopes[h->batch * a->heads + b->head] += slopes;
}

static void add_sinks(const struct grad_job *j, const struct key_head *h, const struct block *b)
{
    float sink = attention_of_head(j->cpu, &j->a.use[ATTENTION_SINKS], b->head, -INFINITY);
    double sum = 0;
    for (int64_t i = 0; i < b->count; i++)
        if (b->seen[i].first < b->seen[i].end) sum -= exp((double)(sink - h->lse[i])) * (double)h->delta[i];
    j->sinks[h->batch * j->a.heads + b->head] += sum;
}

/* o[0..m-1] += p v: of one row of o and several of v, or of several and one. */
static void add_rows(const struct grad_job *j, int64_t m, int64_t n, const float *p, const float *v, float *o)
{
    add_weighted(&(struct weighted){.m = m,
                                    .n = n,
                                    .columns = j->width,
                                    .p = p,
                                    .p_pitch = 1,
                                    .type = CODA_F32,
                                    .v = v,
                                    .v_pitch = j->width,
                                    .o = o,
                                    .o_pitch = j->width});
}

static void run_block(const struct grad_job *j, struct key_head *h, struct block *b)
{
    int64_t width = j->width;
    read_block(j, h, b);
    if (j->sinks) add_sinks(j, h, b);
    memset(h->dq, 0, sizeof *h->dq * (size_t)(b->count * width));
    if (b->keys.first < b->keys.end) {
        multiply_rows(j, h, b, h->q, h->k, h->p);
        multiply_rows(j, h, b, h->d_o, h->v, h->dr);
    }
    for (int64_t i = 0; i < b->count; i++) {
        int64_t first = b->seen[i].first, n = b->seen[i].end - first;
        const float *p = h->p + i * h->keys + first, *dr = h->dr + i * h->keys + first;
        if (n <= 0) continue;
        weigh_row(j, h, b, i);
        add_rows(j, 1, n, dr, h->k + first * width, h->dq + i * width);
        add_rows(j, n, 1, dr, h->q + i * width, h->dk + first * width);
        add_rows(j, n, 1, p, h->d_o + i * width, h->dv + first * width);
    }
    write_rows(j, &j->s->use[ATTENTION_GRAD_DQ], attention_is_packed(&j->a) ? 0 : h->batch, b->head,
               b->piece->row + b->piece->first, b->count, h->dq);
}

/* ---- Items ---- */

static float *item_memory(const struct grad_job *j, struct key_head *h)
{
    int64_t keys = h->keys * j->width, rows = BLOCK_QUERIES * j->width, pairs = BLOCK_QUERIES * h->keys;
    float *floats = malloc(sizeof *floats * (size_t)(4 * keys + 3 * rows + 2 * pairs + 1));
    if (!floats) return NULL;
    h->k = floats, h->v = h->k + keys, h->dk = h->v + keys, h->dv = h->dk + keys;
    h->q = h->dv + keys, h->d_o = h->q + rows, h->dq = h->d_o + rows;
    h->p = h->dq + rows, h->dr = h->p + pairs;
    memset(h->dk, 0, sizeof *floats * (size_t)(2 * keys));
    return floats;
}

/* Keys behind a sequence's length are seen by none: their rows are not read, and get zeros. */
static void run_item(void *ctx, int64_t item)
{
    struct grad_job *j = ctx;
    const struct attention_spec *a = &j->a;
    struct key_head h = {.batch = item / a->kv_heads, .index = item % a->kv_heads, .keys = a->tk};
    int64_t group = a->heads / a->kv_heads, length = attention_length(j->cpu, a, h.batch);
    float *memory = item_memory(j, &h);
    if (!memory) {
        j->failed = true;
        return;
    }
    read_rows(j, &j->s->use[ATTENTION_GRAD_K], h.batch, h.index, 0, length, h.k);
    read_rows(j, &j->s->use[ATTENTION_GRAD_V], h.batch, h.index, 0, length, h.v);
    for (int64_t head = h.index * group; head < (h.index + 1) * group; head++)
        for (int64_t i = 0; i < j->pieces; i++) {
            const struct piece *p = &j->piece[i];
            struct block b = {.piece = p, .head = head, .count = MIN(BLOCK_QUERIES, p->queries - p->first)};
            if (p->batch == h.batch) run_block(j, &h, &b);
        }
    write_rows(j, &j->s->use[ATTENTION_GRAD_DK], h.batch, h.index, 0, a->tk, h.dk);
    write_rows(j, &j->s->use[ATTENTION_GRAD_DV], h.batch, h.index, 0, a->tk, h.dv);
    free(memory);
}

/* Packed rows of no sequence. */
static void clear_others(struct grad_job *j)
{
    float *zero = calloc((size_t)(BLOCK_QUERIES * j->width + 1), sizeof *zero);
    if (!zero) j->failed = true;
    for (int64_t i = 0; zero && i < j->pieces; i++) {
        const struct piece *p = &j->piece[i];
        int64_t row = p->row + p->first, count = MIN(BLOCK_QUERIES, p->queries - p->first);
        for (int64_t h = 0; p->batch < 0 && h < j->a.heads; h++)
            write_rows(j, &j->s->use[ATTENTION_GRAD_DQ], 0, h, row, count, zero);
    }
    free(zero);
}

/* ---- Sums ---- */

static int64_t bias_elements(const struct grad_job *j, const struct tensor_use *u)
{
    const struct attention_spec *a = &j->a;
    int64_t extent[] = {attention_batches(a), a->heads, a->tq, a->tk}, elements = 1;
    for (int d = 0; d < 4; d++)
        if (u->stride[d]) elements *= extent[d]; /* what it was broadcast over may be empty */
    return elements;
}

/* Does no element of a bias belong to two items? */
static bool bias_is_apart(const struct attention_spec *a, const struct tensor_use *u)
{
    bool batches = a->batch == 1 || (u->stride[0] && !attention_is_packed(a));
    return batches && (a->kv_heads == 1 || u->stride[1]);
}

static void finish_sums(const struct grad_job *j, const double *part, const struct tensor_use *u)
{
    float *to = u->buffer < 0 ? NULL : cpu_buffer(j->cpu, u->buffer);
    for (int64_t h = 0; to && h < j->a.heads; h++) {
        double sum = 0;
        for (int64_t b = 0; b < j->a.batch; b++) sum += part[b * j->a.heads + h];
        to[u->offset + h] = (float)sum;
    }
}

static double *parts_of(struct grad_job *j, int use)
{
    if (!attention_grad_has(j->s, use)) return NULL;
    double *part = calloc((size_t)(j->a.batch * j->a.heads + 1), sizeof *part);
    if (!part) j->failed = true;
    return part;
}

static void run_items(struct grad_job *j)
{
    const struct attention_spec *a = &j->a;
    const struct tensor_use *u = &j->s->use[ATTENTION_GRAD_DBIAS];
    int64_t items = a->batch * a->kv_heads;
    double operations = 5 * (double)a->heads * (double)a->tq * (double)a->tk * (double)a->head_dim;
    if (!attention_is_packed(a)) operations *= (double)a->batch;
    if (u->buffer >= 0)
        memset((float *)cpu_buffer(j->cpu, u->buffer) + u->offset, 0,
               sizeof(float) * (size_t)bias_elements(j, u));
    if (u->buffer < 0 || bias_is_apart(a, u)) parallel_work(items, operations, run_item, j);
    else
        for (int64_t i = 0; i < items; i++) run_item(j, i);
    if (attention_is_packed(a)) clear_others(j);
}

coda_status cpu_attention_grad(const struct cpu *c)
{
    const struct attention_grad_spec *s = c->p->spec;
    struct grad_job j = {.cpu = c, .s = s, .a = attention_grad_of(s)};
    if (!score_has_reference(j.a.score))
        return fail(CODA_E_UNSUPPORTED,
                    "map %s, or its derivative, has no reference, so only a GPU can run it", j.a.score->name);
    j.width = CEIL_DIV(j.a.head_dim, DOT_LANES) * DOT_LANES;
    j.sinks = parts_of(&j, ATTENTION_GRAD_DSINKS);
    j.slopes = parts_of(&j, ATTENTION_GRAD_DSLOPES);
    j.piece = attention_cut(c, &j.a, &j.pieces);
    if (!j.piece) j.failed = true;
    if (!j.failed) run_items(&j);
    if (!j.failed) finish_sums(&j, j.sinks, &s->use[ATTENTION_GRAD_DSINKS]);
    if (!j.failed) finish_sums(&j, j.slopes, &s->use[ATTENTION_GRAD_DSLOPES]);
    free(j.piece);
    free(j.sinks);
    free(j.slopes);
    if (j.failed)
        return fail(CODA_E_MEMORY, "out of memory for the gradients of %lld keys of %lld columns",
                    (long long)j.a.tk, (long long)j.a.head_dim);
    return CODA_OK;
}
