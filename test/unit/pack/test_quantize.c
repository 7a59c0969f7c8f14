/* test_quantize.c -- weights are rounded to the codes, scales and zero points that numpy computes in fp64
 * (pack_digests.py); and what is refused. */
#include "base.h"
#include "sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static const struct weight_case {
    coda_pack_kind kind;
    const char *word;
    int rows, columns, block_rows;
    coda_dtype t;
    int search;
    const char *digest;
} cases[] = {
#define QUANTIZED(kind, word, rows, columns, block_rows, t, search, digest)                                  \
    {CODA_PACK_##kind, word, rows, columns, block_rows, CODA_##t, search, digest},
#include "quantize_digests.def"
#undef QUANTIZED
};

struct rounded {
    coda_pack_format f;
    int64_t rows, columns, block_rows;
    coda_dtype t;
    uint8_t *weight; /* begins at an odd address */
    uint8_t *all;    /* codes, scales, zeros, one behind the other */
    int64_t codes, scales, zeros;
    coda_quantized out;
};

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* As pack_digests.py: two bytes a number, times 4^-(row mod 5); a row of zeros, a column 8 times as large. */
static uint8_t *draw_weight(const struct weight_case *c, uint32_t x)
{
    int64_t size = dtype_bytes(c->t, 1);
    uint8_t *w = malloc((size_t)(c->rows * c->columns * size + 1));
    for (int64_t i = 0; i < c->rows * c->columns; i++) {
        _Alignas(4) uint8_t b[2], one[4];
        for (int j = 0; j < 2; j++) {
            x = x * 1664525 + 1013904223;
            b[j] = (uint8_t)(x >> 24);
        }
        int64_t row = i / c->columns, k = i % c->columns;
        double value = ldexp((int16_t)(b[0] | b[1] << 8), -15 - 2 * (int)(row % 5));
        if (row == c->rows / 2) value = 0;
        if (k == c->columns / 3) value *= 8;
        dtype_store(c->t, one, 0, value);
        memcpy(w + 1 + i * size, one, (size_t)size);
    }
    return w;
}

static struct rounded make(int i)
{
    const struct weight_case *c = &cases[i];
    struct rounded o = {.f = CODA_PACK_FORMAT_INIT, .out = CODA_QUANTIZED_INIT, .rows = c->rows, .t = c->t};
    ck_assert_int_eq(coda_pack_format_find(c->word, &o.f), CODA_OK);
    o.columns = c->columns;
    o.block_rows = MAX(c->block_rows, 1);
    o.weight = draw_weight(c, (uint32_t)i + 1);
    int64_t groups = o.f.group ? up(o.columns, o.f.group) : 1;
    int w = o.f.codes == CODA_CODES_INT4 ? 8 : 4;
    bool words = c->kind == CODA_PACK_COMPRESSED_TENSORS, points = o.f.zeros == CODA_ZEROS_POINTS;
    o.codes = words ? o.rows * up(o.columns, w) * 4 : o.rows * o.columns;
    o.scales = up(o.rows, o.block_rows) * groups * (o.f.scales == CODA_SCALES_F32 ? 4 : 2);
    o.zeros = !points ? 0 : words ? up(o.rows, w) * 4 * groups : o.rows * groups;
    int64_t all = o.codes + o.scales + o.zeros;
    o.all = malloc((size_t)all + 16);
    memset(o.all, 0xa5, (size_t)all + 16);
    o.out.kind = c->kind;
    o.out.block_rows = c->block_rows;
    o.out.search = c->search;
    o.out.codes = o.all;
    o.out.scales = o.all + o.codes;
    o.out.zeros = points ? o.all + o.codes + o.scales : NULL;
    return o;
}

static void drop(struct rounded *o)
{
    free(o->weight);
    free(o->all);
}

static void check_digest(const struct rounded *o, int i)
{
    char hex[SHA256_HEX];
    int64_t all = o->codes + o->scales + o->zeros;
    for (int j = 0; j < 16; j++) ck_assert_uint_eq(o->all[all + j], 0xa5);
    sha256_hex(hex, o->all, (size_t)all);
    ck_assert_msg(!strcmp(hex, cases[i].digest), "%s, %d x %d: other bytes: %d %d %d", cases[i].word,
                  cases[i].rows, cases[i].columns, o->all[0], o->all[1], o->all[o->codes]);
}

START_TEST(tensors_are_numpys)
{
    struct rounded o = make(_i);
    ck_assert_msg(coda_quantize_weight(&o.f, o.t, o.weight + 1, o.rows, o.columns, &o.out) == CODA_OK, "%s",
                  coda_error());
    check_digest(&o, _i);
    drop(&o);
}
END_TEST

/* By ranges of rows, from the last to the first. */
START_TEST(ranges_are_the_whole)
{
    struct rounded o = make(_i);
    int64_t step = MAX(8, o.block_rows), row_bytes = o.columns * dtype_bytes(o.t, 1);
    int64_t blocks = up(o.rows, o.block_rows), groups = o.f.group ? up(o.columns, o.f.group) : 1;
    for (int64_t first = (o.rows - 1) / step * step; first >= 0; first -= step) {
        coda_quantized part = o.out;
        part.codes = (uint8_t *)o.out.codes + first * (o.codes / o.rows);
        part.scales = (uint8_t *)o.out.scales + first / o.block_rows * (o.scales / blocks);
        int w = o.f.codes == CODA_CODES_INT4 ? 8 : 4;
        int64_t zeros = o.out.kind == CODA_PACK_CODES ? first * groups : first / w * 4 * groups;
        if (part.zeros) part.zeros = (uint8_t *)o.out.zeros + zeros;
        ck_assert_int_eq(coda_quantize_weight(&o.f, o.t, o.weight + 1 + first * row_bytes,
                                              MIN(step, o.rows - first), o.columns, &part),
                         CODA_OK);
    }
    check_digest(&o, _i);
    drop(&o);
}
END_TEST

static double weight_at(const struct rounded *o, int64_t row, int64_t k)
{
    _Alignas(4) uint8_t one[4];
    int64_t size = dtype_bytes(o->t, 1);
    memcpy(one, o->weight + 1 + (row * o->columns + k) * size, (size_t)size);
    return dtype_load(o->t, one, 0);
}

/* How far off: integers half a step, as much again where a zero point is rounded or beyond the last code;
 * a scale's 16 bits take 1/256 of the largest, a search at most 0.35 of it. Floats half of their last bit, or
 * of their least number. */
static double tolerance(const struct rounded *o, int64_t row, int64_t k)
{
    int64_t group = o->f.group ? o->f.group : o->columns, first = k / group * group;
    double most = 0, steps = o->f.codes == CODA_CODES_INT4 ? 15 : 255;
    if (o->f.codes == CODA_CODES_E4M3 || o->f.codes == CODA_CODES_E5M2)
        return fabs(weight_at(o, row, k)) / (o->f.codes == CODA_CODES_E4M3 ? 16 : 8) + 8 * 0x1p-10 / 448;
    for (int64_t j = first; j < MIN(o->columns, first + group); j++)
        most = fmax(most, fabs(weight_at(o, row, j)));
    return most * ((o->f.zeros ? 2 : 1) / steps + 1. / 256 + (o->out.search ? 0.35 : 0));
}

/* Rounded, packed, unpacked. */
static float *values(const struct rounded *o)
{
    coda_pack_source s = CODA_PACK_SOURCE_INIT;
    ck_assert_int_eq(coda_quantize_weight(&o->f, o->t, o->weight + 1, o->rows, o->columns, &o->out), CODA_OK);
    s.kind = o->out.kind;
    s.block_rows = o->out.block_rows;
    s.rows = o->rows;
    s.columns = o->columns;
    s.codes = o->out.codes;
    s.codes_bytes = o->codes;
    s.scales = o->out.scales;
    s.scales_bytes = o->scales;
    s.zeros = o->out.zeros;
    s.zeros_bytes = o->zeros;
    uint8_t *packed = malloc((size_t)coda_packed_bytes(&o->f, o->rows, o->columns));
    float *w = malloc((size_t)(o->rows * o->columns) * sizeof *w);
    ck_assert_msg(coda_pack(&o->f, &s, 0, o->rows, packed) == CODA_OK, "%s", coda_error());
    for (int64_t r = 0; r < o->rows; r++)
        ck_assert_int_eq(
            coda_unpack(&o->f, packed, o->rows, o->columns, r, 0, o->columns, w + r * o->columns), CODA_OK);
    free(packed);
    return w;
}

/* coda_pack takes what coda_quantize_weight has made, and it means the weight. */
START_TEST(packs_and_is_near)
{
    struct rounded o = make(_i);
    float *w = values(&o);
    for (int64_t i = 0; i < o.rows * o.columns; i++) {
        int64_t r = i / o.columns, k = i % o.columns;
        ck_assert_msg(fabs(w[i] - weight_at(&o, r, k)) <= tolerance(&o, r, k), "%s, row %d, k %d: %g, not %g",
                      cases[_i].word, (int)r, (int)k, w[i], weight_at(&o, r, k));
    }
    free(w);
    drop(&o);
}
END_TEST

static double lost(const struct rounded *o)
{
    double sum = 0;
    float *w = values(o);
    for (int64_t i = 0; i < o->rows * o->columns; i++) {
        double d = w[i] - weight_at(o, i / o->columns, i % o->columns);
        sum += d * d;
    }
    free(w);
    return sum;
}

/* No more than min and max lose, which are among what is tried; of 4 bits less. */
START_TEST(search_loses_less)
{
    struct rounded o = make(_i);
    if (o.f.codes == CODA_CODES_INT4 || o.f.codes == CODA_CODES_INT8) {
        o.out.search = 0;
        double without = lost(&o);
        o.out.search = 1;
        double with = lost(&o);
        ck_assert(o.f.codes == CODA_CODES_INT4 ? with < without : with <= without);
    }
    drop(&o);
}
END_TEST

/* ---- Refusals ---- */

static void refuses(const struct rounded *o, const char *says)
{
    ck_assert_int_eq(coda_quantize_weight(&o->f, o->t, o->weight, o->rows, o->columns, &o->out),
                     CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), says) != NULL, "\"%s\" lacks \"%s\"", coda_error(), says);
}

static void with_format(struct rounded *o, const char *word)
{
    ck_assert_int_eq(coda_pack_format_find(word, &o->f), CODA_OK);
}

START_TEST(what_is_refused)
{
    static float weight[4 * 300];
    static uint8_t room[4 * 300 * 4];
    struct rounded o = {
        .f = CODA_PACK_FORMAT_INIT, .rows = 4, .columns = 300, .t = CODA_F32, .out = CODA_QUANTIZED_INIT};
    o.weight = (uint8_t *)weight;
    o.out.kind = CODA_PACK_CODES;
    o.out.codes = o.out.scales = room;
    with_format(&o, "e4m3_row_f32");
    weight[3 * 300 + 299] = NAN;
    refuses(&o, "the weight of row 3, column 299 is nan");
    weight[3 * 300 + 299] = -INFINITY;
    refuses(&o, "the weight of row 3, column 299 is -inf");
    weight[3 * 300 + 299] = 1e9f;
    with_format(&o, "int8_g128_f16");
    refuses(&o, "the scale of row 3, group 2 is 7.84314e+06, which f16 has not");
    o.t = CODA_I32;
    refuses(&o, "the weight is i32");
    o.t = CODA_F32;
    o.columns = 0;
    refuses(&o, "4 x 0");
    o.columns = 300;
    o.out.block_rows = -1;
    refuses(&o, "block_rows is -1");
    o.out.block_rows = 0;
    o.out.kind = CODA_PACK_GPTQ;
    refuses(&o, "kind is 4 of int8_g128_f16");
    o.out.kind = CODA_PACK_COMPRESSED_TENSORS;
    refuses(&o, "300 columns, which groups of 128 do not divide");
    o.out.block_rows = 2;
    refuses(&o, "block_rows is 2");
    o.out.block_rows = 0;
    with_format(&o, "e4m3_row_f32");
    refuses(&o, "kind is 3 of e4m3_row_f32");
    o.out.kind = CODA_PACK_CODES;
    with_format(&o, "q4_k");
    refuses(&o, "the format is q4_k");
    with_format(&o, "int5_g32_f16");
    refuses(&o, "the format is int5_g32_f16");
    with_format(&o, "e4m3_g32_e8m0");
    refuses(&o, "the format is e4m3_g32_e8m0");
    with_format(&o, "int4_g32_f16_zeros");
    refuses(&o, "zeros of out is NULL");
    with_format(&o, "int4_g32_f16");
    o.out.zeros = room;
    refuses(&o, "zeros of out is not NULL");
    o.out.codes = NULL;
    refuses(&o, "codes of out is NULL");
    ck_assert_int_eq(coda_quantize_weight(&o.f, o.t, NULL, 4, 300, &o.out), CODA_E_INVALID);
    ck_assert_int_eq(coda_quantize_weight(&o.f, o.t, weight, 4, 300, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_quantize_weight(NULL, o.t, weight, 4, 300, &o.out), CODA_E_INVALID);
}
END_TEST

/* Below what f16 has, a group is 0; its scale is 1, which other readers may divide by. */
START_TEST(too_small_for_the_scale)
{
    float weight[32] = {1e-9f, -1e-9f};
    uint8_t codes[32];
    uint16_t scale = 0;
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_quantized out = CODA_QUANTIZED_INIT;
    ck_assert_int_eq(coda_pack_format_find("int8_g32_f16", &f), CODA_OK);
    out.kind = CODA_PACK_CODES;
    out.codes = codes;
    out.scales = &scale;
    ck_assert_int_eq(coda_quantize_weight(&f, CODA_F32, weight, 1, 32, &out), CODA_OK);
    ck_assert_uint_eq(scale, 0x3c00);
    for (int k = 0; k < 32; k++) ck_assert_uint_eq(codes[k], 0);
}
END_TEST

TESTS(quantize, EACH(tensors_are_numpys, ARRAY_SIZE(cases)), EACH(ranges_are_the_whole, ARRAY_SIZE(cases)),
      SOME(packs_and_is_near, ARRAY_SIZE(cases)), EACH(search_loses_less, ARRAY_SIZE(cases)),
      ONE(what_is_refused), ONE(too_small_for_the_scale));
