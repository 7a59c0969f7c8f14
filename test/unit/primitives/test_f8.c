/* test_f8.c -- e4m3 on the host and in types.cuh, against the values that its fields mean: every byte, and of
 * other numbers the nearest, by search. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <float.h>
#include <math.h>
#include <string.h>

#include "shim/shim.h"
#include "util_random.h"

#define F8 CODA_F8E4M3

enum { NAN_BYTE = 0x7f, LARGEST = 0x7e };

/* Sign, exponent with a bias of 7, eighths; no infinity. */
static double meaning(int byte)
{
    int exponent = (byte & 0x78) / 8, eighths = byte & 7;
    double size = exponent ? (1 + eighths / 8.0) * pow(2, exponent - 7) : eighths / 8.0 * pow(2, -6);
    if ((byte & 0x7f) == NAN_BYTE) return NAN;
    return byte & 0x80 ? -size : size;
}

/* The byte of the nearest value, of two the even one; at most the largest. */
static int nearest(double x)
{
    int best = 0;
    if (isnan(x)) return NAN_BYTE;
    for (int b = 1; b <= LARGEST; b++) {
        double d = fabs(meaning(b) - fabs(x)), least = fabs(meaning(best) - fabs(x));
        if (d < least || (d == least && b % 2 == 0)) best = b;
    }
    if (fabs(x) > 448) best = LARGEST;
    return best | (signbit(x) ? 0x80 : 0);
}

START_TEST(every_byte_has_its_value)
{
    unsigned char bytes[256 + 8];
    for (int b = 0; b < 256; b++) bytes[b] = (unsigned char)b;
    for (int b = 0; b < 256; b += 8) {
        float x[8], y[8];
        shim_load(F8, SHIM_PIECE, x, bytes + b, 1, 8);
        shim_load(F8, SHIM_PAIRS, y, bytes + b, 1, 8);
        for (int i = 0; i < 8; i++) {
            double want = meaning(b + i), host = dtype_load(F8, bytes, b + i);
            bool good = isnan(want) ? isnan(x[i]) && isnan(y[i]) && isnan(host)
                                    : x[i] == want && y[i] == want && host == want;
            ck_assert_msg(good && (isnan(want) || !signbit(x[i]) == !signbit(want)), "0x%02x is %g, not %g",
                          b + i, (double)x[i], want);
        }
    }
}
END_TEST

static void check(float value)
{
    unsigned char host, at[8], pairs[8];
    float x[8];
    for (int i = 0; i < 8; i++) x[i] = i % 2 ? value : -value;
    int even = nearest(x[0]), odd = nearest(x[1]);
    dtype_store(F8, &host, 0, value);
    shim_store(F8, SHIM_AT, at, x, 1, 8);
    shim_store(F8, SHIM_PAIRS, pairs, x, 1, 8);
    ck_assert_msg(host == odd, "%a is stored as 0x%02x, not 0x%02x", (double)value, host, odd);
    for (int i = 0; i < 8; i++) {
        int want = i % 2 ? odd : even;
        ck_assert_msg(at[i] == want && pairs[i] == want, "%a becomes 0x%02x and 0x%02x, not 0x%02x",
                      (double)x[i], at[i], pairs[i], want);
    }
}

/* What lies between two values, half-way and next to that; and any number. */
START_TEST(numbers_become_the_nearest)
{
    struct random r = {random_seed()};
    for (int b = 0; b < LARGEST; b++) {
        float low = (float)meaning(b), middle = (float)((meaning(b) + meaning(b + 1)) / 2);
        check(low), check(middle);
        check(nextafterf(middle, 0)), check(nextafterf(middle, 1000));
    }
    static const float special[] = {448,      449, 464,    480,    1e9f,    FLT_MAX,
                                    INFINITY, NAN, 1e-10f, 1e-42f, 0x1p-10f};
    for (int i = 0; i < ARRAY_SIZE(special); i++) check(special[i]);
    for (int i = 0; i < 20000; i++) check((float)ldexp(random_normal(&r), (int)random_below(&r, 24) - 14));
}
END_TEST

/* From doubles at once: a float on the way would round twice. */
START_TEST(doubles_are_rounded_once)
{
    unsigned char b;
    dtype_store(F8, &b, 0, 1.0625 + 0x1p-40);
    ck_assert_int_eq(b, nearest(1.125));
    dtype_store(F8, &b, 0, 1.0625);
    ck_assert_int_eq(b, nearest(1));
}
END_TEST

TESTS(f8, ONE(every_byte_has_its_value), ONE(numbers_become_the_nearest), ONE(doubles_are_rounded_once));
