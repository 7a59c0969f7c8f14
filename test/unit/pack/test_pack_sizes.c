/* test_pack_sizes.c -- random tensors of all kinds and odd sizes are packed and unpacked to what numpy makes
 * of them (pack_digests.py); and what packers refuse, in one line with place and number. */
#include "base.h"
#include "sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static const struct random_case {
    coda_pack_kind kind;
    const char *word;
    int rows, columns, extra;
    const char *digest;
} cases[] = {
#define PACKED(kind, word, rows, columns, extra, digest)                                                     \
    {CODA_PACK_##kind, word, rows, columns, extra, digest},
#include "pack_digests.def"
#undef PACKED
};

/* ---- Tensors: bytes of a generator that Python has, too ---- */

static uint8_t *draw(uint32_t *x, int64_t n, uint8_t mask)
{
    uint8_t *b = malloc((size_t)MAX(n, 1));
    for (int64_t i = 0; i < n; i++) {
        *x = *x * 1664525 + 1013904223;
        b[i] = (uint8_t)(*x >> 24) & mask;
    }
    return b;
}

struct tensors {
    coda_pack_format f;
    coda_pack_source s;
    uint8_t *codes, *scales, *zeros;
    int32_t *g_idx, *order;
    int64_t packed_bytes;
    uint8_t *packed;
};

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Scales that are finite: their last byte is masked. */
static void draw_scales(struct tensors *t, uint32_t *x, int64_t n)
{
    static const int size[] = {0, 4, 2, 2, 1, 1}, mask[] = {0, 0xbf, 0xbf, 0xbb, 0xfe, 0xfb};
    int bytes = size[t->f.scales];
    t->s.scales_bytes = n * bytes;
    t->scales = draw(x, n * bytes, 255);
    for (int64_t i = 0; i < n; i++) {
        t->scales[i * bytes + bytes - 1] &= (uint8_t)mask[t->f.scales];
        if (t->f.scales == CODA_SCALES_E8M0) t->scales[i] /= 2;
    }
}

static void draw_gguf(struct tensors *t, const char *word, uint32_t *x)
{
    static const struct {
        const char *word;
        int elements, bytes, half[2];
    } types[] = {{"q4_0", 32, 18, {0, -1}},  {"q4_1", 32, 20, {0, 2}},      {"q5_0", 32, 22, {0, -1}},
                 {"q5_1", 32, 24, {0, 2}},   {"q8_0", 32, 34, {0, -1}},     {"q4_k", 256, 144, {0, 2}},
                 {"q5_k", 256, 176, {0, 2}}, {"q6_k", 256, 210, {208, -1}}, {"mxfp4", 32, 17, {-1, -1}},
                 {"nvfp4", 64, 36, {-1, -1}}};
    int i = 0;
    while (strcmp(types[i].word, word) != 0) i++;
    t->s.codes_bytes = t->s.rows * t->s.columns / types[i].elements * types[i].bytes;
    t->codes = draw(x, t->s.codes_bytes, 255);
    for (int64_t at = 0; at < t->s.codes_bytes; at += types[i].bytes) {
        for (int h = 0; h < 2; h++)
            if (types[i].half[h] >= 0) t->codes[at + types[i].half[h] + 1] &= 0xbb;
        if (!strcmp(word, "mxfp4")) t->codes[at] = (t->codes[at] & 0xfe) / 2;
        for (int s = 0; s < 4 && !strcmp(word, "nvfp4"); s++) t->codes[at + s] &= 127;
    }
}

static void draw_tensors(struct tensors *t, const struct random_case *c, uint32_t *x)
{
    int64_t n = c->rows, k = c->columns, g = t->f.group ? t->f.group : k, G = up(k, g);
    int bits = t->f.codes == CODA_CODES_INT4 || t->f.codes == CODA_CODES_E2M1 ? 4 : 8, w = 32 / bits;
    bool codes = c->kind == CODA_PACK_CODES, zeros = t->f.zeros == CODA_ZEROS_POINTS;
    int64_t zeros_bytes = 0;
    switch (c->kind) {
    case CODA_PACK_CODES:
        t->s.block_rows = c->extra;
        t->s.codes_bytes = n * k;
        zeros_bytes = n * G;
        break;
    case CODA_PACK_NIBBLES: t->s.codes_bytes = n * k / 2; break;
    case CODA_PACK_COMPRESSED_TENSORS:
        t->s.codes_bytes = n * up(k, w) * 4;
        zeros_bytes = up(n, w) * G * 4;
        break;
    case CODA_PACK_AWQ: t->s.codes_bytes = k * n / 2, zeros_bytes = G * n / 2; break;
    default: t->s.codes_bytes = k / w * n * 4, zeros_bytes = G * (n / w) * 4; break;
    }
    t->codes = draw(x, t->s.codes_bytes, codes ? 0xfb : 255);
    draw_scales(t, x, (codes ? up(n, c->extra) : n) * G);
    if (zeros) t->zeros = draw(x, t->s.zeros_bytes = zeros_bytes, 255);
    if (!codes && c->extra) {
        t->g_idx = malloc((size_t)k * sizeof *t->g_idx);
        for (int64_t i = 0; i < k; i++) t->g_idx[i] = (int32_t)(i * 37 % k / g);
    }
}

static struct tensors make(int i)
{
    const struct random_case *c = &cases[i];
    struct tensors t = {.f = CODA_PACK_FORMAT_INIT, .s = CODA_PACK_SOURCE_INIT};
    uint32_t x = (uint32_t)i + 1;
    ck_assert_int_eq(coda_pack_format_find(c->word, &t.f), CODA_OK);
    t.s.kind = c->kind;
    t.s.rows = c->rows;
    t.s.columns = c->columns;
    if (c->kind == CODA_PACK_GGUF) draw_gguf(&t, c->word, &x);
    else draw_tensors(&t, c, &x);
    t.s.codes = t.codes;
    t.s.scales = t.scales;
    t.s.zeros = t.zeros;
    t.s.g_idx = t.g_idx;
    t.packed_bytes = coda_packed_bytes(&t.f, c->rows, c->columns);
    t.packed = malloc((size_t)t.packed_bytes + 16);
    memset(t.packed, 0xa5, (size_t)t.packed_bytes + 16);
    if (t.g_idx) {
        t.order = malloc((size_t)c->columns * sizeof *t.order);
        ck_assert_int_eq(coda_pack_order(&t.f, &t.s, t.order), 1);
        t.s.column_order = t.order;
    }
    return t;
}

static void drop(struct tensors *t)
{
    void *all[] = {t->codes, t->scales, t->zeros, t->g_idx, t->order, t->packed};
    for (int i = 0; i < ARRAY_SIZE(all); i++) free(all[i]);
}

/* In the file's order of columns. */
static float *unpacked(const struct tensors *t)
{
    int64_t k = t->s.columns;
    float *value = malloc((size_t)(t->s.rows * k) * sizeof *value), *row = malloc((size_t)k * sizeof *row);
    for (int64_t r = 0; r < t->s.rows; r++) {
        ck_assert_int_eq(coda_unpack(&t->f, t->packed, t->s.rows, k, r, 0, k, row), CODA_OK);
        for (int64_t i = 0; i < k; i++) value[r * k + (t->order ? t->order[i] : i)] = row[i];
    }
    free(row);
    return value;
}

static void check_digest(const struct tensors *t, const struct random_case *c)
{
    char hex[SHA256_HEX];
    float *value = unpacked(t);
    sha256_hex(hex, value, (size_t)(t->s.rows * t->s.columns) * sizeof *value);
    ck_assert_msg(!strcmp(hex, c->digest), "kind %d, %s, %d x %d: other values: %.9g, %.9g, ..", c->kind,
                  c->word, c->rows, c->columns, value[0], value[1]);
    free(value);
}

START_TEST(values_are_numpys)
{
    struct tensors t = make(_i);
    ck_assert_msg(coda_pack(&t.f, &t.s, 0, t.s.rows, t.packed) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < 16; i++) ck_assert_uint_eq(t.packed[t.packed_bytes + i], 0xa5);
    check_digest(&t, &cases[_i]);
    drop(&t);
}
END_TEST

/* Ranges of rows in any order have the bytes of the whole, at any address. */
START_TEST(ranges_are_the_whole)
{
    struct tensors t = make(_i);
    char *parts = malloc((size_t)t.packed_bytes + 1), *at = parts + 1;
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, t.s.rows, t.packed), CODA_OK);
    for (int64_t first = (t.s.rows - 1) / 16 * 16; first >= 0; first -= 16) {
        int64_t from = first ? coda_packed_bytes(&t.f, first, t.s.columns) : 0;
        ck_assert_int_eq(coda_pack(&t.f, &t.s, first, MIN(16, t.s.rows - first), at + from), CODA_OK);
    }
    ck_assert_mem_eq(at, t.packed, (size_t)t.packed_bytes);
    free(parts);
    drop(&t);
}
END_TEST

/* Rows of the file in another order: the packed matrix has the file's row row_order[i] at i. */
START_TEST(rows_are_reordered)
{
    struct tensors t = make(_i);
    int64_t n = t.s.rows, k = t.s.columns;
    int32_t *rows = malloc((size_t)n * sizeof *rows);
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, n, t.packed), CODA_OK);
    float *straight = unpacked(&t);
    for (int64_t i = 0; i < n; i++) rows[i] = (int32_t)(n - 1 - i);
    t.s.row_order = rows;
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, n, t.packed), CODA_OK);
    float *turned = unpacked(&t);
    for (int64_t i = 0; i < n; i++)
        ck_assert_mem_eq(turned + i * k, straight + (n - 1 - i) * k, (size_t)k * sizeof *turned);
    free(straight);
    free(turned);
    free(rows);
    drop(&t);
}
END_TEST

/* Columns that a group takes in the records: those of the next larger one without gaps. */
static int64_t places_of(int64_t group)
{
    return group > 64 ? up(group, 128) * 128 : group > 32 ? 64 : group > 16 ? 32 : group ? 16 : 0;
}

/* What fills up rows, columns and gaps is 0, all else what it was: a matrix of whole records, unpacked from
 * these bytes, says so. */
START_TEST(what_fills_up_is_0)
{
    struct tensors t = make(_i);
    coda_pack_format whole = t.f;
    int64_t rows = t.s.rows, columns = t.s.columns, group = t.f.group ? t.f.group : columns,
            places = t.f.group ? places_of(group) : columns, n = up(rows, 16) * 16, k = 0,
            wanted = (columns - 1) / group * places + (columns - 1) % group + 1;
    whole.group = t.f.group ? (int32_t)places : 0;
    for (int step = 256; step >= 64; step /= 2)
        if (coda_packed_bytes(&whole, n, k = up(wanted, step) * step) == t.packed_bytes) break;
    ck_assert_int_eq(coda_packed_bytes(&whole, n, k), t.packed_bytes);
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, rows, t.packed), CODA_OK);
    float *row = malloc((size_t)k * sizeof *row), *own = malloc((size_t)columns * sizeof *own);
    for (int64_t r = 0; r < n; r++) {
        ck_assert_int_eq(coda_unpack(&whole, t.packed, n, k, r, 0, k, row), CODA_OK);
        if (r < rows)
            ck_assert_int_eq(coda_unpack(&t.f, t.packed, rows, columns, r, 0, columns, own), CODA_OK);
        for (int64_t i = 0; i < k; i++) {
            int64_t column = i / places * group + i % places;
            bool there = r < rows && i % places < group && column < columns;
            ck_assert(there ? !memcmp(&row[i], &own[column], sizeof *row) : row[i] == 0);
        }
    }
    free(row);
    free(own);
    drop(&t);
}
END_TEST

/* ---- Refusals ---- */

static int case_of(coda_pack_kind kind, const char *word, int extra)
{
    for (int i = 0; i < ARRAY_SIZE(cases); i++)
        if (cases[i].kind == kind && !strcmp(cases[i].word, word) && !cases[i].extra == !extra) return i;
    ck_abort_msg("no case of kind %d, %s", kind, word);
    return 0;
}

static void refuses(struct tensors *t, int64_t first, int64_t rows, const char *says)
{
    ck_assert_int_eq(coda_pack(&t->f, &t->s, first, rows, t->packed), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), says) != NULL, "\"%s\" lacks \"%s\"", coda_error(), says);
}

START_TEST(numbers_that_are_none)
{
    struct tensors t =
        make(case_of(CODA_PACK_CODES, "e4m3_g128_f32", 1)); /* 200 x 300, blocks of 128 x 128 */
    t.codes[150 * 300 + 299] = 0xff;
    refuses(&t, 0, 200, "the code of row 150, column 299 is 0xff");
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, 144, t.packed), CODA_OK);
    t.codes[150 * 300 + 299] = 0;
    memcpy(t.scales + 4 * 5, &(uint32_t){0x7f800000}, 4);
    refuses(&t, 144, 56, "the scale of row 144, group 2 is inf or NaN");
    drop(&t);
    t = make(case_of(CODA_PACK_NIBBLES, "mxfp4", 0)); /* 37 x 352 */
    t.scales[11 * 20 + 9] = 255;
    refuses(&t, 0, 37, "the scale of row 20, group 9 is inf or NaN");
    drop(&t);
    t = make(case_of(CODA_PACK_NIBBLES, "nvfp4", 0));
    t.scales[22 * 36 + 21] = 0xff;
    refuses(&t, 32, 5, "the scale of row 36, group 21 is inf or NaN");
    drop(&t);
    t = make(case_of(CODA_PACK_GGUF, "q4_k", 0)); /* 37 x 768 */
    memset(t.codes + (3 * 35 + 2) * 144 + 2, 0xff, 2);
    refuses(&t, 0, 37, "the minimum of row 35, group 16 is inf or NaN");
    drop(&t);
    t = make(case_of(CODA_PACK_GGUF, "q6_k", 0));
    memset(t.codes + (3 * 4 + 1) * 210 + 208, 0x7f, 2);
    refuses(&t, 0, 37, "the scale of row 4, group 16 is inf or NaN");
    drop(&t);
}
END_TEST

START_TEST(tensors_of_another_size)
{
    struct tensors t = make(case_of(CODA_PACK_GPTQ, "int4_g32_f16_zeros", 0)); /* 40 x 384 */
    t.s.codes_bytes -= 4;
    refuses(&t, 0, 40, "codes has 7676 bytes; CODA_PACK_GPTQ of 40 x 384 as int4_g32_f16_zeros has 7680");
    t.s.codes_bytes += 4;
    t.s.scales_bytes *= 2;
    refuses(&t, 0, 40, "scales has 1920 bytes");
    t.s.scales_bytes /= 2;
    t.s.zeros = NULL;
    refuses(&t, 0, 40, "zeros of CODA_PACK_GPTQ is NULL");
    t.s.zeros = t.zeros;
    t.s.scale_type = CODA_SCALES_F32;
    refuses(&t, 0, 40, "scale_type is 1");
    t.s.scale_type = 0;
    t.s.columns = 380;
    refuses(&t, 0, 40, "380 columns, which 8 does not divide");
    t.s.columns = 384;
    t.s.rows = 36;
    refuses(&t, 0, 36, "36 rows, which 8 does not divide");
    t.s.rows = INT64_MAX;
    refuses(&t, 0, 36, "the source is 9223372036854775807 x 384");
    t.s.rows = 40;
    t.s.kind = (coda_pack_kind)8;
    refuses(&t, 0, 40, "kind is 8");
    t.s.kind = CODA_PACK_GGUF;
    refuses(&t, 0, 40, "CODA_PACK_GGUF as int4_g32_f16_zeros; it is q4_0");
    t.s.kind = CODA_PACK_NIBBLES;
    refuses(&t, 0, 40, "it is e2m1");
    t.s.kind = CODA_PACK_AWQ;
    t.s.block_rows = 128;
    refuses(&t, 0, 40, "block_rows is 128");
    t.s.block_rows = 0;
    t.s.columns = 376;
    refuses(&t, 0, 40, "376 columns, which 32 does not divide");
    drop(&t);
}
END_TEST

START_TEST(rows_out_of_range)
{
    static const int64_t bad[][2] = {{-16, 16}, {0, 38},  {48, 0},        {1, 16},       {0, 17},
                                     {0, -1},   {32, 16}, {INT64_MAX, 1}, {0, INT64_MAX}};
    struct tensors t = make(case_of(CODA_PACK_GGUF, "q8_0", 0)); /* 37 rows */
    for (int i = 0; i < ARRAY_SIZE(bad); i++)
        refuses(&t, bad[i][0], bad[i][1], "of 37; must be multiples of 16");
    int32_t rows[37] = {0};
    t.s.row_order = rows;
    rows[36] = 37;
    refuses(&t, 32, 5, "row_order[36] is 37 of 37 rows");
    rows[36] = -1;
    refuses(&t, 32, 5, "row_order[36] is -1");
    t.s.g_idx = rows;
    refuses(&t, 0, 16, "CODA_PACK_GGUF has no g_idx");
    drop(&t);
}
END_TEST

START_TEST(orders_that_are_none)
{
    struct tensors t = make(case_of(CODA_PACK_GPTQ_V2, "int4_g32_f16_zeros", 1)); /* 24 x 256 */
    int32_t order[256];
    t.s.column_order = NULL;
    refuses(&t, 0, 24, "g_idx[1] is 1, not 0; see coda_pack_order");
    t.s.column_order = t.order;
    t.order[7] = t.order[6];
    refuses(&t, 0, 24, "column_order[7] is");
    t.order[7] = 256;
    refuses(&t, 0, 24, "column_order[7] is 256");
    t.order[7] = -1;
    refuses(&t, 0, 24, "column_order[7] is -1");
    t.g_idx[200] = 8;
    ck_assert_int_eq(coda_pack_order(&t.f, &t.s, order), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "g_idx[200] is 8; must be 0..7"), "%s", coda_error());
    t.g_idx[200] = -1;
    ck_assert_int_eq(coda_pack_order(&t.f, &t.s, order), CODA_E_INVALID);
    t.g_idx[200] = t.g_idx[201];
    ck_assert_int_eq(coda_pack_order(&t.f, &t.s, order), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "columns; must be 32"), "%s", coda_error());
    for (int k = 0; k < 256; k++) t.g_idx[k] = -1;
    ck_assert_int_eq(coda_pack_order(&t.f, &t.s, order), 0);
    for (int k = 0; k < 256; k++) ck_assert_int_eq(order[k], k);
    t.s.column_order = order;
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, 24, t.packed), CODA_OK);
    t.g_idx[3] = 5;
    refuses(&t, 0, 24, "g_idx[3] is 5, not 0, as its place in column_order");
    drop(&t);
}
END_TEST

/* A format without zero points takes a file whose zero points are all the middle, and no other. */
START_TEST(zero_points_that_are_dropped)
{
    struct tensors t = make(case_of(CODA_PACK_GPTQ, "int4_g128_f16_zeros", 0)); /* 40 x 384 */
    float *with, *without;
    memset(t.zeros, 0x77, (size_t)t.s.zeros_bytes);
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, 40, t.packed), CODA_OK);
    with = unpacked(&t);
    t.f.zeros = CODA_ZEROS_NONE;
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, 40, t.packed), CODA_OK);
    without = unpacked(&t);
    ck_assert_mem_eq(with, without, 40 * 384 * sizeof *with);
    t.zeros[20 + 18] = 0x67; /* of group 1: rows 36 and 37 */
    refuses(&t, 0, 40, "the zero point of row 37, group 1 is 7; int4_g128_f16 wants 8 everywhere");
    free(with);
    free(without);
    drop(&t);
}
END_TEST

/* Codes of a byte each, of fewer bits. */
START_TEST(codes_of_4_bits)
{
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_source s = CODA_PACK_SOURCE_INIT;
    int8_t q[3 * 128] = {-8, 7, 3};
    uint16_t scale[3 * 4], minimum[3 * 4], zero = 0x3c00, half = 0x3800; /* 1 and 0.5 */
    uint8_t packed[1024 + 256 + 16];
    float out[3];
    for (int i = 0; i < 12; i++) scale[i] = half, minimum[i] = zero;
    s.kind = CODA_PACK_CODES;
    s.rows = 3;
    s.columns = 128;
    s.codes = q;
    s.codes_bytes = sizeof q;
    s.scales = scale;
    s.scales_bytes = sizeof scale;
    ck_assert_int_eq(coda_pack_format_find("int4_g32_f16", &f), CODA_OK);
    ck_assert_msg(coda_pack(&f, &s, 0, 3, packed) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_unpack(&f, packed, 3, 128, 0, 0, 3, out), CODA_OK);
    ck_assert(out[0] == -4 && out[1] == 3.5f && out[2] == 1.5f);
    q[128 + 77] = 8;
    ck_assert_int_eq(coda_pack(&f, &s, 0, 3, packed), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "row 1, column 77 is 8; int4_g32_f16 has -8..7"), "%s", coda_error());
    q[0] = 15;
    s.zeros = minimum;
    s.zeros_bytes = sizeof minimum;
    f.zeros = CODA_ZEROS_MINIMUM;
    ck_assert_msg(coda_pack(&f, &s, 0, 3, packed) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_unpack(&f, packed, 3, 128, 0, 0, 3, out), CODA_OK);
    ck_assert(out[0] == 8.5f && out[1] == 4.5f && out[2] == 2.5f);
    q[5] = 16;
    ck_assert_int_eq(coda_pack(&f, &s, 0, 3, packed), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "column 5 is 16; int4_g32_f16_min has 0..15"), "%s", coda_error());
    uint8_t points[12] = {[11] = 16};
    q[5] = 0;
    f.zeros = CODA_ZEROS_POINTS;
    s.zeros = points;
    s.zeros_bytes = sizeof points;
    ck_assert_int_eq(coda_pack(&f, &s, 0, 3, packed), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "row 2, group 3 is 16;"), "%s", coda_error());
}
END_TEST

START_TEST(nulls_are_refused)
{
    struct tensors t = make(0);
    int32_t order[448];
    ck_assert_int_eq(coda_pack(NULL, &t.s, 0, 16, t.packed), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack(&t.f, NULL, 0, 16, t.packed), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack(&t.f, &t.s, 0, 16, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack_order(&t.f, &t.s, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack_order(&t.f, NULL, order), CODA_E_INVALID);
    t.s.codes = NULL;
    refuses(&t, 0, 16, "codes of CODA_PACK_GGUF is NULL");
    t.s.codes = t.codes;
    t.s.scales = t.codes;
    refuses(&t, 0, 16, "CODA_PACK_GGUF has no scales");
    drop(&t);
}
END_TEST

TESTS(pack_sizes, EACH(values_are_numpys, ARRAY_SIZE(cases)), EACH(ranges_are_the_whole, ARRAY_SIZE(cases)),
      EACH(rows_are_reordered, ARRAY_SIZE(cases)), SOME(what_fills_up_is_0, ARRAY_SIZE(cases)),
      ONE(numbers_that_are_none), ONE(tensors_of_another_size), ONE(rows_out_of_range),
      ONE(orders_that_are_none), ONE(zero_points_that_are_dropped), ONE(codes_of_4_bits),
      ONE(nulls_are_refused));
