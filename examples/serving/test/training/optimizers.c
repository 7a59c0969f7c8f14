/*
 * optimizers.c -- steps over flat memory against loops in double.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "train_schedule.h"
#include "train_test.h"

struct reference {
    double *p, *m, *v;
};

static double norm_of(const float *g, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    return sqrt(sum);
}

/* Loshchilov & Hutter, arXiv 1711.05101, algorithm 2, in the order of PyTorch's documentation. */
static void adamw(struct reference *r, const float *g, int64_t from, int64_t to, double factor, int64_t step,
                  double rate, double decay)
{
    for (int64_t i = from; i < to; i++) {
        double grad = (double)g[i] * factor;
        r->m[i] = BETA_M * r->m[i] + (1 - BETA_M) * grad;
        r->v[i] = BETA_V * r->v[i] + (1 - BETA_V) * grad * grad;
        double m = r->m[i] / (1 - pow(BETA_M, (double)step)), v = r->v[i] / (1 - pow(BETA_V, (double)step));
        r->p[i] -= rate * decay * r->p[i] + rate * m / (sqrt(v) + 1e-8);
    }
}

/* c = a b^T if `turned`, else a b, of [n, k] and [m, k] or [k, m]. */
static void product(const double *a, const double *b, int64_t n, int64_t k, int64_t m, bool turned, double *c)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * (turned ? b[j * k + l] : b[l * m + j]);
            c[i * m + j] = sum;
        }
}

/* Five steps of x <- a x + (b x x^T + c (x x^T)^2) x, of the wide one of x and its transpose. */
static void orthogonal(double *x, int64_t rows, int64_t columns)
{
    int64_t n = rows < columns ? rows : columns, m = rows < columns ? columns : rows;
    double *w = malloc(sizeof *w * (size_t)(2 * n * m + 2 * n * n)), *y = w + n * m, *s = y + n * m,
           *t = s + n * n;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) w[rows > columns ? k * m + i : i * m + k] = x[i * columns + k];
    for (int step = 0; step < 5; step++) {
        product(w, w, n, m, n, true, s);
        product(s, s, n, n, n, false, t);
        for (int64_t i = 0; i < n * n; i++) s[i] = -4.7750 * s[i] + 2.0315 * t[i];
        product(s, w, n, n, m, false, y);
        for (int64_t i = 0; i < n * m; i++) w[i] = 3.4445 * w[i] + y[i];
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) x[i * columns + k] = w[rows > columns ? k * m + i : i * m + k];
    free(w);
}

/* Of one matrix: the words of kellerjordan.github.io/posts/muon, and a move's size of arXiv 2502.16982. */
static void muon(struct reference *r, const float *g, int64_t first, int64_t rows, int64_t columns,
                 double factor, double rate, double decay)
{
    int64_t n = rows * columns;
    double *x = malloc(sizeof *x * (size_t)n), size = 0;
    for (int64_t i = 0; i < n; i++) {
        double grad = (double)g[first + i] * factor;
        r->m[first + i] = MOMENTUM * r->m[first + i] + grad;
        x[i] = grad + MOMENTUM * r->m[first + i];
        size += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++) x[i] /= sqrt(size) + 1e-7;
    orthogonal(x, rows, columns);
    double scale = 0.2 * sqrt((double)(rows > columns ? rows : columns));
    for (int64_t i = 0; i < n; i++) r->p[first + i] -= rate * (scale * x[i] + decay * r->p[first + i]);
    free(x);
}

static void muons(const struct bench *b, struct reference *r, double factor, double rate)
{
    const struct parameters *p = &b->engine.params;
    for (int i = 0; i < p->n; i++) {
        const struct weight *w = p->all[i].w;
        int64_t first = p->all[i].first;
        for (int k = 0; p->all[i].group == GROUP_MUON && k < w->stored_count; k++) {
            muon(r, (const float *)p->g, first, w->rows[k], w->columns, factor, rate, b->engine.how.decay);
            first += w->rows[k] * w->columns;
        }
    }
}

static double *doubles(const char *from, int64_t n)
{
    double *to = calloc((size_t)n + 1, sizeof *to);
    for (int64_t i = 0; i < n; i++) to[i] = (double)((const float *)from)[i];
    return to;
}

static double off(const char *got, const double *wanted, int64_t n)
{
    double difference = 0, size = 1e-300;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)((const float *)got)[i] - wanted[i];
        difference += d * d;
        size += wanted[i] * wanted[i];
    }
    return sqrt(difference / size);
}

static void step(struct bench *b, struct reference *r, int64_t step_number, double size, uint64_t *seed)
{
    static const double rate = 0.01;
    struct parameters *p = &b->engine.params;
    const struct schedule s = {.rate = rate, .warmup = 1, .steps = 1};
    struct rates rates = schedule_rates(&s, step_number);
    struct fault f = {{0}};
    struct result result = {.norm = NAN};
    rates.rate = (float)rate;
    CHECK(engine_begin(&b->engine, 1, &rates, &f), "%s", f.text);
    for (int64_t i = 0; i < p->count; i++) ((float *)p->g)[i] = (float)(normal(seed) * size);
    double wanted = norm_of((float *)p->g, p->count), clip = fmin(1, b->engine.how.clip / wanted);
    adamw(r, (float *)p->g, 0, p->begin[GROUP_TABLE], clip, step_number, rate, 0);
    adamw(r, (float *)p->g, p->begin[GROUP_TABLE], p->begin[GROUP_MUON], clip, step_number, rate,
          b->engine.how.decay);
    muons(b, r, clip, rate);
    CHECK(engine_improve(&b->engine, &f) && engine_result(&b->engine, &result, &f), "%s", f.text);
    CHECK(fabs(result.norm - wanted) <= 1e-6 * wanted, "a norm of %.9g, not %.9g", result.norm, wanted);
}

/* A gradient that is not finite changes nothing. */
static void skip(struct bench *b, float bad)
{
    struct parameters *p = &b->engine.params;
    size_t bytes = (size_t)p->count * sizeof(float), v = (size_t)p->begin[GROUP_MUON] * sizeof(float);
    char *before = malloc(2 * bytes + v);
    struct fault f = {{0}};
    struct result result = {.norm = 0};
    memcpy(before, p->p, bytes);
    memcpy(before + bytes, p->m, bytes);
    memcpy(before + 2 * bytes, p->v, v);
    CHECK(engine_begin(&b->engine, 1, &(struct rates){0.01f, 1, 1}, &f), "%s", f.text);
    ((float *)p->g)[p->count / 2] = bad;
    CHECK(engine_improve(&b->engine, &f) && engine_result(&b->engine, &result, &f), "%s", f.text);
    CHECK(!isfinite(result.norm), "a norm of %.3g", result.norm);
    CHECK(!memcmp(before, p->p, bytes) && !memcmp(before + bytes, p->m, bytes) &&
              !memcmp(before + 2 * bytes, p->v, v),
          "a step whose gradient has %.3g has changed something", (double)bad);
    free(before);
}

static void steps(bool with_muon, int count, double bar)
{
    struct bench b;
    uint64_t seed = 17;
    const struct bench_shape how = {.rows = 1, .tokens = 8, .decay = 0.1, .clip = 50, .muon = with_muon};
    if (!bench_open(&b, NULL, &how)) return bench_close(&b);
    struct parameters *p = &b.engine.params;
    struct reference r = {doubles(p->p, p->count), doubles(p->m, p->count),
                          doubles(p->v, p->begin[GROUP_MUON])};
    CHECK((p->begin[GROUP_MUON] < p->begin[GROUP_FROZEN]) == with_muon, "what Muon learns");
    for (int i = 1; i <= count; i++) step(&b, &r, i, i % 3 ? 0.01 : 3, &seed); /* each third one is clipped */
    double e = off(p->p, r.p, p->count);
    CHECK(e <= bar, "weights are off by %.2e", e);
    e = off(p->m, r.m, p->count);
    CHECK(e <= 1e-6, "first moments are off by %.2e", e);
    e = off(p->v, r.v, p->begin[GROUP_MUON]);
    CHECK(e <= 1e-6, "second moments are off by %.2e", e);
    skip(&b, INFINITY);
    skip(&b, NAN);
    skip(&b, 1e30f); /* whose square is inf */
    free(r.p);
    free(r.m);
    free(r.v);
    bench_close(&b);
}

void test_optimizer(const char *tiny, const char *scratch)
{
    (void)tiny, (void)scratch;
    steps(false, 100, 1e-6);
    steps(true, 20, 1e-5); /* five steps of three products each multiply what rounding does */
}

/* ---- The scale of the loss in fp16 ---- */

static double scale_of(const struct bench *b, int which)
{
    float x;
    memcpy(&x, b->engine.params.scale + which * SCALE_STEPS, sizeof x);
    return (double)x;
}

/* A step of a gradient that has been multiplied by the scale; `bad`: one number of it is inf. */
static void scaled_step(struct bench *b, struct reference *r, int64_t number, bool bad, uint64_t *seed)
{
    struct parameters *p = &b->engine.params;
    struct fault f = {{0}};
    struct result result = {.norm = NAN};
    const struct schedule s = {.rate = 0.01, .warmup = 1, .steps = 1};
    struct rates rates = schedule_rates(&s, number);
    double scale = scale_of(b, 0);
    float *g = (float *)p->g, *plain = malloc((size_t)p->count * sizeof *plain);
    for (int64_t i = 0; i < p->count; i++) plain[i] = (float)normal(seed);
    CHECK(engine_begin(&b->engine, 1, &rates, &f), "%s", f.text);
    for (int64_t i = 0; i < p->count; i++) g[i] = plain[i] * (float)scale;
    if (bad) g[p->count / 3] = INFINITY;
    double wanted = norm_of(plain, p->count), clip = fmin(1, b->engine.how.clip / wanted);
    if (!bad) adamw(r, plain, 0, p->begin[GROUP_MUON], clip, number, (double)rates.rate, 0);
    CHECK(engine_improve(&b->engine, &f) && engine_result(&b->engine, &result, &f), "%s", f.text);
    CHECK(result.scale == scale, "a step of scale %g, not %g", result.scale, scale);
    CHECK(bad ? !isfinite(result.norm) : fabs(result.norm - wanted) <= 1e-6 * wanted,
          "a norm of %.9g, not %.9g", result.norm, wanted);
    free(plain);
}

/* Three good steps double it, a bad one halves it, between 1 and 2^24; weights are those of no scale. */
void test_scale(const char *tiny, const char *scratch)
{
    static const struct {
        bool bad;
        double scale, steps; /* behind it */
    } all[] = {{false, 256, 1}, {false, 256, 2}, {false, 512, 0}, {false, 512, 1},
               {true, 256, 0},  {true, 128, 0},  {false, 128, 1}, {true, 64, 0},
               {false, 64, 1},  {false, 64, 2},  {false, 128, 0}};
    struct bench b;
    uint64_t seed = 19;
    (void)tiny, (void)scratch;
    const struct bench_shape how = {.rows = 1, .tokens = 8, .clip = 50, .dtype = CODA_F16};
    if (!bench_open(&b, NULL, &how)) return bench_close(&b);
    struct parameters *p = &b.engine.params;
    struct reference r = {doubles(p->p, p->count), doubles(p->m, p->count), doubles(p->v, p->count)};
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        scaled_step(&b, &r, i + 1, all[i].bad, &seed);
        CHECK(scale_of(&b, 0) == all[i].scale && scale_of(&b, 1) == all[i].steps,
              "step %d: a scale of %g for %g steps, not %g for %g", i + 1, scale_of(&b, 0), scale_of(&b, 1),
              all[i].scale, all[i].steps);
    }
    CHECK(off(p->p, r.p, p->count) <= 1e-6, "weights are off by %.2e", off(p->p, r.p, p->count));
    for (int i = 0; i < 9; i++) scaled_step(&b, &r, 20, true, &seed);
    CHECK(scale_of(&b, 0) == 1, "a scale of %g, not 1", scale_of(&b, 0));
    for (int i = 0; i < 80; i++) scaled_step(&b, &r, 20, false, &seed);
    CHECK(scale_of(&b, 0) == 16777216, "a scale of %g, not 2^24", scale_of(&b, 0));
    free(r.p);
    free(r.m);
    free(r.v);
    bench_close(&b);
}
