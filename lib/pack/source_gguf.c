/* source_gguf.c -- rows of GGUF's blocks, as ggml-quants.c of llama.cpp has them: scales and codes of 32, 64
 * or 256 elements together. */
#include "source.h"

#include <string.h>

/* 2 n codes of n bytes: lower halves, then upper ones. */
static void halves(const uint8_t *b, int n, uint8_t *q)
{
    for (int i = 0; i < n; i++) {
        q[i] = b[i] & 15;
        q[n + i] = b[i] >> 4;
    }
}

static void fifth_bits(const uint8_t *b, uint8_t *q)
{
    uint32_t bits;
    memcpy(&bits, b, 4);
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((bits >> i & 1) << 4);
}

/* Group g of a record gets what a block has, of which it is all. */
static void scale16(const uint8_t *b, struct pack_scales *s, int g) { memcpy(s->scale + 2 * g, b, 2); }
static void minimum16(const uint8_t *b, struct pack_scales *s, int g) { memcpy(s->second + 2 * g, b, 2); }

static void q4_0(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    scale16(b, s, g);
    halves(b + 2, 16, q);
}

static void q4_1(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    scale16(b, s, g);
    minimum16(b + 2, s, g);
    halves(b + 4, 16, q);
}

static void q5_0(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    scale16(b, s, g);
    halves(b + 6, 16, q);
    fifth_bits(b + 2, q);
}

static void q5_1(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    scale16(b, s, g);
    minimum16(b + 2, s, g);
    halves(b + 8, 16, q);
    fifth_bits(b + 4, q);
}

static void q8_0(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    scale16(b, s, g);
    memcpy(q, b + 2, 32);
}

static void mxfp4(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    s->scale[g] = b[0];
    halves(b + 1, 16, q);
}

/* Four groups of 16. Scales have no sign, and 0x7f is 0. */
static void nvfp4(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    for (int i = 0; i < 4; i++) {
        s->scale[g + i] = b[i] == 0x7f ? 0 : b[i] & 0x7f;
        halves(b + 4 + 8 * i, 8, q + 16 * i);
    }
}

/* 8 scales and 8 minima of 6 bits in 12 bytes. */
static void k_scales(const uint8_t *b, struct pack_scales *s)
{
    for (int i = 0; i < 4; i++) {
        s->scale[i] = b[i] & 63;
        s->second[i] = b[4 + i] & 63;
        s->scale[4 + i] = (uint8_t)((b[8 + i] & 15) | b[i] >> 6 << 4);
        s->second[4 + i] = (uint8_t)(b[8 + i] >> 4 | b[4 + i] >> 6 << 4);
    }
}

/* d, dmin, 12 bytes; records keep -dmin. */
static void k_head(const uint8_t *b, struct pack_scales *s)
{
    memcpy(&s->d, b, 2);
    memcpy(&s->second_d, b + 2, 2);
    s->second_d ^= 0x8000;
    k_scales(b + 4, s);
}

static void q4_k(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    (void)g;
    k_head(b, s);
    for (int i = 0; i < 4; i++) halves(b + 16 + 32 * i, 32, q + 64 * i);
}

/* Bit g of byte i of 32 is the fifth of element 32 g + i. */
static void q5_k(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    (void)g;
    k_head(b, s);
    for (int i = 0; i < 4; i++) halves(b + 48 + 32 * i, 32, q + 64 * i);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++) q[32 * j + i] |= (uint8_t)((b[16 + i] >> j & 1) << 4);
}

/* Each 128 codes: 64 bytes have lower nibbles of 64, then upper ones; 32 bytes two bits for each 32. */
static void q6_k(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g)
{
    (void)g;
    memcpy(s->scale, b + 192, 16);
    memcpy(&s->d, b + 208, 2);
    for (int h = 0; h < 2; h++) {
        halves(b + 64 * h, 64, q + 128 * h);
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++)
                q[128 * h + 32 * j + i] |= (uint8_t)((b[128 + 32 * h + i] >> 2 * j & 3) << 4);
    }
}

static const struct block {
    struct pack_format f;
    int elements, bytes;
    void (*take)(const uint8_t *b, uint8_t *q, struct pack_scales *s, int g);
} blocks[] = {
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 18, q4_0},
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_MINIMUM, 32}, 32, 20, q4_1},
    {{CODA_CODES_INT5, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 22, q5_0},
    {{CODA_CODES_INT5, CODA_SCALES_F16, CODA_ZEROS_MINIMUM, 32}, 32, 24, q5_1},
    {{CODA_CODES_INT8, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 34, q8_0},
    {{CODA_CODES_INT4, CODA_SCALES_F16_U6, CODA_ZEROS_MINIMUM, 32}, 256, 144, q4_k},
    {{CODA_CODES_INT5, CODA_SCALES_F16_U6, CODA_ZEROS_MINIMUM, 32}, 256, 176, q5_k},
    {{CODA_CODES_INT6, CODA_SCALES_F16_I8, CODA_ZEROS_NONE, 16}, 256, 210, q6_k},
    {{CODA_CODES_E2M1, CODA_SCALES_E8M0, CODA_ZEROS_NONE, 32}, 32, 17, mxfp4},
    {{CODA_CODES_E2M1, CODA_SCALES_E4M3, CODA_ZEROS_NONE, 16}, 64, 36, nvfp4},
};

static const struct block *block_of(const struct pack_format *f)
{
    for (int i = 0; i < ARRAY_SIZE(blocks); i++)
        if (pack_same(f, &blocks[i].f)) return &blocks[i];
    return NULL;
}

static coda_status check(const struct pack_source *s)
{
    const struct block *b = block_of(s->f);
    if (!b) return source_refuse_format(s, "q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, mxfp4 or nvfp4");
    if (s->file->scale_type && s->file->scale_type != s->f->scales)
        return source_refuse_format(s, "its own scales");
    coda_status status = source_in_order(s);
    if (status == CODA_OK) status = source_divides(s, "columns", s->file->columns, b->elements);
    if (status != CODA_OK) return status;
    return source_bytes(s, s->file->rows * (s->file->columns / b->elements) * b->bytes, 0, 0);
}

static coda_status fetch(const struct pack_source *s, struct pack_tile *t)
{
    const struct block *b = block_of(s->f);
    int64_t row_bytes = s->file->columns / b->elements * b->bytes;
    for (int r = 0; r < t->rows; r++) {
        const uint8_t *at = (const uint8_t *)s->file->codes + source_row(s, t->row + r) * row_bytes +
                            t->k / b->elements * b->bytes;
        for (int k = 0; k < t->n; k += b->elements, at += b->bytes)
            b->take(at, t->q[r] + k, &t->s[r], k / s->p.group);
    }
    return CODA_OK;
}

const struct pack_layout layout_gguf = {"CODA_PACK_GGUF", check, fetch};
