/* pack_decode.c -- what the bytes of a packed matrix mean, in fp32: one rounding at most, where a scale of
 * fp32 is multiplied or a minimum is added. */
#include "pack.h"

#include <math.h>
#include <string.h>

/* Values of all codes: a row is decoded many elements at a time. */
#define E4M3_SIZE(b) ((b) >> 3 & 15 ? (8 + ((b)&7)) * (double)(1 << ((b) >> 3 & 15)) / 1024 : ((b)&7) / 512.)
#define E5M2_SIZE(b)                                                                                         \
    ((b) >> 2 & 31 ? (4 + ((b)&3)) * (double)(1ll << ((b) >> 2 & 31)) / 131072 : ((b)&3) / 65536.)
#define E4M3(b) ((b)&128 ? -1.f : 1.f) * (((b)&127) == 127 ? NAN : (float)E4M3_SIZE(b))
#define E5M2(b)                                                                                              \
    ((b)&128 ? -1.f : 1.f) * (((b)&127) > 124 ? NAN : ((b)&127) == 124 ? INFINITY : (float)E5M2_SIZE(b))
#define BY4(f, b) f(b), f((b) + 1), f((b) + 2), f((b) + 3)
#define BY16(f, b) BY4(f, b), BY4(f, (b) + 4), BY4(f, (b) + 8), BY4(f, (b) + 12)
#define BY64(f, b) BY16(f, b), BY16(f, (b) + 16), BY16(f, (b) + 32), BY16(f, (b) + 48)
#define ALL(f) BY64(f, 0), BY64(f, 64), BY64(f, 128), BY64(f, 192)
static const float e4m3[256] = {ALL(E4M3)};
static const float e5m2[256] = {ALL(E5M2)};
static const float e2m1[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};

float pack_code_value(coda_pack_codes codes, uint8_t code)
{
    switch (codes) {
    case CODA_CODES_E2M1: return e2m1[code & 15];
    case CODA_CODES_E4M3: return e4m3[code];
    case CODA_CODES_E5M2: return e5m2[code];
    case CODA_CODES_INT8: return (int8_t)code;
    default: return code;
    }
}

/* ---- Scales ---- */

static float e8m0(uint8_t b)
{
    uint32_t u = b ? (uint32_t)b << 23 : 0x00400000;
    float x;
    memcpy(&x, &u, 4);
    return b == 255 ? NAN : x;
}

static float scale_value(coda_pack_scales scales, const uint8_t *s, int g)
{
    switch (scales) {
    case CODA_SCALES_BF16: return (float)dtype_load(CODA_BF16, s, g);
    case CODA_SCALES_F16: return (float)dtype_load(CODA_F16, s, g);
    case CODA_SCALES_E8M0: return e8m0(s[g]);
    case CODA_SCALES_E4M3: return e4m3[s[g]];
    default: return (float)dtype_load(CODA_F32, s, g);
    }
}

/* w = (q - z) s + m of a group; z is an integer, and m is only there where it is no 0. */
struct group {
    int z;
    float s, m;
};

static struct group group_of(const struct pack_format *f, const struct pack_scales *s, int g)
{
    struct group o = {.z = pack_middle(f)};
    if (f->scales == CODA_SCALES_F16_U6) {
        o.s = (float)dtype_load(CODA_F16, &s->d, 0) * s->scale[g];
        o.m = (float)dtype_load(CODA_F16, &s->second_d, 0) * s->second[g];
    } else if (f->scales == CODA_SCALES_F16_I8) {
        o.s = (float)dtype_load(CODA_F16, &s->d, 0) * (int8_t)s->scale[g];
    } else {
        o.s = scale_value(f->scales, s->scale, g);
        if (f->zeros == CODA_ZEROS_MINIMUM) o.m = scale_value(f->scales, s->second, g);
        if (f->zeros == CODA_ZEROS_POINTS)
            o.z = f->codes == CODA_CODES_INT8 ? (int8_t)s->second[g] : s->second[g];
    }
    return o;
}

/* ---- Rows ---- */

static void decode_integers(const struct pack_format *f, const uint8_t *q, int n, struct group g, float *out)
{
    if (f->codes == CODA_CODES_INT8)
        for (int i = 0; i < n; i++) out[i] = (float)((int8_t)q[i] - g.z) * g.s;
    else if (f->zeros == CODA_ZEROS_MINIMUM)
        for (int i = 0; i < n;
             i++) /* rounded once: in fp32 the product may be infinite where the sum is not */
            out[i] = (float)((double)q[i] * (double)g.s + (double)g.m);
    else
        for (int i = 0; i < n; i++) out[i] = (float)(q[i] - g.z) * g.s;
}

static void decode_group(const struct pack_format *f, const uint8_t *q, int n, struct group g, float *out)
{
    const float *table = f->codes == CODA_CODES_E4M3 ? e4m3 : f->codes == CODA_CODES_E5M2 ? e5m2 : e2m1;
    if (pack_is_integer(f)) decode_integers(f, q, n, g, out);
    else
        for (int i = 0; i < n; i++) out[i] = table[q[i]] * g.s;
}

/* k from..to of row r of a record. */
static void decode_record(const struct pack_format *f, const struct pack_record *p, const uint8_t *record,
                          int r, int from, int to, float *out)
{
    uint8_t q[PACK_STEP_MOST];
    struct pack_scales s;
    pack_get_codes(p, f->codes, record, r, q);
    pack_get_scales(f, p, record, r, &s);
    for (int k = from, next; k < to; k = next) {
        int g = k / p->group;
        next = MIN((g + 1) * p->group, to);
        decode_group(f, q + k, next - k, group_of(f, &s, g), out + (k - from));
    }
}

void pack_decode(const struct pack_format *f, const void *packed, int64_t rows, int64_t columns, int64_t row,
                 int64_t k0, int64_t n, float *out)
{
    struct pack_record p = pack_record(f);
    int64_t records = pack_records(f, columns);
    (void)rows;
    const uint8_t *block = (const uint8_t *)packed + row / PACK_ROWS * records * p.bytes;
    for (int64_t k = k0, live; k < k0 + n; k += live) {
        int64_t at = pack_place(f, k), i = at / p.step;
        live = MIN((i + 1) * p.step - at, k0 + n - k);
        if (pack_has_gaps(f)) live = MIN(live, f->group - k % f->group);
        decode_record(f, &p, block + i * p.bytes, (int)(row % PACK_ROWS), (int)(at - i * p.step),
                      (int)(at - i * p.step + live), out + (k - k0));
    }
}
