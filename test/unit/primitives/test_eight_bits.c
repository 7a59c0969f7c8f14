/* test_eight_bits.c -- types of 8 bits on the host and in types.cuh, against what their fields mean:
 * every byte, and of other numbers the nearest, by search; integers truncate and saturate. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <float.h>
#include <math.h>
#include <string.h>

#include "shim/shim.h"
#include "util_random.h"

/* Sign, exponent, mantissa of so many bits; bytes above `largest` are infinity, if there is one, and NaN. */
struct layout {
    int mantissa, bias, largest, infinity, nan;
};
static const struct layout e4m3 = {3, 7, 0x7e, -1, 0x7f}, e5m2 = {2, 15, 0x7b, 0x7c, 0x7e};

static const struct kind {
    const char *name;
    coda_dtype dtype;
    const struct layout *layout; /* NULL: an integer, of this range */
    int least, most;
} kinds[] = {{"e4m3", CODA_F8E4M3, &e4m3, 0, 0},
             {"e5m2", CODA_F8E5M2, &e5m2, 0, 0},
             {"i8", CODA_I8, NULL, -128, 127},
             {"u8", CODA_U8, NULL, 0, 255}};

static double meaning(const struct kind *k, int byte)
{
    const struct layout *l = k->layout;
    if (!l) return k->least && byte > 127 ? byte - 256 : byte;
    int size = byte & 0x7f, exponent = size >> l->mantissa, parts = 1 << l->mantissa;
    double fraction = (double)(size % parts) / parts;
    double x = exponent ? (1 + fraction) * pow(2, exponent - l->bias) : fraction * pow(2, 1 - l->bias);
    if (size > l->largest) x = size == l->infinity ? INFINITY : NAN;
    return byte & 0x80 ? -x : x;
}

/* The byte of the nearest value, of two the even one. Beyond the largest it is that, or infinity from where
 * the next value would be nearer. */
static int nearest(const struct kind *k, double x)
{
    const struct layout *l = k->layout;
    if (!l) return isnan(x) ? 0 : (int)fmax(k->least, fmin(k->most, trunc(x))) & 0xff;
    int best = 0, sign = signbit(x) ? 0x80 : 0;
    if (isnan(x)) return l->infinity < 0 ? l->nan : sign | l->nan;
    for (int b = 1; b <= l->largest; b++) {
        double d = fabs(meaning(k, b) - fabs(x)), least = fabs(meaning(k, best) - fabs(x));
        if (d < least || (d == least && b % 2 == 0)) best = b;
    }
    double last = meaning(k, l->largest), before = meaning(k, l->largest - 1);
    bool beyond = l->infinity >= 0 && fabs(x) >= last + (last - before) / 2;
    return sign | (beyond ? l->infinity : best);
}

START_TEST(every_byte_has_its_value)
{
    const struct kind *k = &kinds[_i];
    _Alignas(16) unsigned char bytes[256 + 8];
    for (int b = 0; b < 256; b++) bytes[b] = (unsigned char)b;
    for (int b = 0; b < 256; b += 8) {
        float x[8], y[8];
        shim_load((int)k->dtype, SHIM_PIECE, x, bytes + b, 1, 8);
        shim_load((int)k->dtype, SHIM_PAIRS, y, bytes + b, 1, 8);
        for (int i = 0; i < 8; i++) {
            double want = meaning(k, b + i), host = dtype_load(k->dtype, bytes, b + i);
            bool good = isnan(want) ? isnan(x[i]) && isnan(y[i]) && isnan(host)
                                    : x[i] == want && y[i] == want && host == want;
            ck_assert_msg(good && (isnan(want) || !signbit(x[i]) == !signbit(want)),
                          "%s: 0x%02x is %g, not %g", k->name, b + i, (double)x[i], want);
        }
    }
}
END_TEST

static void check(const struct kind *k, float value)
{
    _Alignas(16) unsigned char at[8], pairs[8], host;
    float x[8];
    for (int i = 0; i < 8; i++) x[i] = i % 2 ? value : -value;
    int even = nearest(k, x[0]), odd = nearest(k, x[1]);
    dtype_store(k->dtype, &host, 0, value);
    shim_store((int)k->dtype, SHIM_AT, at, x, 1, 8);
    shim_store((int)k->dtype, SHIM_PAIRS, pairs, x, 1, 8);
    ck_assert_msg(host == odd, "%s: %a is stored as 0x%02x, not 0x%02x", k->name, (double)value, host, odd);
    for (int i = 0; i < 8; i++) {
        int want = i % 2 ? odd : even;
        ck_assert_msg(at[i] == want && pairs[i] == want, "%s: %a becomes 0x%02x and 0x%02x, not 0x%02x",
                      k->name, (double)x[i], at[i], pairs[i], want);
    }
}

/* What lies between two values, half-way and next to that; and any number. */
START_TEST(numbers_become_the_nearest)
{
    const struct kind *k = &kinds[_i];
    struct random r = {random_seed()};
    for (int b = 0; b < (k->layout ? k->layout->largest : k->most); b++) {
        float low = (float)meaning(k, b), middle = (float)((meaning(k, b) + meaning(k, b + 1)) / 2);
        check(k, low), check(k, middle);
        check(k, nextafterf(middle, 0)), check(k, nextafterf(middle, 1000));
    }
    static const float special[] = {448,   449,      464,      480,      1e9f,     FLT_MAX, INFINITY,
                                    NAN,   1e-10f,   1e-42f,   127.5,    128,      255.5,   256,
                                    57344, 61439,    61440,    61441,    0x1p-10f, 1e5f,    65536,
                                    0.99f, 0x1p-17f, 0x1p-16f, 0x1p-14f, 1e-5f};
    for (int i = 0; i < ARRAY_SIZE(special); i++) check(k, special[i]);
    for (int i = 0; i < 20000; i++) check(k, (float)ldexp(random_normal(&r), (int)random_below(&r, 34) - 17));
}
END_TEST

/* From doubles at once: a float on the way would round twice. */
START_TEST(doubles_are_rounded_once)
{
    const struct kind *k = &kinds[_i];
    double half = 1 + 0.5 / (1 << k->layout->mantissa);
    unsigned char b;
    dtype_store(k->dtype, &b, 0, half + 0x1p-40);
    ck_assert_int_eq(b, nearest(k, 2 * half - 1));
    dtype_store(k->dtype, &b, 0, half);
    ck_assert_int_eq(b, nearest(k, 1));
}
END_TEST

TESTS(eight_bits, EACH(every_byte_has_its_value, ARRAY_SIZE(kinds)),
      EACH(numbers_become_the_nearest, ARRAY_SIZE(kinds)), EACH(doubles_are_rounded_once, 2));
