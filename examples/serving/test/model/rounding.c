/*
 * rounding.c -- in 16 bits no plan is much further from fp64 than torch is, which rounds each operation: the
 * errors of all families, each over torch's, are 1.2 at most in their mean. Norms are folded into weights of
 * encoders, epilogues keep more digits than operations apart, and both count here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_test.h"

static const double bar = 1.2;

static const char *const families[] = {
    "llama",          "llama3",       "mistral",   "qwen2",         "qwen3",  "phi3",    "gemma",
    "gemma2",         "gemma3",       "gpt2",      "bert",          "vit",    "siglip",  "siglip_vision",
    "gemma3_encoder", "gemma3_whole", "mistral3",  "mamba",         "mamba2", "qwen3_5", "qwen3_5_whole",
    "nemotron_h",     "granite4",     "falcon_h1", "falcon_h1_norm"};
enum { FAMILIES = sizeof families / sizeof *families };

/* What a golden asks, and what comes of it. */
struct asked {
    struct checkpoint file;
    const int32_t *ids, *counts;
    const float *pixels, *want;
    int64_t tokens, sentences, pixel_count, numbers;
};

static bool asked_open(struct asked *a, const char *tiny, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    *a = (struct asked){.numbers = 0};
    if (!golden_open(&a->file, path)) return false;
    const char *want = checkpoint_find(&a->file, "logits") ? "logits" : "vectors";
    a->want = golden_tensor(&a->file, want, "F32", &a->numbers);
    if (checkpoint_find(&a->file, "pixels"))
        a->pixels = golden_tensor(&a->file, "pixels", "F32", &a->pixel_count);
    else a->ids = golden_tensor(&a->file, "ids", "I32", &a->tokens);
    if (checkpoint_find(&a->file, "counts"))
        a->counts = golden_tensor(&a->file, "counts", "I32", &a->sentences);
    return a->want && (a->ids || a->pixels);
}

static bool run(struct model *m, const struct asked *a, float *out, struct fault *f)
{
    int32_t next;
    const int32_t *each[16];
    if (a->pixels) return model_see(m, a->pixels, (int)(a->numbers / model_width(m)), out, f);
    if (!a->counts)
        return model_decode(m, a->ids, (int)a->tokens, &next, f) && model_logits(m, out, (int)a->tokens, f);
    for (int64_t i = 0, at = 0; i < a->sentences && i < 16; at += a->counts[i++]) each[i] = a->ids + at;
    return model_embed(m, each, a->counts, (int)a->sentences, POOLING_OF_FILES, out, f);
}

/* The error of a plan in this dtype, over torch's. */
static double ratio(const char *tiny, const char *name, coda_dtype dtype, const char *word)
{
    char path[512];
    struct fault f = {{0}};
    struct asked a;
    double e = NAN, torch = NAN;
    int64_t one = 0;
    struct model_options o = {
        .device = CODA_DEVICE_CPU, .dtype = dtype, .every_row = true, .rows = 64, .context = 64};
    if (!asked_open(&a, tiny, name)) return NAN;
    snprintf(path, sizeof path, "error.%s", word);
    const float *error = golden_tensor(&a.file, path, "F32", &one);
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    struct model *m = model_open(path, &o, &f);
    float *out = malloc(sizeof *out * (size_t)a.numbers);
    bool ran = m && out && run(m, &a, out, &f);
    CHECK(ran && one == 1, "%s in %s: %s", name, word, f.text);
    if (ran) e = relative_error(out, a.want, a.numbers);
    if (one == 1) torch = (double)*error;
    printf("  rounding: %-14s %-4s %.2e, torch %.2e: %.2f\n", name, word, e, torch, e / torch);
    free(out);
    model_close(m);
    checkpoint_close(&a.file);
    return e / torch;
}

void test_rounding(const char *tiny, const char *scratch)
{
    static const struct {
        coda_dtype dtype;
        const char *word;
    } all[] = {{CODA_BF16, "bf16"}, {CODA_F16, "f16"}};
    (void)scratch;
    for (int t = 0; t < 2; t++) {
        double sum = 0;
        for (int i = 0; i < FAMILIES; i++) sum += ratio(tiny, families[i], all[t].dtype, all[t].word);
        printf("  rounding: %s, %d families: %.3f of torch's error in the mean\n", all[t].word, FAMILIES,
               sum / FAMILIES);
        CHECK(sum / FAMILIES <= bar, "%s: errors are %.3f times torch's", all[t].word, sum / FAMILIES);
    }
}
