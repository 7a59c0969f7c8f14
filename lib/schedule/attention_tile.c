/* attention_tile.c -- which attention programs run on TMA and wgmma, and in which tile. */
#include "attention_tile.h"

#define MOST_PITCH ((int64_t)1 << 39) /* elements: tensor maps hold strides below 2^40 bytes       */

/* Registers bound bn: a thread holds bn / 2 scores, bn / 4 weights and head_dim / 2 sums. */
struct attention_tile attention_tile(int64_t head_dim)
{
    if (head_dim <= 64) return (struct attention_tile){128, 2, 3};
    if (head_dim <= 128) return (struct attention_tile){128, 2, 2};
    if (head_dim <= 192) return (struct attention_tile){112, 2, 2};
    return (struct attention_tile){80, 2, 2};
}

/* sizeof(AttentionSm90::Shared), which the emitted text asserts. */
int64_t attention_shared(const struct attention_spec *a, struct attention_tile t)
{
    int64_t row = 128 * CEIL_DIV(a->head_dim, 64);
    int64_t bytes = row * (64 * t.groups + 2 * t.stages * t.bn) + 8 * (2 + 4 * t.stages);
    return CEIL_DIV(bytes, 1024) * 1024;
}

static bool pitch_fits(int64_t extent, int64_t stride)
{
    return extent == 1 || (stride > 0 && stride % 8 == 0 && stride < MOST_PITCH);
}

static bool view_fits(const struct attention_spec *a, const struct attention_view *v, int64_t time,
                      int64_t heads)
{
    bool half = v->dtype == CODA_BF16 || v->dtype == CODA_F16;
    return half && v->dtype == a->q.dtype && v->offset % 8 == 0 && pitch_fits(a->batch, v->batch) &&
           pitch_fits(time, v->time) && pitch_fits(heads, v->head);
}

int64_t attention_blocks(const struct attention_spec *a, int64_t bm)
{
    return a->batch * a->heads * CEIL_DIV(a->tq, bm);
}

bool attention_is_empty(const struct attention_spec *a)
{
    return a->batch <= 0 || a->heads <= 0 || a->head_dim <= 0 || a->tq <= 0;
}

bool attention_fits_sm90(const struct attention_spec *a, const struct machine *m)
{
    if (!m->sm90 || attention_is_empty(a) || a->tk <= 0 || a->head_dim % 8 || a->head_dim > 256) return false;
    if (a->tq > ATTENTION_MOST_TIME || a->tk > ATTENTION_MOST_TIME) return false;
    struct attention_tile t = attention_tile(a->head_dim);
    return view_fits(a, &a->q, a->tq, a->heads) && view_fits(a, &a->k, a->tk, a->kv_heads) &&
           view_fits(a, &a->v, a->tk, a->kv_heads) && view_fits(a, &a->o, a->tq, a->heads) &&
           attention_blocks(a, 64 * t.groups) <= ATTENTION_MOST_BLOCKS &&
           attention_shared(a, t) <= m->shared_bytes;
}
