/* attention_grad_mma.c -- 16-bit tensors by mma.sync; attention_grad_mma.cuh. */
#include "attention_grad_kernel.h"

enum { BM = 64, MOST_HEAD = 256, HEAD_STEP = 8, NARROW_HEAD = 64 };

/* Do all rows begin at multiples of 16 bytes? Buffers do. */
static bool use_fits(const struct attention_spec *a, const struct tensor_use *u)
{
    bool rows = u->offset % HEAD_STEP == 0 && u->batch % HEAD_STEP == 0 && u->time % HEAD_STEP == 0 &&
                u->head % HEAD_STEP == 0;
    return u->buffer < 0 || (rows && u->dtype == a->use[ATTENTION_Q].dtype);
}

static bool fits(const struct attention_grad_spec *s, const struct attention_spec *a,
                 const struct target *target)
{
    static const int rows[] = {ATTENTION_GRAD_Q,  ATTENTION_GRAD_K,  ATTENTION_GRAD_V, ATTENTION_GRAD_DO,
                               ATTENTION_GRAD_DQ, ATTENTION_GRAD_DK, ATTENTION_GRAD_DV};
    (void)target;
    bool good = dtype_is_half(a->use[ATTENTION_Q].dtype) && a->head_dim % HEAD_STEP == 0 && a->head_dim > 0 &&
                a->head_dim <= MOST_HEAD;
    for (int i = 0; i < ARRAY_SIZE(rows); i++) good = good && use_fits(a, &s->use[rows[i]]);
    return good;
}

/* Two stages, or one where they do not fit, and then fewer walked rows. Wide heads begin with fewer, as
 * registers hold more of results, or sums of pairs. */
static struct attention_grad_tile tile(const struct attention_grad_spec *s, const struct attention_spec *a,
                                       const struct target *target)
{
    int64_t pitch = CEIL_DIV(a->head_dim, 16) * 16 + 8;
    struct attention_grad_tile t = {.bm = BM, .threads = 2 * BM, .residents = 2};
    for (t.bn = a->head_dim <= NARROW_HEAD && !attention_grad_has_sums(s) ? 64 : 32; t.bn >= 16; t.bn /= 2)
        for (t.stages = 2; t.stages; t.stages--) {
            int64_t rows = 2 * 2 * (BM + (int64_t)t.stages * t.bn) * pitch;
            t.shared_bytes = rows + attention_grad_beside(s, &t, false);
            if (t.shared_bytes <= target->shared_bytes) return t;
        }
    return (struct attention_grad_tile){.threads = 2 * BM};
}

const struct attention_grad_kernel attention_grad_mma = {
    .index = ATTENTION_GRAD_BY_MMA, .suffix = "mma", .unit = "AttentionGradMma", .fits = fits, .tile = tile};
