/*
 * modules.c -- modules.json of sentence-transformers: each pooling by its name and by the flags of older
 * versions, with and without a normalisation; and what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lower.h"
#include "model_test.h"

static const double bar = 1e-5; /* as in families.c */

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f), "%s cannot be written", path);
}

static void copy(const char *from, const char *to, const char *name)
{
    static char data[1 << 18];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(data, 1, sizeof data, f) : 0;
    if (f) fclose(f);
    snprintf(path, sizeof path, "%s/%s", to, name);
    f = fopen(path, "wb");
    CHECK(n && f && fwrite(data, 1, n, f) == n && !fclose(f), "%s/%s cannot be copied", from, name);
}

static struct model *opened(const char *folder, struct fault *f)
{
    struct model_options o = {.device = CODA_DEVICE_CPU, .rows = 64};
    return model_open(folder, &o, f);
}

/* The vectors of a golden by the folder's modules, of length 1 or as they are. */
static void compare(const char *folder, const struct checkpoint *golden, const char *name, bool unit)
{
    struct fault f = {{0}};
    int64_t n, sentences = 0;
    const int32_t *ids = golden_tensor(golden, "ids", "I32", &n);
    const int32_t *counts = golden_tensor(golden, "counts", "I32", &sentences);
    const float *want = golden_tensor(golden, name, "F32", &n);
    struct model *m = opened(folder, &f);
    CHECK(m && sentences <= 4 && n == sentences * model_width(m), "%s: %s", name, f.text);
    for (int i = 0; m && want && i < sentences; ids += counts[i++]) {
        float got[64], scaled[64];
        int wide = model_width(m);
        double squares = 0;
        CHECK(model_embed(m, &ids, counts + i, 1, POOLING_OF_FILES, got, &f), "%s: %s", name, f.text);
        for (int c = 0; c < wide; c++) squares += (double)want[i * wide + c] * want[i * wide + c];
        for (int c = 0; c < wide; c++) scaled[c] = want[i * wide + c] / (unit ? (float)sqrt(squares) : 1);
        double e = relative_error(got, scaled, wide);
        CHECK(e <= bar, "%s: sentence %d is off by %.2e", name, i, e);
    }
    model_close(m);
}

#define MODULE(n, path, type)                                                                                \
    "{\"idx\": " n ", \"path\": \"" path "\", \"type\": \"sentence_transformers.models." type "\"}"
#define TRANSFORMER MODULE("0", "", "Transformer")
#define POOLING MODULE("1", "1_Pooling", "Pooling")
#define NORMALIZE MODULE("2", "2_Normalize", "Normalize")
#define DENSE MODULE("2", "2_Dense", "Dense")

static void test_poolings(const char *scratch, const struct checkpoint *golden)
{
    static const struct {
        const char *pooling, *golden;
    } all[] = {
        {"{\"pooling_mode\": \"cls\"}", "first"},
        {"{\"pooling_mode\": \"lasttoken\"}", "last"},
        {"{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}", "first"},
        {"{\"pooling_mode_cls_token\": false, \"pooling_mode_lasttoken\": true}", "last"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        put(scratch, "1_Pooling/config.json", all[i].pooling);
        put(scratch, "modules.json", "[" TRANSFORMER "," POOLING "]");
        compare(scratch, golden, all[i].golden, false);
        put(scratch, "modules.json", "[" TRANSFORMER "," POOLING "," NORMALIZE "]");
        compare(scratch, golden, all[i].golden, true);
    }
}

static const char mean[] = "{\"pooling_mode\": \"mean\"}";

static void test_refused(const char *tiny, const char *scratch)
{
    static const struct {
        const char *modules, *pooling, *dense, *says;
    } all[] = {
        {"{}", NULL, NULL, "no list of modules with a pooling"},
        {"[", NULL, NULL, "modules.json: line 1"},
        {"[]", NULL, NULL, "no list of modules with a pooling"},
        {"[" TRANSFORMER "]", NULL, NULL, "no list of modules with a pooling"},
        {"[" TRANSFORMER "," POOLING "," POOLING "]", NULL, NULL, "a module 'Pooling' there"},
        {"[" TRANSFORMER "," DENSE "," POOLING "]", NULL, NULL, "a module 'Dense' there"},
        {"[" TRANSFORMER "," POOLING "," NORMALIZE "," DENSE "]", NULL, NULL, "a module 'Dense' there"},
        {"[" TRANSFORMER "," POOLING "," MODULE("2", "2_CNN", "CNN") "]", NULL, NULL, "a module 'CNN' there"},
        {"[" TRANSFORMER "," MODULE("1", "../1_Pooling", "Pooling") "]", NULL, NULL,
         "'../1_Pooling' is no folder of the model's"},
        {"[" TRANSFORMER "," MODULE("1", "9_Pooling", "Pooling") "]", NULL, NULL,
         "9_Pooling/config.json: No such"},
        {"[" TRANSFORMER "," POOLING "]", "{}", NULL, "pooling '' is not supported"},
        {"[" TRANSFORMER "," POOLING "]", "{\"pooling_mode\": \"max\"}", NULL, "pooling 'max' is not"},
        {"[" TRANSFORMER "," POOLING "]",
         "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}", NULL,
         "pooling 'of two modes'"},
        {"[" TRANSFORMER "," POOLING "," DENSE "]", NULL, "{\"in_features\": 31}",
         "in_features is no whole number"},
        {"[" TRANSFORMER "," POOLING "," DENSE "]", NULL, "{\"in_features\": 32}", "out_features is missing"},
        {"[" TRANSFORMER "," POOLING "," DENSE "]", NULL,
         "{\"in_features\": 32, \"out_features\": 40, \"activation_function\": \"a.Sine\"}", "'Sine' is not"},
        {"[" TRANSFORMER "," POOLING "," DENSE "]", NULL,
         "{\"in_features\": 32, \"out_features\": 41, \"activation_function\": \"a.Tanh\"}",
         "tensor modules.2_Dense.linear.weight: rank 2 and 40 x 32, where the config wants 41 x 32"},
        {"[" TRANSFORMER "," POOLING "," DENSE "," DENSE "]", NULL,
         "{\"in_features\": 32, \"out_features\": 32, \"activation_function\": \"a.Tanh\"}",
         "tensor modules.2_Dense.linear.bias: two files have it"},
    };
    char from[512];
    snprintf(from, sizeof from, "%s/gemma3_encoder", tiny);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct fault f = {{0}};
        put(scratch, "modules.json", all[i].modules);
        put(scratch, "1_Pooling/config.json", all[i].pooling ? all[i].pooling : mean);
        if (all[i].dense) put(scratch, "2_Dense/config.json", all[i].dense);
        else copy(from, scratch, "2_Dense/config.json");
        struct model *m = opened(scratch, &f);
        CHECK(!m && strstr(f.text, all[i].says) && !strchr(f.text, '\n'), "'%s' does not say '%s'", f.text,
              all[i].says);
        model_close(m);
    }
}

/* As Python's str.lower() has it. */
static void test_lower(void)
{
    static const char *const all[][2] = {
        {"A Fox", "a fox"},
        {"\xc3\x84RGER \xd0\x96", "\xc3\xa4rger \xd0\xb6"},
        {"\xc4\xb0", "i\xcc\x87"},                                /* a capital I with a dot */
        {"\xce\xa3\xce\x91\xce\xa3", "\xcf\x83\xce\xb1\xcf\x82"}, /* sigma, alpha, last sigma */
        {"\xce\x91\xce\xa3.", "\xce\xb1\xcf\x82."},
        {"\xce\xa3", "\xcf\x83"},
        {"a\xff"
         "B",
         "a\xff"
         "b"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *got = lower_text(all[i][0]);
        CHECK(got && !strcmp(got, all[i][1]), "'%s' in lower case is '%s'", all[i][0], got);
        free(got);
    }
}

void test_modules(const char *tiny, const char *scratch)
{
    char from[512], to[512], path[600];
    struct checkpoint golden;
    snprintf(from, sizeof from, "%s/gemma3_encoder", tiny);
    snprintf(to, sizeof to, "%s/modules", scratch);
    mkdir(to, 0700);
    snprintf(path, sizeof path, "%s/1_Pooling", to);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/2_Dense", to);
    mkdir(path, 0700);
    copy(from, to, "config.json");
    copy(from, to, "model.safetensors");
    copy(from, to, "2_Dense/model.safetensors");
    snprintf(path, sizeof path, "%s/golden.safetensors", from);
    if (!golden_open(&golden, path)) return;
    test_lower();
    test_poolings(to, &golden);
    test_refused(tiny, to);
    checkpoint_close(&golden);
}
