/* test_pack.c -- packed weights: sizes are the file formats' own, codes are what the formats' papers say,
 * lanes find their fragments by masks, and what is put into records comes out of them. */
#include "pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

static const char *const words[] = {
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q8_0",
    "q4_k",
    "q5_k",
    "q6_k",
    "mxfp4",
    "nvfp4",
    "fp8_block",
    "int4_g16_f32",
    "int4_g32_bf16",
    "int4_g64_f16",
    "int4_g128_f16",
    "int4_g128_bf16_zeros",
    "int4_row_f32",
    "int4_row_f16_zeros",
    "int4_g256_f16",
    "int4_g64_bf16_min",
    "int8_g32_f16",
    "int8_g64_bf16_zeros",
    "int8_g128_f32",
    "int8_row_f16_zeros",
    "int6_g32_f16",
    "int5_g64_bf16_min",
    "int5_g128_f32",
    "e5m2_g128_bf16",
    "e4m3_g32_e8m0",
    "e2m1_g128_f16",
    "e2m1_row_f32",
    "e4m3_g16_e4m3",
    "int5_g16_f16",
    "int6_row_bf16",
    "int8_g16_f32",
    "e5m2_row_e8m0",
    "int4_g32_f16_zeros",
};

static struct pack_format format_of(const char *word)
{
    struct pack_format f = {0};
    ck_assert_msg(pack_find(word, &f) == CODA_OK, "%s: %s", word, fail_message());
    return f;
}

/* ---- Sizes: bytes of a block of a row in the file, of 16 rows x step here ---- */

static const struct {
    const char *word;
    int step, bytes;     /* of a record */
    int elements, block; /* the file's; 0: none has it */
} sizes[] = {
    {"int4_g128_f16", 128, 1024 + 32, 0, 0},
    {"int4_g128_f16_zeros", 128, 1024 + 32 + 16, 0, 0},
    {"int4_g32_f16", 128, 1024 + 128, 32, 18},
    {"int4_row_bf16", 128, 1024 + 32, 0, 0},
    {"int4_g512_f32_zeros", 128, 1024 + 64 + 16, 0, 0},
    {"q4_0", 128, 1024 + 4 * 32, 32, 18},
    {"q4_1", 128, 1024 + 8 * 32, 32, 20},
    {"q5_0", 128, 1024 + 256 + 4 * 32, 32, 22},
    {"q5_1", 128, 1024 + 256 + 8 * 32, 32, 24},
    {"q8_0", 64, 1024 + 2 * 32, 32, 34},
    {"mxfp4", 128, 1024 + 4 * 16, 32, 17},
    {"nvfp4", 128, 1024 + 8 * 16, 64, 36},
    {"q4_k", 256, 2048 + 16 * 16, 256, 144},
    {"q5_k", 256, 2048 + 512 + 16 * 16, 256, 176},
    {"q6_k", 256, 2048 + 1024 + 16 * 16 + 32, 256, 210},
    {"e4m3_g32_e8m0", 64, 1024 + 2 * 16, 32, 33},
    {"fp8_block", 128, 2048 + 64, 0, 0},
    {"int8_row_f32_zeros", 128, 2048 + 64 + 16, 0, 0},
};

START_TEST(size_is_the_files)
{
    struct pack_format f = format_of(sizes[_i].word);
    struct pack_record p = pack_record(&f);
    ck_assert_int_eq(p.step, sizes[_i].step);
    ck_assert_int_eq(p.bytes, sizes[_i].bytes);
    ck_assert_int_eq(p.bytes % 16, 0);
    ck_assert_int_eq(p.scales % 16, 0);
    ck_assert_int_eq(p.second % 16, 0);
    if (sizes[_i].elements) ck_assert_int_eq(p.bytes, 16 * p.step / sizes[_i].elements * sizes[_i].block);
    ck_assert_int_eq(pack_bytes(&f, 33, 2 * p.step + 1), 3 * 3 * p.bytes);
    ck_assert_int_eq(pack_bytes(&f, 16, p.step), p.bytes);
    ck_assert_int_eq(pack_bytes(&f, INT64_MAX, INT64_MAX), INT64_MAX);
}
END_TEST

/* ---- Words ---- */

START_TEST(word_is_read_back)
{
    struct pack_format f = format_of(words[_i]), again = format_of(pack_word(&f).s);
    ck_assert(pack_same(&f, &again));
    ck_assert(pack_check(&f) == CODA_OK);
    ck_assert_int_lt(strlen(pack_word(&f).s), PACK_WORD_SIZE - 1);
}
END_TEST

static const struct {
    struct pack_format f;
    const char *word;
} printed[] = {
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_POINTS, 128}, "int4_g128_f16_zeros"},
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, "int4_g32_f16"},
    {{CODA_CODES_INT5, CODA_SCALES_F16_U6, CODA_ZEROS_MINIMUM, 32}, "q5_k"},
    {{CODA_CODES_E2M1, CODA_SCALES_E8M0, CODA_ZEROS_NONE, 32}, "mxfp4"},
    {{CODA_CODES_INT8, CODA_SCALES_F32, CODA_ZEROS_NONE, 0}, "int8_row_f32"},
    {{CODA_CODES_INT4, CODA_SCALES_BF16, CODA_ZEROS_NONE, 999999936}, "int4_g999999936_bf16"},
};

START_TEST(word_is_printed) { ck_assert_str_eq(pack_word(&printed[_i].f).s, printed[_i].word); }
END_TEST

static const struct {
    const char *word, *says;
} refused[] = {
    {"q4_2", "do you mean q4_0?"},
    {"", "like int4_g128_f16"},
    {"int4", "called"},
    {"int4_g128", "called"},
    {"int4_g128_f16_", "called"},
    {"int4_g128_f16_zeros_min", "called"},
    {"int4_g128_f16zeros", "called"},
    {"int4_g_f16", "called"},
    {"int4_g0_f16", "called"},
    {"int4_g012_f16", "called"},
    {"int4_g12800000000000000000_f16", "called"},
    {"int7_g128_f16", "called"},
    {"int4_g7_f16", "group is 7; must be 8..2147483520, or 0"},
    {"int4_g128_e8m0", "int4 codes with scales of e8m0"},
    {"e2m1_g32_f16_zeros", "e2m1 codes with zero points"},
    {"int6_g32_f16_zeros", "int6 codes with zero points"},
    {"int8_g32_f16_min", "int8 codes with minima"},
    {"int4_g32_f32_min", "minima of f32"},
    {"int4_g64_f16u6_min", "scales f16u6 are those of"},
    {"int4_g32_f16u6", "scales f16u6 are those of"},
    {"int4_g16_f16i8", "scales f16i8 are those of"},
};

START_TEST(word_is_refused)
{
    struct pack_format f = {0}, none = {0};
    ck_assert_int_eq(pack_find(refused[_i].word, &f), CODA_E_INVALID);
    ck_assert_msg(strstr(fail_message(), refused[_i].says) != NULL, "%s: %s", refused[_i].word,
                  fail_message());
    ck_assert(pack_same(&f, &none));
}
END_TEST

START_TEST(numbers_are_refused)
{
    static const struct pack_format bad[] = {
        {0, CODA_SCALES_F16, CODA_ZEROS_NONE, 32},
        {(coda_pack_codes)8, CODA_SCALES_F16, CODA_ZEROS_NONE, 32},
        {(coda_pack_codes)-1, CODA_SCALES_F16, CODA_ZEROS_NONE, 32},
        {CODA_CODES_INT4, 0, CODA_ZEROS_NONE, 32},
        {CODA_CODES_INT4, (coda_pack_scales)8, CODA_ZEROS_NONE, 32},
        {CODA_CODES_INT4, CODA_SCALES_F16, (coda_pack_zeros)3, 32},
        {CODA_CODES_INT4, CODA_SCALES_F16, (coda_pack_zeros)-1, 32},
        {CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_NONE, -128},
        {CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_NONE, 7},
        {CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_NONE, INT32_MAX},
    };
    for (int i = 0; i < ARRAY_SIZE(bad); i++) ck_assert_int_eq(pack_check(&bad[i]), CODA_E_INVALID);
}
END_TEST

/* ---- Codes ---- */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

/* A float of e exponent and m mantissa bits, as IEEE 754 has it. */
static double small_float(int b, int e, int m)
{
    int bias = (1 << (e - 1)) - 1, exponent = b >> m & ((1 << e) - 1), mantissa = b & ((1 << m) - 1);
    double x = exponent ? ldexp(1 + ldexp(mantissa, -m), exponent - bias) : ldexp(mantissa, 1 - bias - m);
    return b >> (e + m) & 1 ? -x : x;
}

START_TEST(floats_of_8_bits)
{
    for (int b = 0; b < 256; b++) {
        float x = pack_code_value(CODA_CODES_E4M3, (uint8_t)b),
              y = pack_code_value(CODA_CODES_E5M2, (uint8_t)b);
        if ((b & 127) == 127) ck_assert(isnan(x));
        else ck_assert_uint_eq(bits_of(x), bits_of((float)small_float(b, 4, 3)));
        if ((b & 127) == 124) ck_assert(isinf(y) && (y < 0) == (b > 127));
        else if ((b & 127) > 124) ck_assert(isnan(y));
        else ck_assert_uint_eq(bits_of(y), bits_of((float)small_float(b, 5, 2)));
    }
}
END_TEST

START_TEST(floats_of_4_bits)
{
    for (int b = 0; b < 16; b++)
        ck_assert_uint_eq(bits_of(pack_code_value(CODA_CODES_E2M1, (uint8_t)b)),
                          bits_of((float)small_float(b, 2, 1)));
    ck_assert(pack_code_value(CODA_CODES_E2M1, 7) == 6); /* the largest: no inf, no NaN */
}
END_TEST

/* ---- Fragments: what a lane's masks find, of a record with one row of codes ---- */

static uint32_t word_at(const uint8_t *p, int i)
{
    uint32_t w;
    memcpy(&w, p + 4 * i, 4);
    return w;
}

/* As primitives do it: pair p of word j of lane 4 r + t, in half h of a tile: two codes, or two bf16. */
static uint32_t pair_of(const struct pack_record *p, bool e2m1, const uint8_t *record, int tile, int h,
                        int lane, int j, int pair)
{
    static const int turn[] = {0, 4, 10, 14};
    uint32_t w = word_at(record + tile * 1024 + h * 512 + lane * 16, j);
    if (e2m1) {
        uint32_t y = w << turn[pair] | (turn[pair] ? w >> (32 - turn[pair]) : 0);
        return pair < 3 ? y & 0x81c081c0 : (y & 0x81808180) | (w << 6 & 0x00400040);
    }
    uint32_t both = w >> 4 * pair & 0x000f000f, n = (uint32_t)(p->bits & 3);
    if (!n) return both;
    const uint8_t *high = record + p->high + tile * 256 * (int)n + (lane * 2 + h) * 4 * (int)n;
    uint32_t at = n * (uint32_t)(4 * j + pair);
    return both | (word_at(high, (int)(at / 16)) >> at % 16 & (n == 1 ? 0x00010001 : 0x00030003)) << 4;
}

static float of_bf16(uint32_t b)
{
    float x;
    b <<= 16;
    memcpy(&x, &b, 4);
    return x;
}

static const char *const fragment_words[] = {"q4_0", "q5_0", "q4_k", "q5_k", "q6_k", "mxfp4"};

START_TEST(lane_finds_fragments)
{
    struct pack_format f = format_of(fragment_words[_i]);
    struct pack_record p = pack_record(&f);
    struct random rng = {random_seed()};
    bool e2m1 = f.codes == CODA_CODES_E2M1;
    for (int r = 0; r < 16; r++) {
        uint8_t *record = calloc(1, (size_t)p.bytes), q[PACK_STEP_MOST];
        for (int k = 0; k < p.step; k++) q[k] = (uint8_t)random_below(&rng, 1 << p.bits);
        pack_put_codes(&p, f.codes, record, r, q);
        for (int i = 0; i < p.step / 2; i++) { /* pair i of the step, k = 2 i */
            int k = 2 * i, in = k % 128, t = in % 16 / 4, product = in / 16;
            int pair = (product % 2) * 2 + in % 4 / 2, j = product / 2;
            uint32_t got = pair_of(&p, e2m1, record, k / 128, r / 8, 4 * (r % 8) + t, j, pair);
            for (int both = 0; both < 2; both++) {
                uint32_t one = got >> 16 * both & 0xffff;
                if (e2m1) ck_assert(of_bf16(one) * 0x1p126f == (float)small_float(q[k + both], 2, 1));
                else ck_assert_uint_eq(one, q[k + both]);
            }
        }
        free(record);
    }
}
END_TEST

START_TEST(lane_finds_bytes)
{
    struct pack_format f = format_of("fp8_block");
    struct pack_record p = pack_record(&f);
    uint8_t *record = calloc(1, (size_t)p.bytes), q[128];
    for (int r = 0; r < 16; r++) {
        for (int k = 0; k < 128; k++) q[k] = (uint8_t)(k + 7 * r);
        pack_put_codes(&p, f.codes, record, r, q);
    }
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < 128; k++) {
            int in = k % 64, lane = 4 * (r % 8) + in % 16 / 4;
            ck_assert_uint_eq(record[k / 64 * 1024 + r / 8 * 512 + lane * 16 + in / 16 * 4 + in % 4],
                              (uint8_t)(k + 7 * r));
        }
    free(record);
}
END_TEST

/* ---- There and back, against the formula in fp64 ---- */

struct matrix {
    struct pack_format f;
    struct pack_record p;
    int64_t rows, columns;
    uint8_t *packed;
    double *value;
};

static double scale_of(const struct pack_format *f, const uint8_t *s, int g)
{
    switch (f->scales) {
    case CODA_SCALES_F32: return dtype_load(CODA_F32, s, g);
    case CODA_SCALES_BF16: return dtype_load(CODA_BF16, s, g);
    case CODA_SCALES_E8M0: return ldexp(1, s[g] - 127);
    case CODA_SCALES_E4M3: return small_float(s[g], 4, 3);
    default: return dtype_load(CODA_F16, s, g);
    }
}

/* Bytes of a scale or of a minimum that is finite. */
static void draw_scale(const struct pack_format *f, struct random *r, uint8_t *s, int g)
{
    double x = random_normal(r) * 0.01;
    switch (f->scales) {
    case CODA_SCALES_F32: return dtype_store(CODA_F32, s, g, x);
    case CODA_SCALES_BF16: return dtype_store(CODA_BF16, s, g, x);
    case CODA_SCALES_F16: return dtype_store(CODA_F16, s, g, x);
    case CODA_SCALES_E8M0: s[g] = (uint8_t)random_below(r, 250); return;
    case CODA_SCALES_E4M3: s[g] = (uint8_t)random_below(r, 127); return;
    case CODA_SCALES_F16_U6: s[g] = (uint8_t)random_below(r, 64); return;
    case CODA_SCALES_F16_I8: s[g] = (uint8_t)random_below(r, 256); return;
    }
}

static struct pack_scales draw_scales(const struct matrix *m, struct random *r)
{
    struct pack_scales s = {0};
    dtype_store(CODA_F16, &s.d, 0, random_normal(r) * 0.01);
    dtype_store(CODA_F16, &s.second_d, 0, random_normal(r) * 0.01);
    for (int g = 0; g < m->p.groups; g++) {
        draw_scale(&m->f, r, s.scale, g);
        if (m->f.zeros == CODA_ZEROS_MINIMUM) draw_scale(&m->f, r, s.second, g);
        if (m->f.zeros == CODA_ZEROS_POINTS)
            s.second[g] = (uint8_t)random_below(r, m->f.codes == CODA_CODES_INT8 ? 256 : 16);
    }
    return s;
}

static double value_of(const struct matrix *m, const struct pack_scales *s, int k, uint8_t q)
{
    static const int middle[] = {[CODA_CODES_INT4] = 8, [CODA_CODES_INT5] = 16, [CODA_CODES_INT6] = 32};
    int g = k / m->p.group;
    double d = dtype_load(CODA_F16, &s->d, 0), e = dtype_load(CODA_F16, &s->second_d, 0);
    if (m->f.scales == CODA_SCALES_F16_U6) return d * s->scale[g] * q + e * s->second[g];
    if (m->f.scales == CODA_SCALES_F16_I8) return d * (int8_t)s->scale[g] * (q - 32);
    double scale = scale_of(&m->f, s->scale, g);
    if (m->f.codes == CODA_CODES_E2M1) return small_float(q, 2, 1) * scale;
    if (m->f.codes == CODA_CODES_E4M3) return small_float(q, 4, 3) * scale;
    if (m->f.codes == CODA_CODES_E5M2) return small_float(q, 5, 2) * scale;
    if (m->f.zeros == CODA_ZEROS_MINIMUM) return q * scale + scale_of(&m->f, s->second, g);
    if (m->f.codes == CODA_CODES_INT8) return ((int8_t)q - (m->f.zeros ? (int8_t)s->second[g] : 0)) * scale;
    return (q - (m->f.zeros ? s->second[g] : middle[m->f.codes])) * scale;
}

static uint8_t draw_code(const struct matrix *m, struct random *r)
{
    for (;;) {
        uint8_t q = (uint8_t)random_below(r, 1 << m->p.bits);
        if (m->f.codes != CODA_CODES_E4M3 && m->f.codes != CODA_CODES_E5M2) return q;
        if ((q & 127) < (m->f.codes == CODA_CODES_E4M3 ? 127 : 124)) return q;
    }
}

static struct matrix draw_matrix(const char *word, struct random *r)
{
    struct matrix m = {
        .f = format_of(word), .rows = 1 + random_below(r, 40), .columns = 1 + random_below(r, 700)};
    m.p = pack_record(&m.f);
    int64_t records = pack_records(&m.f, m.columns), wide = records * m.p.step;
    m.packed = calloc(1, (size_t)pack_bytes(&m.f, m.rows, m.columns));
    m.value = calloc((size_t)(m.rows * wide), sizeof *m.value);
    for (int64_t row = 0; row < m.rows; row++)
        for (int64_t i = 0; i < records; i++) {
            uint8_t *record = m.packed + (row / 16 * records + i) * m.p.bytes, q[PACK_STEP_MOST];
            struct pack_scales s = draw_scales(&m, r);
            for (int k = 0; k < m.p.step; k++) {
                q[k] = draw_code(&m, r);
                m.value[row * wide + i * m.p.step + k] = value_of(&m, &s, k, q[k]);
            }
            pack_put_codes(&m.p, m.f.codes, record, (int)(row % 16), q);
            pack_put_scales(&m.f, &m.p, record, (int)(row % 16), &s);
        }
    return m;
}

START_TEST(there_and_back)
{
    struct random r = {random_seed() + (uint64_t)_i};
    struct matrix m = draw_matrix(words[_i], &r);
    int64_t wide = pack_records(&m.f, m.columns) * m.p.step;
    for (int n = 0; n < 200; n++) {
        int64_t row = n < m.rows ? n : random_below(&r, m.rows);
        int64_t k0 = n < m.rows ? 0 : random_below(&r, m.columns);
        int64_t count = n < m.rows ? m.columns : random_below(&r, m.columns - k0 + 1);
        float *out = malloc(sizeof *out * (size_t)(count + 1));
        out[count] = 12345;
        pack_decode(&m.f, m.packed, m.rows, m.columns, row, k0, count, out);
        for (int64_t k = 0; k < count; k++)
            ck_assert_msg(bits_of(out[k]) == bits_of((float)m.value[row * wide + k0 + k]) ||
                              (out[k] == 0 && m.value[row * wide + k0 + k] == 0),
                          "%s, row %d, k %d: %.9g, not %.9g", words[_i], (int)row, (int)(k0 + k), out[k],
                          m.value[row * wide + k0 + k]);
        ck_assert(out[count] == 12345);
        free(out);
    }
    free(m.packed);
    free(m.value);
}
END_TEST

START_TEST(scales_and_codes_come_back)
{
    struct random r = {random_seed() + (uint64_t)_i};
    struct matrix m = {.f = format_of(words[_i])};
    m.p = pack_record(&m.f);
    uint8_t *record = calloc(1, (size_t)m.p.bytes), q[16][PACK_STEP_MOST], again[PACK_STEP_MOST];
    struct pack_scales s[16], back;
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < m.p.step; k++) q[row][k] = draw_code(&m, &r);
        s[row] = draw_scales(&m, &r);
        pack_put_codes(&m.p, m.f.codes, record, row, q[row]);
        pack_put_scales(&m.f, &m.p, record, row, &s[row]);
    }
    for (int row = 0; row < 16; row++) {
        memset(&back, 0, sizeof back);
        pack_get_codes(&m.p, m.f.codes, record, row, again);
        pack_get_scales(&m.f, &m.p, record, row, &back);
        ck_assert_mem_eq(again, q[row], (size_t)m.p.step);
        ck_assert_mem_eq(back.scale, s[row].scale, sizeof back.scale);
        ck_assert_mem_eq(back.second, s[row].second, sizeof back.second);
        if (pack_two_levels(&m.f)) ck_assert_uint_eq(back.d, s[row].d);
        if (m.f.scales == CODA_SCALES_F16_U6) ck_assert_uint_eq(back.second_d, s[row].second_d);
    }
    free(record);
}
END_TEST

TESTS(pack, EACH(size_is_the_files, ARRAY_SIZE(sizes)), EACH(word_is_read_back, ARRAY_SIZE(words)),
      EACH(word_is_printed, ARRAY_SIZE(printed)), EACH(word_is_refused, ARRAY_SIZE(refused)),
      ONE(numbers_are_refused), ONE(floats_of_8_bits), ONE(floats_of_4_bits),
      EACH(lane_finds_fragments, ARRAY_SIZE(fragment_words)), ONE(lane_finds_bytes),
      EACH(there_and_back, ARRAY_SIZE(words)), EACH(scales_and_codes_come_back, ARRAY_SIZE(words)));
