/* test_pack_calls.c -- the calls of coda_quant.h refuse what is wrong in one line. */
#include "base.h"

#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static coda_pack_format q4_k(void)
{
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    ck_assert_int_eq(coda_pack_format_find("q4_k", &f), CODA_OK);
    return f;
}

START_TEST(format_by_word)
{
    coda_pack_format f = q4_k(), bad = CODA_PACK_FORMAT_INIT;
    char word[8] = "xxxxxxx";
    ck_assert_int_eq(f.codes, CODA_CODES_INT4);
    ck_assert_int_eq(f.scales, CODA_SCALES_F16_U6);
    ck_assert_int_eq(f.zeros, CODA_ZEROS_MINIMUM);
    ck_assert_int_eq(f.group, 32);
    ck_assert_int_eq(coda_pack_format_print(&f, word, 3), 4);
    ck_assert_str_eq(word, "q4");
    ck_assert_int_eq(coda_pack_format_print(&f, NULL, 0), 4);
    ck_assert_int_eq(coda_pack_format_print(&f, NULL, 5), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack_format_print(&bad, word, 8), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack_format_print(NULL, word, 8), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack_format_find(NULL, &f), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack_format_find("q4_k", NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_pack_format_find("q9_k", &f), CODA_E_INVALID);
    ck_assert_int_eq(f.group, 32); /* as it was */
}
END_TEST

START_TEST(bytes_of_a_matrix)
{
    coda_pack_format f = q4_k();
    ck_assert_int_eq(coda_packed_bytes(&f, 4096, 11008), 4096ll * 11008 / 256 * 144);
    ck_assert_int_eq(coda_packed_bytes(&f, 0, 256), CODA_E_INVALID);
    ck_assert(strstr(coda_error(), "0 x 256") != NULL);
    ck_assert_int_eq(coda_packed_bytes(&f, 16, -1), CODA_E_INVALID);
    ck_assert_int_eq(coda_packed_bytes(&f, INT64_MAX, INT64_MAX), CODA_E_INVALID);
    ck_assert(strstr(coda_error(), "q4_k are more than 2^63 bytes") != NULL);
    f.group = 3;
    ck_assert_int_eq(coda_packed_bytes(&f, 16, 256), CODA_E_INVALID);
    ck_assert(strstr(coda_error(), "group is 3;") != NULL);
}
END_TEST

START_TEST(unpack_stays_inside)
{
    static const struct {
        int64_t row, k0, n;
        bool good;
    } ranges[] = {{16, 0, 300, true}, {16, 299, 1, true},       {0, 300, 0, true},       {17, 0, 1, false},
                  {-1, 0, 1, false},  {0, 1, 300, false},       {0, -1, 2, false},       {0, 301, 0, false},
                  {0, 0, -1, false},  {0, INT64_MAX, 1, false}, {0, 1, INT64_MAX, false}};
    coda_pack_format f = q4_k();
    static uint8_t packed[2 * 2 * 2304];
    float out[300];
    for (int i = 0; i < ARRAY_SIZE(ranges); i++)
        ck_assert_int_eq(coda_unpack(&f, packed, 17, 300, ranges[i].row, ranges[i].k0, ranges[i].n, out),
                         ranges[i].good ? CODA_OK : CODA_E_INVALID);
    ck_assert_int_eq(coda_unpack(&f, NULL, 17, 300, 0, 0, 1, out), CODA_E_INVALID);
    ck_assert_int_eq(coda_unpack(&f, packed, 17, 300, 0, 0, 1, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_unpack(NULL, packed, 17, 300, 0, 0, 1, out), CODA_E_INVALID);
}
END_TEST

TESTS(pack_calls, ONE(format_by_word), ONE(bytes_of_a_matrix), ONE(unpack_stays_inside));
