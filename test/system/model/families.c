/*
 * families.c -- logits of each family on the CPU device against transformers' fp64; a text of greedy tokens,
 * from the caches, against all of it computed anew.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_test.h"
#include "writer.h"

static const char *const decoders[] = {"llama", "llama3", "mistral", "qwen2",  "qwen3",
                                       "phi3",  "gemma",  "gemma2",  "gemma3", "gpt2"};
static const double bar = 1e-5; /* of logits in fp32, relative; fp64 is transformers' but for its angles */

enum { MOST_TOKENS = 1024 };

/* Caches hold what no token may notice. */
static struct model *opened(const char *tiny, const char *name, int rows, int context)
{
    char path[512];
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .every_row = true, .rows = rows, .context = context};
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    struct model *m = model_open(path, &o, &f);
    CHECK(m != NULL, "%s: %s", name, f.text);
    if (m && m->bytes[CODA_ARG_STATE]) memset(m->memory[CODA_ARG_STATE], 0xff, m->bytes[CODA_ARG_STATE]);
    return m;
}

static int best(const float *row, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++) at = row[i] > row[at] ? i : at;
    return at;
}

/* Tokens at .. at + n - 1 in one call; every row's logits, and the next token, are the golden's. */
static void compare(struct model *m, const char *name, const int32_t *ids, const float *golden, int at, int n)
{
    int wide = m->config.vocabulary;
    float *logits = malloc(sizeof *logits * (size_t)n * (size_t)wide);
    struct fault f = {{0}};
    int32_t next = -1;
    bool ran = model_decode(m, ids + at, n, &next, &f) && model_logits(m, logits, n, &f);
    CHECK(ran, "%s: %s", name, f.text);
    for (int i = 0; ran && i < n; i++) {
        double e = relative_error(logits + (int64_t)i * wide, golden + (int64_t)(at + i) * wide, wide);
        CHECK(e <= bar, "%s: logits of token %d, in a run of %d, are off by %.2e", name, at + i, n, e);
    }
    if (ran)
        CHECK(next == best(logits + (int64_t)(n - 1) * wide, wide), "%s: %d is not the best", name, next);
    free(logits);
}

/* `file` is "" for the folder of safetensors, or what stands behind it. */
static void decoder(const char *tiny, const char *name, const char *file)
{
    static const int runs[][6] = {{40}, {1, 1, 1, 1, 1, 35}, {7, 1, 16, 9, 5, 2}};
    char path[512], model[64];
    struct checkpoint golden;
    int64_t tokens = 0, numbers;
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    if (!golden_open(&golden, path)) return;
    const int32_t *ids = golden_tensor(&golden, "ids", "I32", &tokens);
    const float *logits = golden_tensor(&golden, "logits", "F32", &numbers);
    snprintf(model, sizeof model, "%s%s", name, file);
    struct model *m = opened(tiny, model, 0, 128);
    for (size_t r = 0; m && ids && logits && r < sizeof runs / sizeof *runs; r++) {
        model_rewind(m, 0);
        for (int i = 0; i < 6 && runs[r][i]; i++) compare(m, model, ids, logits, m->length, runs[r][i]);
        CHECK(m->length == tokens, "%s: %d tokens of %lld", model, m->length, (long long)tokens);
    }
    model_close(m);
    checkpoint_close(&golden);
}

/* A text within the context that LongRoPE began with: by a model that is opened for no more. */
static void short_text(const char *tiny, const char *name)
{
    char path[512];
    struct checkpoint golden;
    int64_t numbers;
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    if (!golden_open(&golden, path)) return;
    const int32_t *ids = golden_tensor(&golden, "ids", "I32", &numbers);
    const float *logits = golden_tensor(&golden, "short", "F32", &numbers);
    struct model *m = opened(tiny, name, 0, 32);
    if (m && ids && logits) compare(m, name, ids, logits, 0, (int)(numbers / m->config.vocabulary));
    model_close(m);
    checkpoint_close(&golden);
}

static void encoder(const char *tiny, const char *name)
{
    char path[512];
    struct checkpoint golden;
    int64_t tokens, sentences = 0, numbers;
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    if (!golden_open(&golden, path)) return;
    const int32_t *ids = golden_tensor(&golden, "ids", "I32", &tokens);
    const int32_t *counts = golden_tensor(&golden, "counts", "I32", &sentences);
    const float *vectors = golden_tensor(&golden, "vectors", "F32", &numbers);
    struct model *m = opened(tiny, name, 64, 64);
    const int32_t *each[16];
    float out[16 * 64];
    struct fault f = {{0}};
    for (int64_t i = 0, at = 0; counts && i < sentences; at += counts[i++]) each[i] = ids + at;
    for (int together = 1; m && vectors && together <= sentences; together++) {
        bool ran = true;
        for (int i = 0; ran && i + together <= sentences; i += together)
            ran =
                model_embed(m, each + i, counts + i, together, POOLING_MEAN, out + i * m->config.hidden, &f);
        CHECK(ran, "%s: %s", name, f.text);
        for (int i = 0; ran && i < sentences / together * together; i++) {
            double e =
                relative_error(out + i * m->config.hidden, vectors + i * m->config.hidden, m->config.hidden);
            CHECK(e <= bar, "%s: sentence %d of %d together is off by %.2e", name, i, together, e);
        }
    }
    model_close(m);
    checkpoint_close(&golden);
}

void test_families(const char *tiny, const char *scratch)
{
    (void)scratch;
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) decoder(tiny, decoders[i], "");
    decoder(tiny, "llama3", "/model.gguf");
    decoder(tiny, "gemma2", "/model.gguf");
    short_text(tiny, "phi3");
    encoder(tiny, "bert");
}

/* ---- A text from the caches is the text of all tokens at once ---- */

/* Token `chosen` is the best of a row, or so near that rounding explains it. */
static bool is_best(const float *row, int wide, int chosen)
{
    int top = best(row, wide);
    return chosen == top || (chosen >= 0 && chosen < wide && row[top] - row[chosen] <= 1e-4 * fabs(row[top]));
}

static void greedy(const char *tiny, const char *name, int tokens)
{
    static const int prompt = 5;
    int32_t text[MOST_TOKENS] = {1, 17, 4, 33, 9}, next = 0;
    struct fault f = {{0}};
    struct model *m = opened(tiny, name, tokens, tokens);
    float *logits = m ? malloc(sizeof *logits * (size_t)tokens * (size_t)m->config.vocabulary) : NULL;
    bool ran = logits && model_decode(m, text, prompt, &next, &f);
    for (int at = prompt; ran && at < tokens; at++) {
        text[at] = next;
        ran = at + 1 == tokens || model_decode(m, &text[at], 1, &next, &f);
    }
    if (ran) model_rewind(m, 0);
    ran = ran && model_decode(m, text, tokens - 1, &next, &f) && model_logits(m, logits, tokens - 1, &f);
    CHECK(ran, "%s: %s", name, f.text);
    for (int at = prompt; ran && at < tokens; at++)
        CHECK(is_best(logits + (int64_t)(at - 1) * m->config.vocabulary, m->config.vocabulary, text[at]),
              "%s: token %d, %d, is not what its prefix gives", name, at, text[at]);
    free(logits);
    model_close(m);
}

enum { CONTEXT_END = 32, PROMPT = 5 };

/* Behind the prompt: `token`, and what model_decode writes up to the end of the context. */
static bool decoded(struct model *m, int32_t token, int32_t *text, struct fault *f)
{
    bool ran = true;
    text[0] = token;
    for (int i = 0; ran && m->length < CONTEXT_END; i++) ran = model_decode(m, &text[i], 1, &text[i + 1], f);
    return ran;
}

/* Tokens of steps that keep their token and position in states, in bursts, singly, and up to the end of the
 * context, are those of model_decode; and those of another text that begins where the first one did. */
static void written(const char *tiny, const char *name)
{
    static const int32_t prompt[] = {1, 17, 4, 33, 9};
    int32_t slow[CONTEXT_END + 1], fast[CONTEXT_END + 1], next;
    struct fault f = {{0}};
    struct model *m = opened(tiny, name, 16, CONTEXT_END);
    struct writer *w = m ? writer_open(m, 4, &f) : NULL;
    CHECK(w && model_decode(m, prompt, PROMPT, &next, &f), "%s: %s", name, f.text);
    for (int round = 0; w && round < 2; round++) {
        int first = 6 + round;
        model_rewind(m, PROMPT);
        bool ran = decoded(m, (next + 29 * round) % m->config.vocabulary, slow, &f);
        model_rewind(m, PROMPT);
        ran = ran && writer_write(w, slow[0], first, fast + 1, &f) &&
              writer_write(w, fast[first], CONTEXT_END - PROMPT - first, fast + 1 + first, &f);
        CHECK(ran && m->length == CONTEXT_END, "%s: %s", name, f.text);
        for (int i = 1; ran && i <= CONTEXT_END - PROMPT; i++)
            CHECK(fast[i] == slow[i], "%s: text %d, token %d is %d by steps of states, %d step by step", name,
                  round, i, fast[i], slow[i]);
        CHECK(!writer_write(w, 1, 1, fast, &f), "%s: a token beyond the context", name);
    }
    writer_close(w);
    model_close(m);
}

void test_greedy(const char *tiny, const char *scratch)
{
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) written(tiny, decoders[i]);
    (void)scratch;
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) greedy(tiny, decoders[i], i ? 96 : 517);
}
