/* quantize_blocks.c -- weights of 16 and 32 bits as blocks of GGUF, and as MXFP4: how their bits lie. */
#include "quantize.h"
#include "quantize_fit.h"

#include <math.h>
#include <string.h>

/* ---- Blocks, as source_gguf.c reads them ---- */

/* Lower halves, then upper ones. */
static void put_halves(uint8_t *b, int n, const uint8_t *q)
{
    for (int i = 0; i < n; i++) b[i] = (uint8_t)((q[i] & 15) | (q[n + i] & 15) << 4);
}

static void put_k_scales(const struct block *k, uint8_t *b)
{
    for (int i = 0; i < 4; i++) {
        uint8_t a = (uint8_t)k->a[4 + i], c = (uint8_t)k->b[4 + i];
        b[i] = (uint8_t)(k->a[i] | (a >> 4) << 6);
        b[4 + i] = (uint8_t)(k->b[i] | (c >> 4) << 6);
        b[8 + i] = (uint8_t)((a & 15) | (c & 15) << 4);
    }
}

static void put_k_head(const struct block *k, uint8_t *b)
{
    memcpy(b, &k->d, 2);
    memcpy(b + 2, &k->second_d, 2);
    put_k_scales(k, b + 4);
}

static bool put_q4_k(const float *x, bool search, uint8_t *b)
{
    struct block k = {0};
    if (!fit_block(&(struct grid){32, 0, 15, MINIMUM_BELOW_0}, x, search, &k)) return false;
    put_k_head(&k, b);
    for (int i = 0; i < 4; i++) put_halves(b + 16 + 32 * i, 32, (const uint8_t *)k.q + 64 * i);
    return true;
}

static bool put_q5_k(const float *x, bool search, uint8_t *b)
{
    struct block k = {0};
    if (!fit_block(&(struct grid){32, 0, 31, MINIMUM_BELOW_0}, x, search, &k)) return false;
    put_k_head(&k, b);
    memset(b + 16, 0, 32);
    for (int i = 0; i < 4; i++) put_halves(b + 48 + 32 * i, 32, (const uint8_t *)k.q + 64 * i);
    for (int i = 0; i < BLOCK; i++) b[16 + i % 32] |= (uint8_t)((k.q[i] >> 4 & 1) << i / 32);
    return true;
}

static bool put_q6_k(const float *x, bool search, uint8_t *b)
{
    struct block k = {0};
    uint8_t q[BLOCK];
    if (!fit_block(&(struct grid){16, -32, 31, NO_MINIMUM}, x, search, &k)) return false;
    for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)(k.q[i] + 32);
    memset(b + 128, 0, 64);
    for (int h = 0; h < 2; h++) put_halves(b + 64 * h, 64, q + 128 * h);
    for (int i = 0; i < BLOCK; i++)
        b[128 + i / 128 * 32 + i % 32] |= (uint8_t)(q[i] >> 4 << i % 128 / 32 * 2);
    memcpy(b + 192, k.a, 16);
    memcpy(b + 208, &k.d, 2);
    return true;
}

/* A scale, perhaps a minimum, both f16; codes for what they are then. */
static bool fit_f16(const struct grid *g, const float *x, bool search, struct fit *f, uint8_t *b)
{
    uint16_t s, m = 0;
    fit_group(g, x, search, f);
    f->s = fit_as_f16(f->s, &s);
    if (g->minimum) f->m = fit_as_f16(f->m, &m);
    memcpy(b, &s, 2);
    if (g->minimum) memcpy(b + 2, &m, 2);
    if (!isfinite(f->s) || !isfinite(f->m)) return false;
    fit_round(g, x, f);
    return true;
}

static bool put_q8_0(const float *x, bool search, uint8_t *b)
{
    struct fit f;
    if (!fit_f16(&(struct grid){32, -128, 127, NO_MINIMUM}, x, search, &f, b)) return false;
    memcpy(b + 2, f.q, 32);
    return true;
}

static bool put_4_bits(const struct grid *g, const float *x, bool search, uint8_t *b)
{
    struct fit f;
    uint8_t q[32];
    if (!fit_f16(g, x, search, &f, b)) return false;
    for (int i = 0; i < 32; i++) q[i] = (uint8_t)(f.q[i] - g->least);
    put_halves(b + (g->minimum ? 4 : 2), 16, q);
    return true;
}

static bool put_5_bits(const struct grid *g, const float *x, bool search, uint8_t *b)
{
    struct fit f;
    uint8_t q[32];
    uint32_t fifth = 0;
    int head = g->minimum ? 4 : 2;
    if (!fit_f16(g, x, search, &f, b)) return false;
    for (int i = 0; i < 32; i++) {
        q[i] = (uint8_t)(f.q[i] - g->least);
        fifth |= (uint32_t)(q[i] >> 4) << i;
    }
    memcpy(b + head, &fifth, 4);
    put_halves(b + head + 4, 16, q);
    return true;
}

static bool put_q4_0(const float *x, bool search, uint8_t *b)
{
    return put_4_bits(&(struct grid){32, -8, 7, NO_MINIMUM}, x, search, b);
}
static bool put_q4_1(const float *x, bool search, uint8_t *b)
{
    return put_4_bits(&(struct grid){32, 0, 15, ANY_MINIMUM}, x, search, b);
}
static bool put_q5_0(const float *x, bool search, uint8_t *b)
{
    return put_5_bits(&(struct grid){32, -16, 15, NO_MINIMUM}, x, search, b);
}
static bool put_q5_1(const float *x, bool search, uint8_t *b)
{
    return put_5_bits(&(struct grid){32, 0, 31, ANY_MINIMUM}, x, search, b);
}

/* ---- MXFP4 ---- */

/* The nearest of e2m1, ties to the code that is even. */
static uint8_t e2m1_of(double x)
{
    static const double middle[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5}; /* between codes i and i + 1 */
    double a = fabs(x);
    uint8_t q = 0;
    while (q < 7 && (a > middle[q] || (a == middle[q] && q % 2))) q++;
    return q | (signbit(x) ? 8 : 0);
}

static double round_e2m1(const float *x, int exponent, uint8_t *q)
{
    double lost = 0;
    for (int i = 0; i < 32; i++) {
        q[i] = e2m1_of(ldexp((double)x[i], -exponent));
        double d = (double)x[i] - ldexp((double)pack_code_value(CODA_CODES_E2M1, q[i]), exponent);
        lost += d * d;
    }
    return lost;
}

/* OCP Microscaling Formats 1.0, 6.3: the exponent of the largest, less that of the largest e2m1, which is 2.
 * With a search perhaps one more, where that would cut off what is above 6. */
static uint8_t fit_mxfp4(const float *x, bool search, uint8_t *q)
{
    uint8_t other[32];
    float most = 0;
    for (int i = 0; i < 32; i++) most = MAX(most, fabsf(x[i]));
    int e = most > 0 ? MAX(ilogbf(most) - 2, -127) : 0;
    double lost = round_e2m1(x, e, q);
    if (search && round_e2m1(x, e + 1, other) < lost) {
        memcpy(q, other, sizeof other);
        e++;
    }
    return (uint8_t)(e + 127);
}

static bool put_mxfp4(const float *x, bool search, uint8_t *b)
{
    uint8_t q[32];
    b[0] = fit_mxfp4(x, search, q);
    put_halves(b + 1, 16, q);
    return true;
}

/* gpt-oss: neighbours in a byte, and scales apart. */
static void put_nibbles(const float *x, bool search, uint8_t *codes, uint8_t *scale)
{
    uint8_t q[32];
    *scale = fit_mxfp4(x, search, q);
    for (int i = 0; i < 16; i++) codes[i] = (uint8_t)(q[2 * i] | q[2 * i + 1] << 4);
}

/* ---- The whole ---- */

static const struct writer {
    struct pack_format f;
    int elements, bytes;
    bool (*put)(const float *x, bool search, uint8_t *b); /* false: a scale that f16 has not */
} writers[] = {
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 18, put_q4_0},
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_MINIMUM, 32}, 32, 20, put_q4_1},
    {{CODA_CODES_INT5, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 22, put_q5_0},
    {{CODA_CODES_INT5, CODA_SCALES_F16, CODA_ZEROS_MINIMUM, 32}, 32, 24, put_q5_1},
    {{CODA_CODES_INT8, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 34, put_q8_0},
    {{CODA_CODES_INT4, CODA_SCALES_F16_U6, CODA_ZEROS_MINIMUM, 32}, 256, 144, put_q4_k},
    {{CODA_CODES_INT5, CODA_SCALES_F16_U6, CODA_ZEROS_MINIMUM, 32}, 256, 176, put_q5_k},
    {{CODA_CODES_INT6, CODA_SCALES_F16_I8, CODA_ZEROS_NONE, 16}, 256, 210, put_q6_k},
    {{CODA_CODES_E2M1, CODA_SCALES_E8M0, CODA_ZEROS_NONE, 32}, 32, 17, put_mxfp4},
};

bool quantize_takes_blocks(coda_pack_kind kind)
{
    return kind == CODA_PACK_GGUF || kind == CODA_PACK_NIBBLES;
}

static const struct writer *writer_of(const struct pack_format *f, bool nibbles)
{
    for (int i = 0; i < ARRAY_SIZE(writers); i++)
        if (pack_same(f, &writers[i].f) && (!nibbles || writers[i].put == put_mxfp4)) return &writers[i];
    return NULL;
}

static coda_status check(const struct pack_format *f, const struct quantize_weights *w,
                         const coda_quantized *out, const struct writer *to)
{
    bool nibbles = out->kind == CODA_PACK_NIBBLES;
    if (!to)
        return fail(CODA_E_INVALID, "quantize_weight: the format is %s; as %s it must be %s", pack_word(f).s,
                    nibbles ? "CODA_PACK_NIBBLES" : "CODA_PACK_GGUF",
                    nibbles ? "mxfp4" : "q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k or mxfp4");
    if (w->columns % to->elements)
        return fail(CODA_E_INVALID, "quantize_weight: %lld columns; %s has blocks of %d",
                    (long long)w->columns, pack_word(f).s, to->elements);
    return CODA_OK;
}

coda_status quantize_blocks(const struct pack_format *f, const struct quantize_weights *w,
                            const coda_quantized *out)
{
    bool nibbles = out->kind == CODA_PACK_NIBBLES;
    const struct writer *to = writer_of(f, nibbles);
    coda_status status = check(f, w, out, to);
    uint8_t *codes = out->codes, *scales = out->scales;
    float x[QUANTIZE_CHUNK];
    for (int64_t row = 0; row < w->rows && status == CODA_OK; row++)
        for (int64_t k = 0; k < w->columns && status == CODA_OK; k += to->elements) {
            quantize_load(w, row, k, to->elements, x);
            status = quantize_check_finite(x, to->elements, row, k);
            if (status != CODA_OK) break;
            if (nibbles) put_nibbles(x, out->search, codes, scales++), codes += 16;
            else if (to->put(x, out->search, codes)) codes += to->bytes;
            else
                status =
                    fail(CODA_E_INVALID,
                         "quantize_weight: the scale of row %lld, columns %lld..%lld is more than f16 has",
                         (long long)row, (long long)k, (long long)k + to->elements - 1);
        }
    return status;
}
