/*
 * test_quantize_blocks.c -- weights rounded to blocks of GGUF and to MXFP4: each code is the nearest that the
 * block's scales leave, by the format's formula (dequantize_row_* of llama.cpp) in fp64 here; coda_pack and
 * coda_unpack read the same numbers; scales follow from the largest weight, or lose less with a search.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { ROWS = 19, COLUMNS = 512, ALL = ROWS * COLUMNS };

/* ---- The formats: element i of a block, and what its code might be ---- */

static double f16(const uint8_t *b)
{
    return dtype_load(CODA_F16, (uint16_t[]){(uint16_t)(b[0] | b[1] << 8)}, 0);
}

struct number {
    double s, m; /* it is s q + m */
    int q, least, most;
};

static int nibble(const uint8_t *b, int i, int half)
{
    return i % (2 * half) < half ? b[i % half] & 15 : b[i % half] >> 4;
}

static struct number of_32(const uint8_t *b, int i, bool fifth, bool minimum)
{
    const uint8_t *high = b + (minimum ? 4 : 2), *low = high + (fifth ? 4 : 0);
    int q = nibble(low, i, 16) | (fifth ? (high[i / 8] >> i % 8 & 1) << 4 : 0), half = fifth ? 16 : 8;
    double m = minimum ? f16(b + 2) : 0;
    return minimum ? (struct number){f16(b), m, q, 0, 2 * half - 1}
                   : (struct number){f16(b), 0, q - half, -half, half - 1};
}
static struct number q4_0(const uint8_t *b, int i) { return of_32(b, i, false, false); }
static struct number q4_1(const uint8_t *b, int i) { return of_32(b, i, false, true); }
static struct number q5_0(const uint8_t *b, int i) { return of_32(b, i, true, false); }
static struct number q5_1(const uint8_t *b, int i) { return of_32(b, i, true, true); }
static struct number q8_0(const uint8_t *b, int i)
{
    return (struct number){f16(b), 0, (int8_t)b[2 + i], -128, 127};
}

/* get_scale_min_k4 */
static void k4(const uint8_t *b, int j, double *a, double *c)
{
    if (j < 4) *a = b[j] & 63, *c = b[j + 4] & 63;
    else *a = (b[j + 4] & 15) | (b[j - 4] >> 6) << 4, *c = b[j + 4] >> 4 | (b[j] >> 6) << 4;
}
static struct number of_k4(const uint8_t *b, int i, bool fifth)
{
    double a, c;
    k4(b + 4, i / 32, &a, &c);
    const uint8_t *low = b + (fifth ? 48 : 16) + i / 64 * 32;
    int q = i % 64 < 32 ? low[i % 32] & 15 : low[i % 32] >> 4;
    if (fifth) q |= (b[16 + i % 32] >> i / 32 & 1) << 4;
    return (struct number){f16(b) * a, -f16(b + 2) * c, q, 0, fifth ? 31 : 15};
}
static struct number q4_k(const uint8_t *b, int i) { return of_k4(b, i, false); }
static struct number q5_k(const uint8_t *b, int i) { return of_k4(b, i, true); }
static struct number q6_k(const uint8_t *b, int i)
{
    const uint8_t *low = b + i / 128 * 64 + i % 64, *high = b + 128 + i / 128 * 32 + i % 32;
    int q = (i % 128 < 64 ? *low & 15 : *low >> 4) | (*high >> i % 128 / 32 * 2 & 3) << 4;
    return (struct number){f16(b + 208) * (int8_t)b[192 + i / 16], 0, q - 32, -32, 31};
}

static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
static struct number mxfp4(const uint8_t *b, int i)
{
    return (struct number){ldexp(1, b[0] - 127), 0, nibble(b + 1, i, 16), 0, 15};
}
static double value_of(const struct number *n, int q, bool floats)
{
    return floats ? n->s * (q & 8 ? -e2m1[q & 7] : e2m1[q & 7]) : n->s * q + n->m;
}

static const struct kind {
    const char *word;
    int elements, bytes;
    struct number (*at)(const uint8_t *b, int i);
    double gain; /* what a search leaves of the error of a normal weight, at most */
} kinds[] = {{"q4_0", 32, 18, q4_0, 0.97},   {"q4_1", 32, 20, q4_1, 0.95},   {"q5_0", 32, 22, q5_0, 0.98},
             {"q5_1", 32, 24, q5_1, 0.98},   {"q8_0", 32, 34, q8_0, 1},      {"q4_k", 256, 144, q4_k, 0.95},
             {"q5_k", 256, 176, q5_k, 0.97}, {"q6_k", 256, 210, q6_k, 0.97}, {"mxfp4", 32, 17, mxfp4, 1}};

/* ---- A matrix ---- */

struct rounded {
    const struct kind *kind;
    coda_pack_format f;
    float x[ALL];
    uint8_t *blocks;
    int64_t bytes;
};

/* Rows are normal, normal with far ones, of one sign, all the same, zeros, of few values, tiny. */
static double draw(struct random *r, int row, int k)
{
    switch (row % 8) {
    case 1: return random_normal(r) * (k % 61 ? 0.02 : 1);
    case 2: return fabs(random_normal(r)) + 1;
    case 3: return -fabs(random_normal(r)) - 3;
    case 4: return -0.7;
    case 5: return 0;
    case 6: return k % 3 - 1;
    case 7: return random_normal(r) * 0x1p-10;
    default: return random_normal(r) * 0.02;
    }
}

static coda_status round_all(struct rounded *w, int search)
{
    coda_quantized out = CODA_QUANTIZED_INIT;
    out.kind = CODA_PACK_GGUF;
    out.codes = w->blocks;
    out.search = search;
    return coda_quantize_weight(&w->f, CODA_F32, w->x, ROWS, COLUMNS, &out);
}

static void make(struct rounded *w, int i, int search, bool normal)
{
    struct random r = {random_seed()};
    memset(w, 0, sizeof *w);
    w->f = (coda_pack_format)CODA_PACK_FORMAT_INIT;
    w->kind = &kinds[i];
    ck_assert_int_eq(coda_pack_format_find(w->kind->word, &w->f), CODA_OK);
    for (int e = 0; e < ALL; e++) w->x[e] = (float)draw(&r, normal ? 0 : e / COLUMNS, e % COLUMNS);
    w->bytes = ALL / w->kind->elements * w->kind->bytes;
    w->blocks = malloc((size_t)w->bytes + 1);
    memset(w->blocks, 0xa5, (size_t)w->bytes + 1);
    ck_assert_msg(round_all(w, search) == CODA_OK, "%s", coda_error());
    ck_assert_uint_eq(w->blocks[w->bytes], 0xa5);
}

static struct number at(const struct rounded *w, int e)
{
    const struct kind *k = w->kind;
    return k->at(w->blocks + e / k->elements * k->bytes, e % k->elements);
}

/* The sum of squares of what is lost. */
static double lost_by(const struct rounded *w)
{
    double sum = 0;
    for (int e = 0; e < ALL; e++) {
        struct number n = at(w, e);
        double d = (double)w->x[e] - value_of(&n, n.q, w->kind->at == mxfp4);
        sum += d * d;
    }
    return sum;
}

START_TEST(each_code_is_the_nearest)
{
    struct rounded w;
    make(&w, _i / 2, _i % 2, false);
    for (int e = 0; e < ALL; e++) {
        struct number n = at(&w, e);
        bool floats = w.kind->at == mxfp4;
        double own = fabs((double)w.x[e] - value_of(&n, n.q, floats)), best = INFINITY;
        for (int q = n.least; q <= n.most; q++)
            best = fmin(best, fabs((double)w.x[e] - value_of(&n, q, floats)));
        ck_assert_msg(own <= best * (1 + 1e-6) + 1e-9 * fabs((double)w.x[e]),
                      "%s: %d is %g with code %d: %g away, not %g", w.kind->word, e, (double)w.x[e], n.q, own,
                      best);
    }
    free(w.blocks);
}
END_TEST

/* Into records and out of them. */
START_TEST(packed_they_are_the_same)
{
    struct rounded w;
    float row[COLUMNS];
    make(&w, _i, 1, false);
    coda_pack_source s = CODA_PACK_SOURCE_INIT;
    s.kind = CODA_PACK_GGUF, s.rows = ROWS, s.columns = COLUMNS, s.codes = w.blocks, s.codes_bytes = w.bytes;
    void *packed = malloc((size_t)coda_packed_bytes(&w.f, ROWS, COLUMNS));
    ck_assert_msg(coda_pack(&w.f, &s, 0, ROWS, packed) == CODA_OK, "%s", coda_error());
    for (int e = 0; e < ALL; e++) {
        if (e % COLUMNS == 0)
            ck_assert_int_eq(coda_unpack(&w.f, packed, ROWS, COLUMNS, e / COLUMNS, 0, COLUMNS, row), CODA_OK);
        struct number n = at(&w, e);
        ck_assert_float_eq(row[e % COLUMNS], (float)value_of(&n, n.q, w.kind->at == mxfp4));
    }
    free(packed), free(w.blocks);
}
END_TEST

/* The error beside that of scales that follow from the range alone, and of a normal weight; and of any. */
START_TEST(a_search_loses_less)
{
    struct rounded w;
    for (int normal = 0; normal < 2; normal++) {
        make(&w, _i, 0, normal);
        double plain = lost_by(&w), size = 0;
        for (int e = 0; e < ALL; e++) size += (double)w.x[e] * (double)w.x[e];
        ck_assert_int_eq(round_all(&w, 1), CODA_OK);
        double found = lost_by(&w);
        ck_assert_msg(found <= plain * (normal ? w.kind->gain * w.kind->gain : 1),
                      "%s: %g, and without a search %g of %g", w.kind->word, sqrt(found / size),
                      sqrt(plain / size), w.kind->gain);
        free(w.blocks);
    }
}
END_TEST

/* Of the largest weight, as the formats' own writers have them. */
START_TEST(scales_follow_from_the_largest)
{
    struct rounded w;
    make(&w, 0, 0, true);
    for (int b = 0; b < ALL / 32; b++) {
        double far = 0;
        uint16_t d;
        for (int i = 0; i < 32; i++)
            far = fabs((double)w.x[32 * b + i]) > fabs(far) ? (double)w.x[32 * b + i] : far;
        dtype_store(CODA_F16, &d, 0, far / -8);
        ck_assert_mem_eq(w.blocks + 18 * b, &d, 2);
    }
    free(w.blocks);
    make(&w, 8, 0, true);
    for (int b = 0; b < ALL / 32; b++) {
        double far = 0;
        for (int i = 0; i < 32; i++) far = fmax(far, fabs((double)w.x[32 * b + i]));
        ck_assert_int_eq(w.blocks[17 * b], (int)floor(log2(far)) - 2 + 127);
    }
    free(w.blocks);
}
END_TEST

/* gpt-oss: the same codes and scales, neighbours in a byte. */
START_TEST(nibbles_are_the_blocks)
{
    struct rounded w;
    uint8_t codes[ALL / 2], scales[ALL / 32];
    make(&w, 8, 1, false);
    coda_quantized out = CODA_QUANTIZED_INIT;
    out.kind = CODA_PACK_NIBBLES, out.codes = codes, out.scales = scales, out.search = 1;
    ck_assert_int_eq(coda_quantize_weight(&w.f, CODA_F32, w.x, ROWS, COLUMNS, &out), CODA_OK);
    for (int e = 0; e < ALL; e++) {
        ck_assert_uint_eq(scales[e / 32], w.blocks[e / 32 * 17]);
        ck_assert_int_eq(codes[e / 2] >> e % 2 * 4 & 15, at(&w, e).q);
    }
    free(w.blocks);
}
END_TEST

/* ---- What is refused ---- */

static void refused(const char *word, coda_pack_kind kind, int columns, float x, const char *line)
{
    static float w[256];
    uint8_t codes[256], scales[256];
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_quantized out = CODA_QUANTIZED_INIT;
    for (int i = 0; i < 256; i++) w[i] = i == 40 ? x : 1;
    out.kind = kind, out.codes = codes, out.scales = scales;
    ck_assert_int_eq(coda_pack_format_find(word, &f), CODA_OK);
    ck_assert_int_eq(coda_quantize_weight(&f, CODA_F32, w, 1, columns, &out), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), line);
}

START_TEST(refused_in_a_line)
{
    refused("q4_k", CODA_PACK_GGUF, 128, 1, "quantize_weight: 128 columns; q4_k has blocks of 256");
    refused("q4_0", CODA_PACK_GGUF, 48, 1, "quantize_weight: 48 columns; int4_g32_f16 has blocks of 32");
    refused(
        "nvfp4", CODA_PACK_GGUF, 64, 1,
        "quantize_weight: the format is nvfp4; as CODA_PACK_GGUF it must be q4_0, q4_1, q5_0, q5_1, q8_0, "
        "q4_k, q5_k, q6_k or mxfp4");
    refused("q4_k", CODA_PACK_NIBBLES, 256, 1,
            "quantize_weight: the format is q4_k; as CODA_PACK_NIBBLES it must be mxfp4");
    refused("q6_k", CODA_PACK_GGUF, 256, NAN, "quantize_weight: the weight of row 0, column 40 is nan");
    refused("mxfp4", CODA_PACK_NIBBLES, 64, -INFINITY,
            "quantize_weight: the weight of row 0, column 40 is -inf");
    refused("q8_0", CODA_PACK_GGUF, 64, 1e30f,
            "quantize_weight: the scale of row 0, columns 32..63 is more than f16 has");
    refused("q5_k", CODA_PACK_GGUF, 256, -1e30f,
            "quantize_weight: the scale of row 0, columns 0..255 is more than f16 has");
}
END_TEST

TESTS(quantize_blocks, EACH(each_code_is_the_nearest, 2 * ARRAY_SIZE(kinds)),
      EACH(packed_they_are_the_same, ARRAY_SIZE(kinds)), EACH(a_search_loses_less, ARRAY_SIZE(kinds)),
      ONE(scales_follow_from_the_largest), ONE(nibbles_are_the_blocks), ONE(refused_in_a_line));
