/*
 * sampling.c -- draws against the shares that temperature, top_k and top_p leave, by counting ranks; logprobs
 * against softmax; and the likeliest tokens of a model against all its logits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_test.h"
#include "sample.h"
#include "tensor.h"

enum { MOST = 300, DRAWS = 4000 };

static bool ahead(const float *logit, int a, int b)
{
    return logit[a] > logit[b] || (logit[a] == logit[b] && a < b);
}

/* The share of each token, and its rank, by definition: O(n^2). */
static void shares(const struct sampling *s, const float *logit, int n, double *share, int *rank)
{
    double weight[MOST], all = 0, left = 0, greatest = logit[0];
    for (int i = 1; i < n; i++) greatest = fmax(greatest, logit[i]);
    for (int i = 0; i < n; i++) {
        rank[i] = 0;
        for (int j = 0; j < n; j++) rank[i] += ahead(logit, j, i);
        bool kept = !s->top_k || rank[i] < s->top_k;
        all += weight[i] = kept ? exp((logit[i] - greatest) / s->temperature) : 0;
    }
    for (int i = 0; i < n; i++) {
        double before = 0;
        for (int j = 0; j < n; j++) before += rank[j] < rank[i] ? weight[j] : 0;
        bool kept = s->top_p >= 1 || before < s->top_p * all * (1 - 1e-12);
        left += share[i] = kept ? weight[i] : 0;
    }
    for (int i = 0; i < n; i++) share[i] /= left;
}

/* The token at which the sum of shares, by rank, passes u; -1 so near a border that rounding decides. */
static int expected(const double *share, const int *rank, int n, double u)
{
    double sum = 0;
    int token[MOST];
    for (int i = 0; i < n; i++) token[rank[i]] = i;
    for (int i = 0; i < n; i++) {
        sum += share[token[i]];
        if (fabs(sum - u) < 1e-9) return -1;
        if (u < sum) return token[i];
    }
    return -1;
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
    int hits[MOST] = {0}, rank[MOST], wrong = 0;
    struct fault f = {{0}};
    struct logits l = {.value = logit, .n = n, .log_sum = NAN};
    shares(s, logit, n, share, rank);
    for (uint64_t place = 0; place < DRAWS; place++) {
        struct sampled got = {.id = -1};
        CHECK(sample(s, &l, 7, place, &got, &f), "%s", f.text);
        if (got.id < 0 || got.id >= n) return CHECK(false, "token %d of %d", got.id, n);
        int wanted = expected(share, rank, n, sample_uniform(s->seed, 7, place));
        wrong += wanted >= 0 && wanted != got.id;
        hits[got.id]++;
        if (place < 50) {
            double p = logprob(logit, n, got.id);
            CHECK(fabs(p - got.logprob) < 1e-9, "logprob %.12f, not %.12f", got.logprob, p);
        }
    }
    CHECK(!wrong, "T %g, top_k %d, top_p %g: %d draws of %d are others", s->temperature, s->top_k, s->top_p,
          wrong, DRAWS);
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

/* Where some of the likeliest suffice, the draw is the one from all; they suffice if they are all that is
 * left, and do not if they have less than half of the shares, half of the time. */
static void few_of_many(const struct sampling *s, const float *logit, int n, int few)
{
    float value[MOST];
    int32_t id[MOST];
    int enough = 0, same = 0;
    double warm = 0, sum = 0, left = 0;
    struct fault f = {{0}};
    for (int i = 0; i < n; i++) {
        int rank = 0;
        for (int j = 0; j < n; j++) rank += ahead(logit, j, i);
        value[rank] = logit[i];
        id[rank] = i;
    }
    for (int i = 0; i < n; i++) {
        warm += exp(((double)value[i] - (double)value[0]) / s->temperature);
        sum += exp((double)value[i]);
        if (i + 1 == few) left = warm;
    }
    struct logits all = {logit, NULL, n, NAN}, top = {value, id, few, log(sum)};
    for (uint64_t place = 0; place < DRAWS; place++) {
        struct sampled a = {.id = -1}, b = {.id = -2};
        if (!sample_likeliest(s, &top, log(warm), 3, place, &a)) continue;
        enough++;
        same += sample(s, &all, 3, place, &b, &f) && a.id == b.id && fabs(a.logprob - b.logprob) < 1e-9;
    }
    CHECK(same == enough, "top_k %d, top_p %g: %d draws of %d by %d tokens are others", s->top_k, s->top_p,
          enough - same, enough, few);
    bool whole = (s->top_k && s->top_k <= few) || few == n, cut = s->top_p < 1;
    double share = whole ? 1 : cut ? (left / warm >= s->top_p) : left / warm;
    CHECK(fabs(enough - share * DRAWS) <= 6 * sqrt(share * (1 - share) * DRAWS) + 4,
          "top_k %d, top_p %g: %d tokens suffice for %d draws, not %.1f", s->top_k, s->top_p, few, enough,
          share * DRAWS);
}

static void few_draws(void)
{
    static const struct sampling all[] = {{1, 0, 1, 1},   {0.5, 0, 1, 2},  {3, 0, 1, 3},   {1, 7, 1, 5},
                                          {1, 0, 0.5, 7}, {1, 0, 0.99, 8}, {2, 5, 0.7, 1}, {0.02, 0, 0.9, 1}};
    float logit[MOST];
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int few = 1; few <= 128; few *= 8) {
            for (int k = 0; k < 64; k++) logit[k] = (float)(2 * normal(&seed));
            if (few <= 64) few_of_many(&all[i], logit, 64, few);
        }
    struct sampling cold = {.top_p = 1};
    struct sampled got = {.id = -1};
    const float first[] = {2, 1}, endless[] = {INFINITY, 1};
    CHECK(sample_likeliest(&cold, &(struct logits){first, (const int32_t[]){9, 4}, 2, 3}, 0, 0, 0, &got) &&
              got.id == 9 && got.logprob == -1,
          "token %d, %g", got.id, got.logprob);
    CHECK(!sample_likeliest(&cold, &(struct logits){endless, NULL, 2, 3}, 0, 0, 0, &got), "inf");
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

/* Evenly spread, by each of the three numbers. */
static void counters(void)
{
    enum { BINS = 16, EACH = 16000 };
    for (int by = 0; by < 3; by++) {
        int hits[BINS] = {0};
        double before = 0, product = 0;
        for (uint64_t i = 0; i < EACH; i++) {
            double u = sample_uniform(by == 0 ? i : 5, by == 1 ? i : 9, by == 2 ? i : 2);
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
    few_draws();
    corners();
    counters();
    likeliest(tiny, "llama", 5);
    likeliest(tiny, "gemma2", 64);
    likeliest(tiny, "gpt2", 1);
}
