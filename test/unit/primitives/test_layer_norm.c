/*
 * test_layer_norm.c -- what coda.h says of layer_norm's error where the mean is large: kernels keep the mean
 * in fp32, so a result is off by some 2^-22 |mean| / deviation.
 *
 * The device's code of m2 and mean, on the host, against two passes in fp64 over the same floats.
 */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <string.h>

#include "shim/shim.h"
#include "util_random.h"

enum { MOST = 4096, LANES = 32 };

static const struct shim_reduce *reduction(const char *name)
{
    const struct shim_reduce *r = shim_reduces;
    while (strcmp(r->name, name) != 0) r++;
    return r;
}

/* As the lanes of a warp read a row, and merge in pairs. */
static float reduce(const char *name, const float *x, int n)
{
    const struct shim_reduce *r = reduction(name);
    float s[LANES][8];
    for (int k = 0; k < LANES; k++) r->init(s[k]);
    for (int c = 0; c < n; c++) r->push(s[c % LANES], x[c], c, 0);
    for (int d = LANES / 2; d; d /= 2)
        for (int k = 0; k < d; k++) r->merge(s[k], s[k + d]);
    return r->finish(s[0]);
}

/* The largest error of a row's results, and the bound of coda.h, which says "some", with what fp32 rounds
 * besides: the worst of 1000 runs was 1.45 of it. */
static void expect_bound(const float *x, int n, double magnitude)
{
    float mean = reduce("mean", x, n), factor = 1.0f / sqrtf(reduce("m2", x, n) / (float)n);
    double right = 0, square = 0;
    for (int c = 0; c < n; c++) right += x[c] / (double)n;
    for (int c = 0; c < n; c++) square += (x[c] - right) * (x[c] - right);
    double deviation = sqrt(square / n), most = 0, largest = 0;
    if (deviation < 0.25) return; /* the floats around this mean are all one */
    for (int c = 0; c < n; c++) {
        double want = (x[c] - right) / deviation;
        most = fmax(most, fabs((double)((x[c] - mean) * factor) - want));
        largest = fmax(largest, fabs(want));
    }
    double bound = 2 * 0x1p-22 * fabs(right) / deviation + 0x1p-19 * largest;
    ck_assert_msg(most <= bound, "%d columns about %g, deviation %g: off by %.3g, more than %.3g", n,
                  magnitude, deviation, most, bound);
}

START_TEST(large_means)
{
    static const int sizes[] = {2, 7, 64, 1000, MOST};
    static float x[MOST];
    struct random r = {random_seed()};
    for (int power = -4; power <= 30; power++)
        for (int s = 0; s < ARRAY_SIZE(sizes); s++)
            for (int again = 0; again < 3; again++) {
                double magnitude = ldexp(again == 1 ? -1.37 : 1, power);
                for (int c = 0; c < sizes[s]; c++) x[c] = (float)(magnitude + random_normal(&r));
                expect_bound(x, sizes[s], magnitude);
            }
}
END_TEST

/* Equal columns are their mean, and nothing is left of them. */
START_TEST(equal_columns)
{
    static float x[1000];
    for (int power = -100; power <= 120; power++) {
        for (int c = 0; c < ARRAY_SIZE(x); c++) x[c] = ldexpf(1.1f, power);
        ck_assert(reduce("mean", x, ARRAY_SIZE(x)) == x[0] && reduce("m2", x, ARRAY_SIZE(x)) == 0);
    }
}
END_TEST

TESTS(layer_norm, ONE(large_means), ONE(equal_columns));
