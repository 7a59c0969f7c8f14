/*
 * captures.c -- the model alone, on a GPU: steps that are CUDA graphs give the logits of the same steps
 * launched kernel by kernel, bit for bit, with any number of sequences; so do graphs captured of slower
 * kernels, once the background has made better ones; and all of them those of the CPU device, but for
 * rounding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat_runner.h"
#include "chat_test.h"

enum {
    VOCABULARY = 264,
    ROWS = 8,
    SEQUENCES = 3,
    SHAPES = 2,
    SOME = 1,
    CONTEXT = 64,
    PAGES_EACH = CONTEXT / PAGE_TOKENS,
    PATIENCE = 60000
};

/* Rows of each of the first `sequences` ones. */
static const struct {
    int sequences, rows;
} steps[] = {{2, 4}, {3, 1}, {2, 1}, {1, 1}};
enum { STEPS = sizeof steps / sizeof *steps };

struct script {
    float logits[STEPS][SEQUENCES][VOCABULARY];
};

/* Pages are taken in no order. */
static int page_of(int sequence, int i) { return (sequence + i * SEQUENCES) * 5 % (SEQUENCES * PAGES_EACH); }

static struct sampling sampling_of(int sequence)
{
    return (struct sampling){
        .temperature = 0.75 * sequence, .top_k = sequence % 2 ? 9 : 0, .top_p = 0.9, .seed = 6};
}

static void fill(struct runner_inputs *in, int step, int *length)
{
    int row = 0;
    for (int b = 0; b < steps[step].sequences; b++) {
        for (int i = 0; i < steps[step].rows; i++, row++, length[b]++) {
            int at = length[b];
            in->ids[row] = (at * 31 + b * 7 + step) % SERVED_BYTES;
            in->positions[row] = at;
            in->slots[row] = page_of(b, at / PAGE_TOKENS) * PAGE_TOKENS + at % PAGE_TOKENS;
        }
        in->starts[b + 1] = row;
        in->last[b] = row - 1;
        in->lengths[b] = length[b];
        struct sampling how = sampling_of(b);
        sample_seeds(how.seed, 0, &in->seeds[2 * b]);
        in->places[b] = length[b];
        in->temperature[b] = (float)how.temperature;
        in->top_k[b] = how.top_k;
        in->top_p[b] = (float)how.top_p;
        for (int i = 0; i < PAGES_EACH; i++) in->table[b * in->table_pages + i] = page_of(b, i);
    }
}

/* The device's likeliest token is the one by all logits, and its log of the sum of all is theirs. */
static void check_likeliest(struct runner *m, int step, int b, const float *all)
{
    struct logits top = runner_likeliest(m, b);
    double sum = 0;
    int best = 0;
    for (int i = 0; i < VOCABULARY; i++) {
        best = all[i] > all[best] ? i : best;
        sum += exp((double)all[i]);
    }
    CHECK(top.id[0] == best && top.value[0] == all[best], "step %d, sequence %d: token %d, not %d", step, b,
          top.id[0], best);
    CHECK(fabs(top.log_sum - log(sum)) < 1e-4, "step %d, sequence %d: log(sum) is %g, not %g", step, b,
          top.log_sum, log(sum));
}

/* The token that the device has drawn is the one that the host draws of the logits. */
static void check_chosen(struct runner *m, int step, int b, int place, const float *all)
{
    struct sampling how = sampling_of(b);
    struct sampled want = {.id = -1}, got = runner_chosen(m, b);
    struct fault why;
    CHECK(sample(&how, &(struct logits){all, NULL, VOCABULARY, NAN}, 0, (uint64_t)place, &want, &why), "%s",
          why.text);
    CHECK(got.id == want.id && fabs(got.logprob - want.logprob) < 1e-4,
          "step %d, sequence %d: token %d of %g is drawn, not %d of %g", step, b, got.id, got.logprob,
          want.id, want.logprob);
}

static void play(struct runner *m, struct script *out)
{
    int length[SEQUENCES] = {0};
    struct fault why;
    struct logits all;
    struct runner_step took;
    for (int s = 0; s < STEPS; s++) {
        fill(runner_inputs(m), s, length);
        bool good = runner_launch(m, steps[s].sequences * steps[s].rows, steps[s].sequences, &why) &&
                    runner_wait(m, &took, &why);
        for (int b = 0; good && b < steps[s].sequences; b++) {
            good = runner_logits(m, b, &all, &why);
            if (good) memcpy(out->logits[s][b], all.value, sizeof **out->logits);
            if (good) check_likeliest(m, s, b, all.value);
            if (good) check_chosen(m, s, b, length[b], all.value);
        }
        CHECK(good, "step %d: %s", s, why.text);
    }
}

static struct served served;

static struct runner *start(bool gpu, enum runner_policy policy, int graphs)
{
    struct runner_options opt = {.served = &served,
                                 .gpu = gpu,
                                 .seed = 3,
                                 .policy = policy,
                                 .graphs = graphs,
                                 .rows = ROWS,
                                 .sequences = SEQUENCES,
                                 .context = CONTEXT,
                                 .pages = SEQUENCES * PAGES_EACH,
                                 .top = 5};
    struct fault why = {{0}};
    struct runner *m = runner_new(&opt, &why);
    bool good = m && runner_warm(m, &why);
    CHECK(good, "%s", why.text);
    if (good) return m;
    runner_free(m);
    return NULL;
}

static void compare(const struct script *want, const struct script *got, const char *what)
{
    for (int s = 0; s < STEPS; s++)
        CHECK(!memcmp(want->logits[s], got->logits[s], sizeof **want->logits * (size_t)steps[s].sequences),
              "%s: step %d, %d sequences with %d rows: other logits", what, s, steps[s].sequences,
              steps[s].rows);
}

/* |y - r| / |r| over the logits of each sequence of each step. */
static void compare_rounded(const struct script *want, const struct script *got, double most)
{
    for (int s = 0; s < STEPS; s++)
        for (int b = 0; b < steps[s].sequences; b++) {
            double difference = 0, size = 0;
            for (int i = 0; i < VOCABULARY; i++) {
                double r = (double)want->logits[s][b][i], d = (double)got->logits[s][b][i] - r;
                difference += d * d;
                size += r * r;
            }
            double far = sqrt(difference / size);
            CHECK(far < most, "step %d, sequence %d: %g from the CPU device's logits", s, b, far);
        }
}

/* Captured before its best kernels are there; those that come later are captured anew. */
static void play_improved(struct script *out)
{
    struct runner_stats now = {.pending = 1};
    struct runner *m = start(true, RUNNER_POLICY_BACKGROUND, SEQUENCES);
    if (!m) return;
    play(m, out); /* which asks for better kernels of the other shapes */
    for (int i = 0; i < PATIENCE && now.pending; i++, usleep(10000)) runner_stats(m, &now);
    CHECK(!now.pending && !now.failed, "%lld shapes pending, %lld failed", (long long)now.pending,
          (long long)now.failed);
    CHECK(now.captures > 0, "%lld graphs", (long long)now.captures);
    play(m, out);
    runner_free(m);
}

void test_captures(const char *program)
{
    static const double rounded = 0.05; /* what 16 bits do to all logits */
    static struct script plain, some, improved, host;
    struct runner_stats stats = {0};
    struct fault f;
    (void)program;
    CHECK(served_open(&served, NULL, NULL, false, &f), "%s", f.text);
    play_improved(&improved);
    struct runner *m = start(true, RUNNER_POLICY_WAIT, 0);
    if (m) play(m, &plain), runner_stats(m, &stats), runner_free(m);
    CHECK(m && !stats.captures && !stats.replays, "graphs, where none were wanted");
    m = start(true, RUNNER_POLICY_WAIT, SOME);
    if (m) play(m, &some), runner_stats(m, &stats), runner_free(m);
    CHECK(m && stats.captures >= SOME && stats.replays > 0, "%lld graphs, %lld launches",
          (long long)stats.captures, (long long)stats.replays);
    m = start(false, RUNNER_POLICY_WAIT, 0);
    if (m) play(m, &host), runner_free(m);
    compare_rounded(&host, &plain, rounded);
    compare(&plain, &some, "graphs of few sequences");
    compare(&plain, &improved, "graphs, and kernels made in the background");
    served_close(&served);
}
