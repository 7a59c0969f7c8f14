/*
 * eval_attention.c -- attention in fp64, block by block with an online softmax.
 *
 * For each head and each block of queries, over blocks of keys:  S = scale q k^T;  m' = max(m, S);
 * p = e^(S - m');  l = l e^(m - m') + sum p;  o = o e^(m - m') + p v;  at the end o / l. Nothing of
 * size Tq x Tk is stored.
 */
#include "eval.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES = 64, KEYS = 128 };

struct attention {
    const double *q, *k, *v, *lengths;
    double *out;
    int64_t batch, tq, tk, heads, kv_heads, head_dim, window, blocks;
    bool causal;
    double scale;
    atomic_bool failed;
};

/* The softmax of a block of queries in the making. */
struct queries {
    int64_t first, count; /* rows of q                                                             */
    int64_t shift;        /* query i sits at position i + shift                                    */
    int64_t keys;         /* that exist in this sequence                                           */
    struct matrix q, k, v;
    double *out;
    int64_t pitch;        /* between rows of out                                                   */
    double most[QUERIES], sum[QUERIES];
    double score[QUERIES * KEYS];
};

static bool sees(const struct attention *a, int64_t keys, int64_t position, int64_t j)
{
    return j < keys && (!a->causal || j <= position) && (a->window == 0 || j > position - a->window);
}

/* Turns row i of the scores for keys j0.. into weights, and rescales what it has so far. */
static void weigh_row(const struct attention *a, struct queries *s, int64_t i, int64_t j0, int64_t n)
{
    double *score = s->score + i * KEYS, most = s->most[i], sum = 0;
    int64_t position = s->first + i + s->shift;
    for (int64_t j = 0; j < n; j++) {
        score[j] = sees(a, s->keys, position, j0 + j) ? score[j] * a->scale : -INFINITY;
        if (!(score[j] <= most)) most = score[j];
    }
    for (int64_t j = 0; j < n; j++) {
        score[j] = score[j] == -INFINITY ? 0 : exp(score[j] - most);
        sum += score[j];
    }
    double keep = s->most[i] == most ? 1 : exp(s->most[i] - most);
    for (int64_t d = 0; d < a->head_dim; d++) s->out[i * s->pitch + d] *= keep;
    s->sum[i] = s->sum[i] * keep + sum;
    s->most[i] = most;
}

static void attend_keys(const struct attention *a, struct queries *s, struct multiply_space *space,
                        int64_t j0)
{
    int64_t n = MIN(s->keys - j0, KEYS);
    struct matrix keys = {s->k.at + j0 * s->k.row, 1, s->k.row};
    struct matrix values = {s->v.at + j0 * s->v.row, s->v.row, 1};
    multiply(space, s->count, n, a->head_dim, s->q, keys, s->score, KEYS, false);
    for (int64_t i = 0; i < s->count; i++) weigh_row(a, s, i, j0, n);
    multiply(space, s->count, a->head_dim, n, (struct matrix){s->score, KEYS, 1}, values, s->out, s->pitch,
             true);
}

static void attend(const struct attention *a, struct queries *s, struct multiply_space *space)
{
    int64_t low = s->first + s->shift, high = low + s->count - 1; /* positions */
    for (int64_t i = 0; i < s->count; i++) {
        s->most[i] = -INFINITY;
        s->sum[i] = 0;
        memset(s->out + i * s->pitch, 0, sizeof *s->out * (size_t)a->head_dim);
    }
    for (int64_t j = 0; j < s->keys; j += KEYS) {
        if (a->causal && j > high) break;
        if (a->window && j + KEYS <= low - a->window) continue;
        attend_keys(a, s, space, j);
    }
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t d = 0; d < a->head_dim && s->sum[i] != 0; d++) s->out[i * s->pitch + d] /= s->sum[i];
}

static void attention_task(void *ctx, int64_t task)
{
    struct attention *a = ctx;
    int64_t block = task % a->blocks, h = task / a->blocks % a->heads, b = task / a->blocks / a->heads;
    int64_t pitch = a->heads * a->head_dim, kv_pitch = a->kv_heads * a->head_dim;
    int64_t kv = b * a->tk * kv_pitch + h / (a->heads / a->kv_heads) * a->head_dim;
    struct queries *s = malloc(sizeof *s);
    struct multiply_space *space = multiply_space_new();
    if (s && space) {
        s->first = block * QUERIES;
        s->count = MIN(a->tq - s->first, QUERIES);
        s->shift = a->tk - a->tq;
        s->keys = a->lengths ? (int64_t)fmax(0, fmin(a->lengths[b], (double)a->tk)) : a->tk;
        int64_t at = (b * a->tq + s->first) * pitch + h * a->head_dim;
        s->q = (struct matrix){a->q + at, pitch, 1};
        s->k = (struct matrix){a->k + kv, kv_pitch, 1};
        s->v = (struct matrix){a->v + kv, kv_pitch, 1};
        s->out = a->out + at;
        s->pitch = pitch;
        attend(a, s, space);
    } else {
        atomic_store(&a->failed, true);
    }
    free(space);
    free(s);
}

coda_status eval_attention(const struct node *n, const struct type *const type[4], const double *const in[4],
                           double *out)
{
    const struct type *q = type[0], *k = type[1];
    struct attention a = {.q = in[0], .k = in[1], .v = in[2], .lengths = in[3], .out = out,
                          .batch = q->rank == 3 ? q->dim[0] : 1, .tq = q->dim[q->rank - 2],
                          .tk = k->dim[k->rank - 2], .heads = n->attr.i[0], .kv_heads = n->attr.i[1],
                          .window = n->attr.i[2], .causal = n->attr.i[3], .scale = n->attr.f[0]};
    a.head_dim = type_columns(q) / a.heads;
    a.blocks = CEIL_DIV(a.tq, QUERIES);
    int64_t tasks = a.batch * a.heads * a.blocks;
    if (type_elements(q) * a.tk < 1 << 16)
        for (int64_t i = 0; i < tasks; i++) attention_task(&a, i);
    else parallel_for(tasks, attention_task, &a);
    return a.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory in attention") : CODA_OK;
}
