/*
 * test_exact.c -- coda_evaluate in full fp64: what follows from a shape is not rounded to fp32 on the way, in
 * the caller's graph and in the one that was rewritten.
 *
 * Expected are the operations' textbook formulas in long double (64 bits of mantissa), with loops of this
 * file. Sizes whose reciprocals and roots no float has. A sum of 4,096 in fp64 may be off by 4.5e-13.
 */
#include "graph.h"
#include "rewrite.h"
#include "util_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static graph *rewritten(const graph *g)
{
    struct rewrite_log log = {0};
    graph *r = rewrite(g, &(struct rewrite_options){.fuse = true}, &log);
    rewrite_log_free(&log);
    return r;
}

#include "tests.h" /* last: Check has a macro named fail */

enum { ROWS = 3, MOST = 4096, HEADS = 2 };

static float x[ROWS * MOST], k[ROWS * MOST], v[ROWS * MOST];
static double got[ROWS * MOST];
static long double want[ROWS * MOST];

static void fill(void)
{
    struct random r = {7};
    for (int i = 0; i < ROWS * MOST; i++) {
        x[i] = (float)random_normal(&r), k[i] = (float)random_normal(&r), v[i] = (float)random_normal(&r);
    }
}

static void expect_rewritten(const char *text, void **args, int64_t n, bool again)
{
    graph *g = graph_parse(text), *r;
    ck_assert_msg(g != NULL, "%s", coda_error());
    r = again ? rewritten(g) : g;
    ck_assert_msg(coda_evaluate(r, args) == CODA_OK, "%s", coda_error());
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabsl((long double)got[i] - want[i]) <= 2e-13L * fmaxl(fabsl(want[i]), 1),
                      "%s[%d] is %.17g, must be %.17Lg, off by %.2Lg; rewritten %d", text, (int)i, got[i],
                      want[i], (long double)got[i] / want[i] - 1, again);
    if (again) graph_free(r);
    graph_free(g);
}

/* format: the columns. */
static void expect(const char *format, int columns, void **args, int64_t n)
{
    char text[1024];
    snprintf(text, sizeof text, format, columns, columns, columns);
    expect_rewritten(text, args, n, false);
    expect_rewritten(text, args, n, true);
}

static const int sizes[] = {1, 3, 7, 10, 48, 100, 768, 1000, 3000, 4095};

static void want_norm(int n, bool layer, long double eps)
{
    for (int r = 0; r < ROWS; r++) {
        const float *row = x + r * n;
        long double mean = 0, square = 0;
        for (int c = 0; layer && c < n; c++) mean += (long double)row[c] / n;
        for (int c = 0; c < n; c++) square += (row[c] - mean) * (row[c] - mean);
        for (int c = 0; c < n; c++) want[r * n + c] = (row[c] - mean) / sqrtl(square / n + eps);
    }
}

START_TEST(norms)
{
    int n = sizes[_i];
    fill();
    want_norm(n, false, (long double)1e-5f);
    expect("%%x = input f32[3,%d]\n%%y = rms_norm %%x {eps=1e-5}\noutput %%y = %%y\n", n, (void *[]){x, got},
           ROWS * n);
    if (n == 1) return; /* 0 / sqrt(eps) */
    want_norm(n, true, 0);
    expect("%%x = input f32[3,%d]\n%%y = layer_norm %%x\noutput %%y = %%y\n", n, (void *[]){x, got},
           ROWS * n);
}
END_TEST

static void want_softmax(long double *s, int n)
{
    long double most = s[0], sum = 0;
    for (int i = 1; i < n; i++) most = fmaxl(most, s[i]);
    for (int i = 0; i < n; i++) sum += s[i] = expl(s[i] - most);
    for (int i = 0; i < n; i++) s[i] /= sum;
}

START_TEST(softmaxes)
{
    int n = sizes[_i];
    fill();
    for (int i = 0; i < ROWS * n; i++) want[i] = x[i];
    for (int r = 0; r < ROWS; r++) want_softmax(want + r * n, n);
    expect("%%x = input f32[3,%d]\n%%y = softmax %%x\noutput %%y = %%y\n", n, (void *[]){x, got}, ROWS * n);
    for (int i = 0; i < ROWS * n; i++) want[i] = logl(want[i]);
    expect("%%x = input f32[3,%d]\n%%y = log_softmax %%x\noutput %%y = %%y\n", n, (void *[]){x, got},
           ROWS * n);
}
END_TEST

/* The usual scale, 1 / sqrt(columns of a head). */
START_TEST(attention)
{
    int d = sizes[_i], n = HEADS * d;
    if (n > MOST) return;
    fill();
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < ROWS; r++) {
            long double s[ROWS] = {0};
            for (int j = 0; j < ROWS; j++) {
                for (int c = h * d; c < h * d + d; c++) s[j] += (long double)x[r * n + c] * k[j * n + c];
                s[j] /= sqrtl(d);
            }
            want_softmax(s, ROWS);
            for (int c = h * d; c < h * d + d; c++) {
                want[r * n + c] = 0;
                for (int j = 0; j < ROWS; j++) want[r * n + c] += s[j] * v[j * n + c];
            }
        }
    expect(
        "%%q = input f32[3,%d]\n%%k = input f32[3,%d]\n%%v = input f32[3,%d]\n%%y = attention %%q, %%k, %%v "
        "{heads=2}\noutput %%y = %%y\n",
        n, (void *[]){x, k, v, got}, ROWS * n);
}
END_TEST

START_TEST(rope)
{
    int n = 2 * sizes[_i];
    if (n > MOST) return;
    fill();
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < n / 2; i++) {
            long double t = r * powl(10000, -2.0L * i / n), a = x[r * n + 2 * i], b = x[r * n + 2 * i + 1];
            want[r * n + 2 * i] = a * cosl(t) - b * sinl(t);
            want[r * n + 2 * i + 1] = a * sinl(t) + b * cosl(t);
        }
    expect("%%x = input f32[3,%d]\n%%y = rope %%x {base=10000}\noutput %%y = %%y\n", n, (void *[]){x, got},
           ROWS * n);
}
END_TEST

START_TEST(means)
{
    int n = sizes[_i];
    fill();
    for (int r = 0; r < ROWS; r++) {
        want[r] = 0;
        for (int c = 0; c < n; c++) want[r] += (long double)x[r * n + c] / n;
    }
    expect("%%x = input f32[3,%d]\n%%y = mean %%x\noutput %%y = %%y\n", n, (void *[]){x, got}, ROWS);
}
END_TEST

/* The mean over rows that have a target; the first has none. */
START_TEST(loss)
{
    int n = sizes[_i];
    int32_t target[ROWS] = {-100, n / 2, n - 1};
    fill();
    want[0] = 0;
    for (int r = 1; r < ROWS; r++) {
        long double p[MOST];
        for (int c = 0; c < n; c++) p[c] = x[r * n + c];
        want_softmax(p, n);
        want[0] -= logl(p[target[r]]) / 2;
    }
    expect(
        "%%x = input f32[3,%d]\n%%t = input i32[3]\n%%y = cross_entropy %%x, %%t {ignore=-100, reduction=1}\n"
        "output %%y = %%y\n",
        n, (void *[]){x, target, got}, 1);
}
END_TEST

TESTS(exact, EACH(norms, ARRAY_SIZE(sizes)), EACH(softmaxes, ARRAY_SIZE(sizes)),
      EACH(attention, ARRAY_SIZE(sizes)), EACH(rope, ARRAY_SIZE(sizes)), EACH(means, ARRAY_SIZE(sizes)),
      EACH(loss, ARRAY_SIZE(sizes)));
