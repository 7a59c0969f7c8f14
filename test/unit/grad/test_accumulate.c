/*
 * test_accumulate.c -- gradients of micro-batches added up by coda_output_add, on the CPU device, beside the
 * softmax's derivative (softmax(z) - onehot(target)) / targets as plain loops in double.
 */
#include "base.h" /* before check.h, which has a macro `fail` */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { WORDS = 23, WIDTH = 12, TOKENS = 512, IGNORED = -1 };

struct data {
    _Alignas(64) float x[TOKENS * WIDTH], w[WORDS * WIDTH];
    _Alignas(64) int32_t target[TOKENS];
    int counted; /* targets that are not ignored */
};

static void draw(struct data *d, uint64_t seed, int ignored_percent)
{
    struct random r = {seed};
    d->counted = 0;
    for (int i = 0; i < TOKENS * WIDTH; i++) d->x[i] = (float)random_normal(&r);
    for (int i = 0; i < WORDS * WIDTH; i++) d->w[i] = (float)random_normal(&r);
    for (int i = 0; i < TOKENS; i++) {
        bool ignored = random_below(&r, 100) < ignored_percent * (1 + (i * 4 / TOKENS)) / 2;
        d->target[i] = ignored ? IGNORED : (int32_t)random_below(&r, WORDS);
        d->counted += !ignored;
    }
}

/* ---- The textbook ---- */

static void add_token(const struct data *d, int token, double *loss, double *dw)
{
    const float *x = d->x + token * WIDTH;
    double z[WORDS], most = -INFINITY, sum = 0;
    if (d->target[token] == IGNORED) return;
    for (int v = 0; v < WORDS; v++) {
        z[v] = 0;
        for (int k = 0; k < WIDTH; k++) z[v] += (double)x[k] * d->w[v * WIDTH + k];
        most = fmax(most, z[v]);
    }
    for (int v = 0; v < WORDS; v++) sum += exp(z[v] - most);
    *loss += (most + log(sum) - z[d->target[token]]) / d->counted;
    for (int v = 0; v < WORDS; v++)
        for (int k = 0; k < WIDTH; k++)
            dw[v * WIDTH + k] += (exp(z[v] - most) / sum - (v == d->target[token])) * x[k] / d->counted;
}

/* ---- The library ---- */

/* The loss of `tokens` tokens, times a scalar `by`; loss and dw are added to what their arguments hold. */
static coda_plan *compile(int tokens)
{
    coda_cross_entropy_options sum = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = coda_graph_new();
    coda_plan *p = NULL;
    sum.reduction = CODA_REDUCE_SUM, sum.ignore_index = IGNORED;
    opt.device = CODA_DEVICE_CPU;
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){tokens, WIDTH}), dw,
               w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){WORDS, WIDTH}),
               target = coda_input(g, "target", CODA_I32, 1, (int64_t[]){tokens});
    coda_value loss = coda_mul(g, coda_cross_entropy(g, coda_matmul(g, x, w), target, &sum),
                               coda_scalar(g, "by", CODA_F32));
    coda_grad(g, &loss, NULL, 1, &w, 1, &dw, NULL);
    coda_output_add(g, "loss", loss);
    coda_output_add(g, "dw", dw);
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
    return p;
}

static void run(int tokens, const float *x, const struct data *d, const int32_t *target, float *loss,
                float *dw)
{
    coda_plan *p = compile(tokens);
    float by = 1.0f / (float)d->counted;
    size_t size = (coda_plan_workspace(p) / 256 + 1) * 256;
    void *work = aligned_alloc(256, size);
    memset(work, 0xff, size);
    void *args[] = {(void *)x, (void *)d->w, (void *)target, &by, loss, dw};
    ck_assert_int_eq(coda_plan_args(p), 6);
    ck_assert_msg(coda_run(p, args, NULL, work, NULL) == CODA_OK, "%s", coda_error());
    free(work);
    coda_plan_free(p);
}

/* Batches end at these tokens. */
static void accumulates(const struct data *d, const int *end, int batches)
{
    double want_loss = 0, want[WORDS * WIDTH] = {0}, off = 0, size = 0;
    _Alignas(64) float loss = 0, dw[WORDS * WIDTH] = {0};
    for (int i = 0; i < TOKENS; i++) add_token(d, i, &want_loss, want);
    for (int b = 0, at = 0; b < batches; at = end[b++])
        run(end[b] - at, d->x + at * WIDTH, d, d->target + at, &loss, dw);
    for (int i = 0; i < WORDS * WIDTH; i++) {
        off += (dw[i] - want[i]) * (dw[i] - want[i]);
        size += want[i] * want[i];
    }
    ck_assert_msg(sqrt(off / size) < 1e-6, "dw of %d batches: %.2e", batches, sqrt(off / size));
    ck_assert_msg(fabs(loss / want_loss - 1) < 1e-6, "loss of %d batches: %.2e", batches,
                  loss / want_loss - 1);
}

START_TEST(of_64_micro_batches)
{
    struct data d;
    int end[64];
    draw(&d, 11, 10);
    for (int b = 0; b < 64; b++) end[b] = (b + 1) * TOKENS / 64;
    accumulates(&d, end, 64);
}
END_TEST

/* One of 4 has no target at all: the scalar is the number of targets of all of them. */
START_TEST(of_unequal_numbers_of_targets)
{
    struct data d;
    draw(&d, 12, 30);
    for (int i = 40; i < 92; i++) d.counted -= d.target[i] != IGNORED, d.target[i] = IGNORED;
    accumulates(&d, (int[]){40, 92, 300, TOKENS}, 4);
    accumulates(&d, (int[]){TOKENS}, 1);
}
END_TEST

TESTS(accumulate, ONE(of_64_micro_batches), ONE(of_unequal_numbers_of_targets));
