/*
 * known_tensors.c -- tensors that no graph reads: those that may be there, and any other, by its name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_file.h"
#include "known.h"

static char *take(const char *folder, const char *name, size_t *bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    char *data = malloc(1 << 20);
    *bytes = f && data ? fread(data, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return data;
}

static void put(const char *folder, const char *name, const void *data, size_t bytes, const void *more,
                size_t behind)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(data, 1, bytes, f) == bytes && fwrite(more, 1, behind, f) == behind;
    CHECK(f && !fclose(f) && good, "%s cannot be written", path);
}

/* model.safetensors with a tensor more, of one number. */
static void add_tensor(const char *from, const char *to, const char *name)
{
    size_t bytes;
    char *data = take(from, "model.safetensors", &bytes);
    uint64_t length = 0, more;
    memcpy(&length, data, 8);
    json_t *header = json_loadb(data + 8, length, 0, NULL);
    json_int_t end = (json_int_t)(bytes - 8 - length);
    json_object_set_new(
        header, name,
        json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "F32", "shape", 1, "data_offsets", end, end + 4));
    char *text = json_dumps(header, JSON_COMPACT), *all = malloc(bytes + (1 << 16));
    more = strlen(text);
    memcpy(all, &more, 8);
    memcpy(all + 8, text, more);
    memcpy(all + 8 + more, data + 8 + length, bytes - 8 - length);
    put(to, "model.safetensors", all, 8 + more + (bytes - 8 - length), "\0\0\0\0", 4);
    json_decref(header);
    free(text);
    free(all);
    free(data);
}

static bool opens(const char *path, struct fault *f)
{
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 32, .rows = 16};
    f->text[0] = 0;
    struct model *m = model_open(path, &o, f);
    model_close(m);
    return m != NULL;
}

/* Tensors that may be there, and one that may not. */
static void test_tensors(const char *tiny, const char *scratch)
{
    static const struct {
        const char *folder, *name;
        bool ignored;
    } all[] = {{"llama", "model.layers.0.self_attn.rotary_emb.inv_freq", true},
               {"llama", "model.layers.0.self_attn.q_proj.bias", false},
               {"llama", "model.layers.0.self_attn.q_proj.weight_scale", false},
               {"llama", "model.layers.2.input_layernorm.weight", false},
               {"qwen2", "model.layers.1.self_attn.o_proj.bias", false},
               {"gemma", "lm_head.weight", false},
               {"gpt2", "transformer.h.0.attn.bias", true},
               {"gpt2", "transformer.h.0.attn.c_attn.bias2", false},
               {"bert", "pooler.dense.odd", false},
               {"bert", "cls.predictions.bias", true},
               {"bert", "embeddings.position_ids", true},
               {"bert", "classifier.weight", false},
               {"vit", "classifier.weight", true},
               {"siglip", "logit_bias2", false},
               {"gemma3_whole", "model.vision_tower.odd", true},
               {"qwen3_5", "mtp.norm.weight", true},
               {"qwen3_5", "model.layers.1.linear_attn.A_log", false},
               {"qwen3_5_whole", "model.visual.odd", true},
               {"mamba", "backbone.layers.0.mixer.odd", false},
               {"mistral3", "odd.weight", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct fault f;
        char from[600];
        size_t bytes;
        snprintf(from, sizeof from, "%s/%s", tiny, all[i].folder);
        char *config = take(from, "config.json", &bytes);
        put(scratch, "config.json", config, bytes, "", 0);
        add_tensor(from, scratch, all[i].name);
        bool good = opens(scratch, &f);
        CHECK(good == all[i].ignored && (good || strstr(f.text, all[i].name)), "%s of %s: '%s'", all[i].name,
              all[i].folder, f.text);
        free(config);
    }
}

/* One that no family has, of each family. */
static void test_odd_tensors(const char *tiny, const char *scratch)
{
    for (size_t i = 0; i < (size_t)KNOWN_BASES; i++) {
        struct fault f;
        char from[600], name[64];
        size_t bytes, there;
        snprintf(from, sizeof from, "%s/%s", tiny, known_bases[i].folder);
        snprintf(name, sizeof name, "odd.%zu.weight", i * 7919);
        char *config = take(from, "config.json", &bytes), *whole = take(from, "model.safetensors", &there);
        put(scratch, "config.json", config, bytes, "", 0);
        if (there) add_tensor(from, scratch, name);
        CHECK(!there || (!opens(scratch, &f) && strstr(f.text, name)), "%s: '%s'", known_bases[i].folder,
              f.text);
        free(config);
        free(whole);
    }
}

static void test_gguf_tensors(const char *tiny, const char *scratch)
{
    static const char *const families[] = {"llama", "phi3", "gemma2", "gemma3"};
    static const char *const names[] = {"odd.weight",        "blk.0.odd.weight",      "blk.0.attn_q.scale",
                                        "blk.1.ffn_up.bias", "blk.0.attn_qkv.bias",   "output.bias",
                                        "rope_freqs.weight", "blk.2.attn_norm.weight"};
    char path[512];
    struct checkpoint golden;
    struct gguf_file *g = malloc(sizeof *g);
    snprintf(path, sizeof path, "%s/../keys.safetensors", tiny);
    if (!golden_open(&golden, path)) return;
    snprintf(path, sizeof path, "%s/odd.gguf", scratch);
    const struct stored_tensor *some = checkpoint_find(&golden, "llama/output_norm.weight");
    for (size_t i = 0; i < 4 * 8; i++) {
        struct fault f;
        gguf_file_family(g, &golden, families[i / 8], "", "");
        gguf_file_tensor(g, names[i % 8], some);
        gguf_file_write(g, path, 0, g->tensors);
        bool good = opens(path, &f);
        CHECK(!good && !strchr(f.text, '\n') &&
                  (strstr(f.text, names[i % 8]) || strstr(f.text, "factors for")),
              "%s of %s: '%s'", names[i % 8], families[i / 8], f.text);
    }
    checkpoint_close(&golden);
    free(g);
}

void known_tensors(const char *tiny, const char *scratch)
{
    test_tensors(tiny, scratch);
    test_odd_tensors(tiny, scratch);
    test_gguf_tensors(tiny, scratch);
}
