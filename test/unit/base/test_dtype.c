/* test_dtype.c -- how many bits, bytes and elements of each type there are, and where counts end. */
#include "base.h"

#include "tests.h" /* last: Check has a macro named fail */

static const struct {
    coda_dtype dtype;
    const char *name;
    int bits;
    bool number, half, index, storage;
} rows[] = {
    {CODA_F32, "f32", 32, true, false, false, false},
    {CODA_BF16, "bf16", 16, true, true, false, false},
    {CODA_F16, "f16", 16, true, true, false, false},
    {CODA_I32, "i32", 32, false, false, true, false},
    {CODA_I64, "i64", 64, false, false, true, false},
    {CODA_F8E4M3, "f8e4m3", 8, false, false, false, true},
    {CODA_F8E5M2, "f8e5m2", 8, false, false, false, true},
    {CODA_I8, "i8", 8, false, false, false, true},
    {CODA_U8, "u8", 8, false, false, false, true},
};

START_TEST(as_the_header_says)
{
    coda_dtype t = rows[_i].dtype, found;
    int64_t size = rows[_i].bits / 8, most = INT64_MAX / size;
    ck_assert_str_eq(dtype_name(t), rows[_i].name);
    ck_assert(dtype_find(rows[_i].name, &found) && found == t);
    ck_assert_int_eq(dtype_bits(t), rows[_i].bits);
    ck_assert(dtype_is_float(t) == rows[_i].number && dtype_is_half(t) == rows[_i].half);
    ck_assert(dtype_is_index(t) == rows[_i].index && dtype_is_storage(t) == rows[_i].storage);
    ck_assert_int_eq(dtype_bytes(t, 0), 0);
    ck_assert_int_eq(dtype_bytes(t, 7), 7 * size);
    ck_assert_int_eq(dtype_bytes(t, most), most * size);
    ck_assert_int_eq(dtype_elements(t, 7 * size), 7);
    ck_assert_int_eq(dtype_elements(t, 8 * size - 1), 7);
    if (size > 1) ck_assert_int_eq(dtype_bytes(t, most + 1), INT64_MAX);
}
END_TEST

START_TEST(no_dtype)
{
    static const int none[] = {0, -1, 10, INT32_MIN, INT32_MAX};
    coda_dtype t = (coda_dtype)none[_i], found;
    ck_assert(!dtype_bits(t) && !dtype_bytes(t, 5) && !dtype_elements(t, 5));
    ck_assert_str_eq(dtype_name(t), "?");
    ck_assert(!dtype_is_float(t) && !dtype_is_half(t) && !dtype_is_index(t) && !dtype_is_storage(t));
    ck_assert(!dtype_find("?", &found) && !dtype_find("f64", &found) && !dtype_find("", &found));
}
END_TEST

TESTS(dtype, EACH(as_the_header_says, ARRAY_SIZE(rows)), EACH(no_dtype, 5));
