/*
 * families.c -- logits of each family on the CPU device against transformers' fp64.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_test.h"

const char *const decoder[] = {"llama",         "llama3",     "mistral",  "qwen2",     "qwen3",
                               "phi3",          "gemma",      "gemma2",   "gemma3",    "gpt2",
                               "gemma3_whole",  "mistral3",   "mamba",    "mamba2",    "qwen3_5",
                               "qwen3_5_whole", "nemotron_h", "granite4", "falcon_h1", "falcon_h1_norm"};
const int decoders = sizeof decoder / sizeof *decoder;
static const double bar = 1e-5; /* of logits in fp32, relative; fp64 is transformers' but for its angles */

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
static void logits_of(const char *tiny, const char *name, const char *file)
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

/* Vectors are those of the tensor `wanted`. */
static void encoder(const char *tiny, const char *name, const char *file, const char *wanted)
{
    char path[512], model[64];
    struct checkpoint golden;
    int64_t tokens, sentences = 0, numbers;
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    if (!golden_open(&golden, path)) return;
    const int32_t *ids = golden_tensor(&golden, "ids", "I32", &tokens);
    const int32_t *counts = golden_tensor(&golden, "counts", "I32", &sentences);
    const float *vectors = golden_tensor(&golden, wanted, "F32", &numbers);
    snprintf(model, sizeof model, "%s%s", name, file);
    struct model *m = opened(tiny, model, 64, 64);
    int wide = m ? model_width(m) : 0;
    const int32_t *each[16];
    float out[16 * 64];
    struct fault f = {{0}};
    CHECK(!m || numbers == sentences * wide, "%s: vectors of %d", model, wide);
    for (int64_t i = 0, at = 0; counts && i < sentences; at += counts[i++]) each[i] = ids + at;
    for (int together = 1; m && vectors && together <= sentences; together++) {
        bool ran = true;
        for (int i = 0; ran && i + together <= sentences; i += together)
            ran = model_embed(m, each + i, counts + i, together, POOLING_OF_FILES, out + i * wide, &f);
        CHECK(ran, "%s: %s", model, f.text);
        for (int i = 0; ran && i < sentences / together * together; i++) {
            double e = relative_error(out + i * wide, vectors + i * wide, wide);
            CHECK(e <= bar, "%s: sentence %d of %d together is off by %.2e", model, i, together, e);
        }
    }
    model_close(m);
    checkpoint_close(&golden);
}

/* Images one by one and together. */
static void images(const char *tiny, const char *name)
{
    char path[512];
    struct checkpoint golden;
    int64_t numbers, all = 0;
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    if (!golden_open(&golden, path)) return;
    const float *pixels = golden_tensor(&golden, "pixels", "F32", &numbers);
    const float *vectors = golden_tensor(&golden, "vectors", "F32", &all);
    struct model *m = opened(tiny, name, 0, 0);
    int wide = m ? m->config.hidden : 1, count = (int)(all / wide);
    float *out = malloc(sizeof *out * (size_t)all);
    struct fault f = {{0}};
    for (int together = 1; m && pixels && vectors && together <= count; together++) {
        m->opt.sentences = together;
        bool ran = model_see(m, pixels, count, out, &f);
        CHECK(ran, "%s: %s", name, f.text);
        for (int i = 0; ran && i < count; i++) {
            double e = relative_error(out + i * wide, vectors + i * wide, wide);
            CHECK(e <= bar, "%s: image %d, %d together, is off by %.2e", name, i, together, e);
        }
    }
    free(out);
    model_close(m);
    checkpoint_close(&golden);
}

void test_families(const char *tiny, const char *scratch)
{
    (void)scratch;
    for (int i = 0; i < decoders; i++) logits_of(tiny, decoder[i], "");
    logits_of(tiny, "llama3", "/model.gguf");
    logits_of(tiny, "gemma2", "/model.gguf");
    logits_of(tiny, "gpt2", "/model.gguf");
    short_text(tiny, "phi3");
    encoder(tiny, "bert", "", "vectors");
    encoder(tiny, "bert", "/model.gguf", "vectors");
    encoder(tiny, "gemma3_encoder", "", "vectors");
    encoder(tiny, "gemma3_encoder", "/model.gguf", "gguf");
    images(tiny, "vit");
    images(tiny, "siglip_vision");
    images(tiny, "siglip");
}
