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

/* What tiles have left of a row, some of them nothing, and one tile far from the others: as Chan, Golub and
 * LeVeque add up M2 about the mean of all, in fp64. */
START_TEST(states_of_tiles)
{
    struct random r = {random_seed()};
    for (int again = 0; again < 3000; again++) {
        float s[20][3], out[2];
        int tiles = 1 + again % ARRAY_SIZE(s), far = again % 23;
        double n = 0, sum = 0, squares = 0, reach = 0, about = again % 7 ? ldexp(1, again % 12) : 0;
        for (int i = 0; i < tiles; i++) {
            s[i][0] = (float)(again % 5 == 1 && i % 3 != 1 ? 0 : 1 + random_below(&r, 64));
            s[i][1] = s[i][0] > 0 ? (float)(about + random_normal(&r) * (i == far ? 1e4 : 1)) : 0;
            s[i][2] = s[i][0] > 1 ? s[i][0] * (float)fabs(random_normal(&r)) : 0;
            n += s[i][0], sum += (double)s[i][0] * s[i][1];
        }
        double mean = n > 0 ? sum / n : 0;
        for (int i = 0; i < tiles; i++) {
            double d = s[i][0] > 0 ? s[i][1] - mean : 0;
            squares += s[i][2] + s[i][0] * d * d, reach = fmax(reach, fabs(d));
        }
        shim_join_tiles(out, s[0], tiles);
        ck_assert_msg(fabs(out[0] - mean) <= 0x1p-21 * (fabs(mean) + 4 * reach), "%d tiles: mean %g, not %g",
                      tiles, out[0], mean);
        double rounded = 0x1p-22 * fabs(mean) * sqrt(n * squares); /* means are fp32 */
        ck_assert_msg(fabs(out[1] - squares) <= 0x1p-18 * squares + 4 * rounded, "%d tiles: M2 %g, not %g",
                      tiles, out[1], squares);
        for (int i = 0; i < tiles; i++) s[i][1] = 1.1f, s[i][2] = 0; /* equal columns */
        shim_join_tiles(out, s[0], tiles);
        ck_assert(n == 0 || (out[0] == 1.1f && out[1] == 0) || s[0][0] == 0);
    }
}
END_TEST

TESTS(layer_norm, ONE(large_means), ONE(equal_columns), ONE(states_of_tiles));
