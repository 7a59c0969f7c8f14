/*
 * keys.c -- what a file says is what is computed: logits of each key of GGUF against numpy's formula in fp64
 * (make_keys.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_file.h"

enum { TOKENS = 12, VOCABULARY = 32 };
static const double bar = 1e-5; /* as in families.c */

static const struct {
    const char *family, *want, *keys, *without, *with;
    int context;
} cases[] = {
    {"llama", "plain", "f rope.freq_base 10000", "", "", 64},
    {"llama", "plain", "u rope.dimension_count 8, b attention.causal true, f rope.scaling.factor 1", "", "",
     64},
    {"llama", "front", "", "", "attn_q.bias attn_k.bias attn_v.bias", 64},
    {"llama", "behind", "", "", "attn_output.bias", 64},
    {"llama", "all", "", "", "bias", 64},
    {"llama", "base", "f rope.freq_base 500000", "", "", 64},
    {"llama", "linear", "f rope.scale_linear 4", "", "", 64},
    {"llama", "linear", "f rope.scaling.factor 4", "", "", 64},
    {"llama", "linear", "f rope.scaling.factor 4, f rope.scale_linear 2, s rope.scaling.type linear", "", "",
     64},
    {"llama", "plain", "f rope.scaling.factor 4, s rope.scaling.type none", "", "", 64},
    {"llama", "warm", "f rope.scaling.factor 4, f rope.scaling.attn_factor 1.3", "", "", 64},
    {"llama", "warm_alone", "f rope.scaling.attn_factor 1.19", "", "", 64},
    {"llama", "yarn",
     "s rope.scaling.type yarn, f rope.scaling.factor 8, u rope.scaling.original_context_length 64,"
     " f rope.scaling.yarn_beta_fast 4, f rope.scaling.yarn_beta_slow 0.5",
     "", "", 64},
    {"llama", "yarn_usual", "s rope.scaling.type yarn, f rope.scaling.factor 4", "", "", 64},
    {"llama", "yarn_warm",
     "s rope.scaling.type yarn, f rope.scaling.factor 4, f rope.scaling.attn_factor 1.1", "", "", 64},
    {"llama", "short",
     "s rope.scaling.type longrope, u rope.scaling.original_context_length 32, f rope.scaling.attn_factor "
     "1.19",
     "", "rope_factors", 32},
    {"phi3", "plain", "", "", "", 64},
    {"phi3", "plain", "", "attention.key_length attention.value_length", "", 64},
    {"phi3", "short", "u rope.scaling.original_context_length 32, f rope.scaling.attn_factor 1.19", "",
     "rope_factors", 32},
    {"phi3", "long", "u rope.scaling.original_context_length 32, f rope.scaling.attn_factor 1.19", "",
     "rope_factors", 64},
    {"phi3", "short", "f rope.scaling.attn_factor 1.19", "", "rope_factors", 128}, /* of context_length */
    {"phi3", "part", "u rope.dimension_count 4", "attention.key_length attention.value_length", "", 64},
    {"phi3", "part", "u rope.dimension_count 4", "", "", 64},
    {"gemma2", "gemma2", "", "", "", 64},
    {"gemma2", "gemma2_caps", "f attn_logit_softcapping 2, f final_logit_softcapping 3", "", "", 64},
    {"gemma2", "gemma2_window", "u attention.sliding_window 5", "", "", 64},
    {"gemma3", "gemma3",
     "f rope.freq_base 1000000, f rope.freq_base_swa 3000, u attention.sliding_window 4,"
     " u attention.sliding_window_pattern 2",
     "", "", 64},
    {"gemma3", "gemma3_usual", "f rope.freq_base 1000000, u attention.sliding_window 4", "", "", 64},
    {"gemma3", "gemma3_linear",
     "f rope.freq_base 1000000, u attention.sliding_window 4, u attention.sliding_window_pattern 2,"
     " f rope.scaling.factor 8",
     "", "", 64},
};

static void compare(const struct checkpoint *golden, const char *path, const char *want, int context,
                    const char *what)
{
    char name[64];
    int64_t n;
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .every_row = true, .context = context};
    static float got[TOKENS * VOCABULARY];
    int32_t next;
    snprintf(name, sizeof name, "want/%s", want);
    const float *logits = golden_tensor(golden, name, "F32", &n);
    const int32_t *ids = golden_tensor(golden, "ids", "I32", &n);
    struct model *m = model_open(path, &o, &f);
    bool ran = m && model_decode(m, ids, TOKENS, &next, &f) && model_logits(m, got, TOKENS, &f);
    CHECK(ran, "%s: %s", what, f.text);
    double e = ran && logits ? relative_error(got, logits, TOKENS * VOCABULARY) : 0;
    CHECK(e <= bar, "%s, %s: logits are off by %.2e", what, want, e);
    model_close(m);
}

static void test_logits(const struct checkpoint *golden, const char *scratch)
{
    char path[512], what[700];
    struct gguf_file *g = malloc(sizeof *g);
    snprintf(path, sizeof path, "%s/keys.gguf", scratch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_file_family(g, golden, cases[i].family, cases[i].without, cases[i].with);
        gguf_file_keys(g, cases[i].keys);
        gguf_file_write(g, path, 0, g->tensors);
        snprintf(what, sizeof what, "%s '%s' %s", cases[i].family, cases[i].keys, cases[i].with);
        compare(golden, path, cases[i].want, cases[i].context, what);
    }
    free(g);
}

static void refused_file(const char *path, const char *says)
{
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU};
    struct model *m = model_open(path, &o, &f);
    CHECK(!m && strstr(f.text, says) && !strchr(f.text, '\n'), "'%s' does not say '%s'", f.text, says);
    model_close(m);
}

/* What would be scaled in two ways, or by half of what it wants. */
static void test_refused(const struct checkpoint *golden, const char *scratch)
{
    static const struct {
        const char *family, *keys, *with, *says;
    } all[] = {
        {"phi3", "f rope.scaling.factor 4", "rope_factors", "RoPE is scaled by tensors and by"},
        {"llama", "f rope.scaling.factor 4, s rope.scaling.type longrope", "rope_factors",
         "by tensors and by"},
        {"phi3", "", "rope_factors_short", "of rope_factors_short and rope_factors_long one is missing"},
        {"gemma2", "f rope.scaling.factor 0.5", "", "factor"},
        {"llama", "s rope.scaling.factor much", "", "rope.scaling.factor is no number"},
        {"llama", "u rope.scaling.type 3", "", "rope.scaling.type is no text"},
        {"llama", "u block_count 2", "", "a key that is there already"},
        {"llama", "", "attn_q.bias", "self_attn.k_proj.bias is missing"},
    };
    char path[512];
    struct gguf_file *g = malloc(sizeof *g);
    snprintf(path, sizeof path, "%s/keys.gguf", scratch);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gguf_file_family(g, golden, all[i].family, "", all[i].with);
        gguf_file_keys(g, all[i].keys);
        gguf_file_write(g, path, 0, g->tensors);
        refused_file(path, all[i].says);
    }
    free(g);
}

/* ---- Files in parts ---- */

static void part_path(char path[512], const char *scratch, int part, int parts)
{
    snprintf(path, 512, "%s/part-%05d-of-%05d.gguf", scratch, part, parts);
}

/* The first has the metadata, and each says which it is. */
static void write_parts(struct gguf_file *g, const struct checkpoint *golden, const char *scratch, int parts,
                        int count)
{
    char path[512], keys[128];
    gguf_file_family(g, golden, "llama", "", "");
    int all = g->tensors, each = all / parts;
    snprintf(keys, sizeof keys, "u split.no 0, u split.count %d, u split.tensors.count %d", parts, count);
    gguf_file_keys(g, keys);
    for (int i = 0; i < parts; i++) {
        if (i) g->key_bytes = g->values = 0;
        snprintf(keys, sizeof keys, "u split.no %d, u split.count %d, u split.tensors.count %d", i, parts,
                 count);
        if (i) gguf_file_keys(g, keys);
        part_path(path, scratch, i + 1, parts);
        gguf_file_write(g, path, i * each, i + 1 < parts ? each : all - i * each);
    }
}

static void test_parts(const struct checkpoint *golden, const char *scratch)
{
    char path[512], other[512];
    struct gguf_file *g = malloc(sizeof *g);
    gguf_file_family(g, golden, "llama", "", "");
    int all = g->tensors;
    write_parts(g, golden, scratch, 3, all);
    part_path(path, scratch, 1, 3);
    compare(golden, path, "plain", 64, "three parts");
    part_path(path, scratch, 2, 3);
    refused_file(path, "general.architecture is missing");
    part_path(path, scratch, 1, 3);
    snprintf(other, sizeof other, "%s/whole.gguf", scratch);
    CHECK(!rename(path, other), "%s", path);
    refused_file(other, "part 1 of 3, and no ...-00001-of-00003.gguf");
    CHECK(!rename(other, path), "%s", path);
    part_path(other, scratch, 3, 3);
    CHECK(!remove(other), "%s", other);
    refused_file(path, "part-00003-of-00003.gguf: No such file");
    write_parts(g, golden, scratch, 3, all + 1);
    refused_file(path, "tensors in all parts, but split.tensors.count is");
    write_parts(g, golden, scratch, 3, all);
    g->key_bytes = g->values = 0;
    gguf_file_keys(g, "u split.no 1, u split.count 3, u split.tensors.count 9, u =llama.more 3");
    part_path(other, scratch, 2, 3);
    gguf_file_write(g, other, 1, 2);
    refused_file(path, "key 'llama.more' is not known in a part behind the first");
    g->key_bytes = g->values = 0;
    gguf_file_keys(g, "u split.no 2, u split.count 3, u split.tensors.count 9");
    gguf_file_write(g, other, 1, 2);
    refused_file(path, "it is not part 2 of 3");
    free(g);
}

void test_keys(const char *tiny, const char *scratch)
{
    char path[512];
    struct checkpoint golden;
    snprintf(path, sizeof path, "%s/../keys.safetensors", tiny);
    if (!golden_open(&golden, path)) return;
    test_logits(&golden, scratch);
    test_refused(&golden, scratch);
    test_parts(&golden, scratch);
    checkpoint_close(&golden);
}
