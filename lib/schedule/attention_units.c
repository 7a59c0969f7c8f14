/* attention_units.c -- what the attention kernels for Hopper's units can read. */
#include "attention_kernel.h"

#define MOST_PITCH ((int64_t)1 << 39) /* elements: tensor maps hold strides below 2^40 bytes */

int64_t attention_blocks(const struct attention_spec *a, int64_t bm)
{
    return a->heads * attention_tiles(a, bm);
}

int attention_clustered_sms(const struct target *target) { return (int)(target->sms * target->clustered); }

/* An extent of 1 has no meaningful stride; under batch invariance it must still pick the kernel that larger
 * extents pick. */
static bool pitch_fits(int64_t extent, int64_t stride, int unit, bool invariant)
{
    if (extent == 1) return !invariant || stride % unit == 0;
    return stride > 0 && stride % unit == 0 && stride < MOST_PITCH;
}

bool attention_no(struct reason *why, enum reason_kind kind, int node, int64_t a, int64_t b)
{
    *why = (struct reason){kind, node, -1, a, b};
    return false;
}

/* Copies of whole swizzled atoms; columns of a head come in 16 bytes, as many as registers hold. */
enum { LEAST_PAGE = 8, HEAD_STEP = 8, MOST_HEAD = 256 };

static bool view_fits(const struct attention_spec *a, const struct tensor_use *v, int64_t batch, int64_t time,
                      int64_t heads, bool invariant, struct reason *why)
{
    bool half = v->dtype == CODA_BF16 || v->dtype == CODA_F16, narrow = v->dtype == CODA_F8E4M3;
    int unit = narrow ? 16 : 8; /* elements of 16 bytes */
    const int64_t extent[] = {batch, time, heads};
    if (!narrow && !(half && v->dtype == a->use[ATTENTION_Q].dtype))
        return attention_no(why, REASON_ATTENTION_DTYPE, v->value, v->dtype, 0);
    if (v->offset % unit) return attention_no(why, REASON_ATTENTION_ALIGN, v->value, v->offset, unit);
    for (int d = 0; d < ARRAY_SIZE(extent); d++)
        if (!pitch_fits(extent[d], v->stride[d], unit, invariant))
            return attention_no(why, REASON_ATTENTION_ALIGN, v->value, v->stride[d], unit);
    return true;
}

bool attention_fits_units(const struct attention_spec *a, const struct attention_terms *on,
                          struct reason *why)
{
    const bool invariant = on->invariant;
    bool units = target_has(on->target, TARGET_TMA | TARGET_WGMMA);
    if (attention_is_empty(a) || a->tk <= 0 || a->batch <= 0)
        return attention_no(why, REASON_ATTENTION_EMPTY, -1, 0, 0);
    if (!units) return attention_no(why, REASON_ATTENTION_ARCH, -1, 0, 0);
    if (a->head_dim > MOST_HEAD)
        return attention_no(why, REASON_ATTENTION_HEAD_MOST, -1, a->head_dim, MOST_HEAD);
    if (a->head_dim % HEAD_STEP) return attention_no(why, REASON_ATTENTION_HEAD, -1, a->head_dim, HEAD_STEP);
    if (a->tq > ATTENTION_MOST_TIME || a->tk > ATTENTION_MOST_TIME)
        return attention_no(why, REASON_ATTENTION_TIME, -1, MAX(a->tq, a->tk), ATTENTION_MOST_TIME);
    int64_t batch = attention_batches(a), lots = attention_lots(a), keys = attention_lot(a);
    if (a->page && a->slots <= 0) return attention_no(why, REASON_ATTENTION_EMPTY, -1, 0, 0);
    if (a->page && a->page < LEAST_PAGE)
        return attention_no(why, REASON_ATTENTION_PAGE, -1, a->page, LEAST_PAGE);
    return view_fits(a, &a->use[ATTENTION_Q], batch, a->tq, a->heads, invariant, why) &&
           view_fits(a, &a->use[ATTENTION_K], lots, keys, a->kv_heads, invariant, why) &&
           view_fits(a, &a->use[ATTENTION_V], lots, keys, a->kv_heads, invariant, why) &&
           (!attention_has(a, ATTENTION_O) ||
            view_fits(a, &a->use[ATTENTION_O], batch, a->tq, a->heads, invariant, why));
}

bool attention_is_scaled(const struct attention_spec *a)
{
    return attention_has(a, ATTENTION_K_SCALE) || attention_has(a, ATTENTION_V_SCALE);
}
