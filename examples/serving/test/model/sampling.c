/*
 * sampling.c -- draws against the shares that temperature, top_k and top_p leave, by counting what is
 * greater; against what coda_sample draws; logprobs against softmax; and the likeliest tokens of a model
 * against all its logits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_test.h"
#include "sample.h"
#include "tensor.h"

enum { MOST = 300, DRAWS = 4000 };

/* The share of each token, by definition: O(n^2). What equals one that is kept is kept. */
static void shares(const struct sampling *s, const float *logit, int n, double *share)
{
    double weight[MOST], all = 0, left = 0, greatest = logit[0];
    for (int i = 1; i < n; i++) greatest = fmax(greatest, logit[i]);
    for (int i = 0; i < n; i++) {
        int greater = 0;
        for (int j = 0; j < n; j++) greater += logit[j] > logit[i];
        bool kept = !s->top_k || greater < s->top_k;
        all += weight[i] = kept ? exp((logit[i] - greatest) / s->temperature) : 0;
    }
    for (int i = 0; i < n; i++) {
        double before = 0;
        for (int j = 0; j < n; j++) before += logit[j] > logit[i] ? weight[j] : 0;
        bool kept = s->top_p >= 1 || before < s->top_p * all * (1 - 1e-12);
        left += share[i] = kept ? weight[i] : 0;
    }
    for (int i = 0; i < n; i++) share[i] /= left;
}

static double logprob(const float *logit, int n, int at)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)logit[i]);
    return (double)logit[at] - log(sum);
}

static void draw_one(const struct sampling *s, const float *logit, int n)
{
    double share[MOST];
    int hits[MOST] = {0};
    struct fault f = {{0}};
    struct logits l = {.value = logit, .n = n, .log_sum = NAN};
    shares(s, logit, n, share);
    for (uint64_t place = 0; place < DRAWS; place++) {
        struct sampled got = {.id = -1};
        CHECK(sample(s, &l, 7, place, &got, &f), "%s", f.text);
        if (got.id < 0 || got.id >= n) return CHECK(false, "token %d of %d", got.id, n);
        hits[got.id]++;
        if (place < 50) {
            double p = logprob(logit, n, got.id);
            CHECK(fabs(p - got.logprob) < 1e-9, "logprob %.12f, not %.12f", got.logprob, p);
        }
    }
    for (int i = 0; i < n; i++) /* six standard deviations, and one hit of a rare token */
        CHECK(fabs(hits[i] - share[i] * DRAWS) <= 6 * sqrt(share[i] * DRAWS) + (share[i] > 0),
              "token %d is drawn %d times, not %.1f", i, hits[i], share[i] * DRAWS);
}

static void draws(void)
{
    static const struct sampling all[] = {
        {1, 0, 1, 1},    {0.5, 0, 1, 2},     {3, 0, 1, 3},    {1, 1, 1, 4},     {1, 7, 1, 5},
        {0.8, 40, 1, 6}, {1, 0, 0.5, 7},     {1, 0, 0.9, 8},  {1, 0, 0.1, 9},   {2, 20, 0.7, 1},
        {1, 5, 0.5, 2},  {1, 1000, 0.95, 3}, {1e-3, 0, 1, 4}, {100, 0, 0.99, 5}};
    float logit[MOST];
    uint64_t seed = 1;
    static const float same = 1.5f;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int n = 1; n <= MOST; n = n * 4 + 40) {
            for (int k = 0; k < n; k++) /* some with many ties, some with nothing else */
                logit[k] = i % 3 == 0   ? (float)(2 * normal(&seed))
                           : i % 3 == 1 ? (float)floor(3 * uniform(&seed))
                                        : same;
            draw_one(&all[i], logit, n);
        }
}

/* What the host draws coda_sample draws, but where rounding decides. */
static void draws_of_devices(const struct sampling *s)
{
    enum { N = 100, ROWS = 64 };
    _Alignas(16) static float logit[ROWS * N];
    _Alignas(16) int32_t seeds[4], places[ROWS], top_k[4] = {s->top_k}, id[ROWS];
    _Alignas(16) float warm[4] = {(float)s->temperature}, top_p[4] = {(float)s->top_p};
    uint64_t seed = 3;
    int same = 0;
    struct fault f = {{0}};
    coda_compile_options how = CODA_COMPILE_OPTIONS_INIT;
    coda_sample_options o = CODA_SAMPLE_OPTIONS_INIT;
    coda_plan *p = NULL;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, N});
    coda_value key = coda_input(g, "seeds", CODA_I32, 2, (int64_t[]){1, 2});
    coda_value at = coda_input(g, "places", CODA_I32, 1, (int64_t[]){ROWS});
    o.temperature = coda_input(g, "t", CODA_F32, 1, (int64_t[]){1});
    o.top_k = coda_input(g, "k", CODA_I32, 1, (int64_t[]){1});
    o.top_p = coda_input(g, "p", CODA_F32, 1, (int64_t[]){1});
    coda_output(g, "id", coda_sample(g, x, key, at, &o, NULL));
    how.device = CODA_DEVICE_CPU;
    for (int i = 0; i < ROWS * N; i++) logit[i] = (float)(2 * normal(&seed));
    for (int i = 0; i < ROWS; i++) places[i] = 1000 + i;
    sample_seeds(s->seed, 7, seeds);
    CHECK(coda_compile(&p, g, &how) == CODA_OK, "%s", coda_error());
    void *room = host_scratch(p ? coda_plan_workspace(p) : 0);
    void *args[] = {logit, seeds, places, warm, top_k, top_p, id};
    CHECK(p && coda_run(p, args, NULL, room, NULL) == CODA_OK, "%s", coda_error());
    for (int i = 0; p && i < ROWS; i++) {
        struct sampled one = {.id = -1};
        CHECK(sample(s, &(struct logits){logit + i * N, NULL, N, NAN}, 7, (uint64_t)places[i], &one, &f),
              "%s", f.text);
        same += one.id == id[i];
    }
    CHECK(same == ROWS, "T %g, top_k %d, top_p %g: %d rows of %d are drawn alike", s->temperature, s->top_k,
          s->top_p, same, ROWS);
    free(room);
    coda_plan_free(p);
    coda_graph_free(g);
}

/* Without temperature the first of the greatest; what is no number is refused, or has no share. */
static void corners(void)
{
    struct sampling s = {.top_p = 1}, warm = {.temperature = 1, .top_p = 1};
    struct sampled got = {.id = -1};
    struct fault f = {{0}};
    const float ties[] = {1, 3, 3, NAN}, none[] = {NAN, NAN}, cold[] = {-INFINITY, -INFINITY},
                hot[] = {INFINITY, 0}, one[] = {-INFINITY, NAN, 2};
    CHECK(sample(&s, &(struct logits){ties, NULL, 4, NAN}, 0, 0, &got, &f) && got.id == 1, "%d", got.id);
    CHECK(!sample(&s, &(struct logits){none, NULL, 2, NAN}, 0, 0, &got, &f), "NaN alone");
    CHECK(!sample(&s, &(struct logits){cold, NULL, 2, NAN}, 0, 0, &got, &f), "-inf alone");
    CHECK(!sample(&warm, &(struct logits){hot, NULL, 2, NAN}, 0, 0, &got, &f), "inf");
    CHECK(!sample(&warm, &(struct logits){hot, NULL, 0, NAN}, 0, 0, &got, &f), "no logits");
    for (uint64_t i = 0; i < 20; i++)
        CHECK(sample(&warm, &(struct logits){one, NULL, 3, NAN}, 0, i, &got, &f) && got.id == 2 &&
                  fabs(got.logprob) < 1e-12,
              "token %d, %g", got.id, got.logprob);
}

/* Noise has the law exp(-exp(-g)), by each of the numbers, and neighbours have nothing to do with each other.
 * */
static void counters(void)
{
    enum { BINS = 16, EACH = 16000 };
    for (int by = 0; by < 4; by++) {
        int hits[BINS] = {0};
        double before = 0, product = 0;
        for (int i = 0; i < EACH; i++) {
            int32_t seeds[2];
            sample_seeds(by == 0 ? (uint64_t)i : 5, by == 1 ? (uint64_t)i : 9, seeds);
            double g = sample_noise(seeds, by == 2 ? (uint64_t)i : 2, by == 3 ? i : 7), u = exp(-exp(-g));
            CHECK(u >= 0 && u < 1, "%g", u);
            hits[(int)(u * BINS)]++;
            product += (u - 0.5) * (before - 0.5);
            before = u;
        }
        for (int i = 0; i < BINS; i++)
            CHECK(abs(hits[i] - EACH / BINS) < 6 * (int)sqrt(EACH / BINS), "bin %d has %d", i, hits[i]);
        CHECK(fabs(product / EACH) < 6.0 / 12 / sqrt(EACH), "neighbours hang together by %g", product / EACH);
    }
}

/* The same tokens are drawn from the likeliest that the plan leaves as from all logits. */
static void likeliest(const char *tiny, const char *name, int top)
{
    char path[512];
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 64, .top = top};
    float all[1024], values[MOST_TOP];
    int32_t ids[MOST_TOP], next = 1;
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    struct model *m = model_open(path, &o, &f);
    CHECK(m != NULL, "%s: %s", name, f.text);
    for (int i = 0; m && i < 40; i++) {
        struct sampling s = {.temperature = 1.5, .top_k = top, .top_p = 0.9, .seed = 11};
        struct logits few = {values, ids, top, 0}, every = {all, NULL, m->config.vocabulary, NAN};
        struct sampled a = {.id = -1}, b = {.id = -2};
        float log_sum = NAN;
        int32_t best;
        bool ran = model_decode(m, &next, 1, &best, &f) && model_logits(m, all, 1, &f) &&
                   model_top(m, values, ids, &log_sum, &f);
        few.log_sum = log_sum;
        ran = ran && sample(&s, &few, 0, (uint64_t)i, &a, &f) && sample(&s, &every, 0, (uint64_t)i, &b, &f);
        CHECK(ran, "%s: %s", name, f.text);
        CHECK(a.id == b.id && fabs(a.logprob - b.logprob) < 1e-5,
              "%s: %d %g by the likeliest %d, %d %g by all", name, a.id, a.logprob, top, b.id, b.logprob);
        CHECK(ids[0] == best && few.n == top, "%s: %d leads, %d is the best", name, ids[0], best);
        next = b.id < 0 ? 1 : b.id;
    }
    model_close(m);
}

void test_sampling(const char *tiny, const char *scratch)
{
    (void)scratch;
    draws();
    for (int i = 0; i < 4; i++)
        draws_of_devices(&(struct sampling){
            .temperature = 0.5 * i, .top_k = i == 2 ? 9 : 0, .top_p = i == 3 ? 0.7 : 1, .seed = 4});
    corners();
    counters();
    likeliest(tiny, "llama", 5);
    likeliest(tiny, "gemma2", 64);
    likeliest(tiny, "gpt2", 1);
}
