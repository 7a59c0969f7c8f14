/* source.c -- what the kinds of files share: sizes that are checked, scales and zero points. */
#include "source.h"

/* ---- What kinds check ---- */

static coda_status one_size(const struct pack_source *s, const char *what, const void *data, int64_t bytes,
                            int64_t want)
{
    if (!want && data) return fail(CODA_E_INVALID, "pack: %s has no %s", s->name, what);
    if (want && !data) return fail(CODA_E_INVALID, "pack: %s of %s is NULL", what, s->name);
    if (!want || bytes == want) return CODA_OK;
    return fail(CODA_E_INVALID, "pack: %s has %lld bytes; %s of %lld x %lld as %s has %lld", what,
                (long long)bytes, s->name, (long long)s->file->rows, (long long)s->file->columns,
                pack_word(s->f).s, (long long)want);
}

coda_status source_bytes(const struct pack_source *s, int64_t codes, int64_t scales, int64_t zeros)
{
    const coda_pack_source *f = s->file;
    coda_status status = one_size(s, "codes", f->codes, f->codes_bytes, codes);
    if (status == CODA_OK) status = one_size(s, "scales", f->scales, f->scales_bytes, scales);
    if (status == CODA_OK) status = one_size(s, "zeros", f->zeros, f->zeros_bytes, zeros);
    return status;
}

coda_status source_in_order(const struct pack_source *s)
{
    const char *what = s->file->g_idx ? "g_idx" : "column_order";
    if (!s->file->g_idx && !s->file->column_order) return CODA_OK;
    return fail(CODA_E_INVALID, "pack: %s has no %s", s->name, what);
}

coda_status source_divides(const struct pack_source *s, const char *what, int64_t size, int64_t by)
{
    if (size % by == 0) return CODA_OK;
    return fail(CODA_E_INVALID, "pack: %s: %lld %s, which %lld does not divide", s->name, (long long)size,
                what, (long long)by);
}

coda_status source_refuse_format(const struct pack_source *s, const char *takes)
{
    return fail(CODA_E_INVALID, "pack: %s as %s; it is %s", s->name, pack_word(s->f).s, takes);
}

int source_scale_bytes(const struct pack_source *s)
{
    struct pack_format f = {.scales = s->file->scale_type ? s->file->scale_type : s->f->scales};
    return pack_scale_bytes(&f);
}

static coda_dtype dtype_of(coda_pack_scales scales)
{
    return scales == CODA_SCALES_BF16 ? CODA_BF16 : scales == CODA_SCALES_F16 ? CODA_F16 : CODA_F32;
}

void source_put_scale(const struct pack_source *s, struct pack_scales *out, int g, int64_t from)
{
    int size = source_scale_bytes(s), own = pack_scale_bytes(s->f);
    const uint8_t *at = (const uint8_t *)s->file->scales + from * size;
    uint16_t half;
    if (size == own) {
        memcpy(out->scale + g * own, at, (size_t)own);
        return;
    }
    memcpy(&half, at, 2);
    float x = (float)dtype_load(dtype_of(s->file->scale_type), &half, 0);
    memcpy(out->scale + g * own, &x, 4);
}

coda_status source_put_zero(const struct pack_source *s, const struct pack_tile *t, int r, int g, uint8_t z)
{
    int shift = s->f->codes == CODA_CODES_INT8 ? 128 : 0;
    if (s->f->zeros == CODA_ZEROS_POINTS) {
        ((struct pack_tile *)t)->s[r].second[g] = z;
        return CODA_OK;
    }
    if (z == s->middle) return CODA_OK;
    return fail(CODA_E_INVALID, "pack: the zero point of row %lld, group %lld is %d; %s wants %d everywhere",
                (long long)(t->row + r), (long long)source_group(s, t, g), (uint8_t)(z + shift),
                pack_word(s->f).s, (uint8_t)(s->middle + shift));
}
