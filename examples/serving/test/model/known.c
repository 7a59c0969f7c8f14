/*
 * known.c -- what files say that no graph reads: members of real files are known, any other is refused by its
 * name, for each family; the tables say what the code does, and keys.md what the tables say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_keys.h"
#include "gguf.h"
#include "known.h"
#include "words_keys.h"

static json_t *load(const char *folder, const char *name)
{
    char path[600];
    struct fault f = {{0}};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *v = checkpoint_object(path, &f);
    CHECK(v, "%s", f.text);
    return v;
}

/* ---- Readers of one object ---- */

static bool read_config(const json_t *o, struct fault *f)
{
    struct config *c = malloc(sizeof *c);
    bool good = config_read(c, o, f);
    free(c);
    return good;
}

static bool read_generation(const json_t *o, struct fault *f)
{
    struct config *c = calloc(1, sizeof *c);
    bool good = config_ends(c, o, f);
    free(c);
    return good;
}

static bool read_meta(const json_t *o, struct fault *f)
{
    struct checkpoint none = {0};
    json_t *copy = json_deep_copy(o), *config = gguf_config(&none, "a file", copy, f);
    if (config) json_object_set_new(config, "vocab_size", json_integer(32)); /* there is no table of tokens */
    if (config && json_object_get(config, "type_vocab_size"))
        json_object_set_new(config, "type_vocab_size", json_integer(2));
    bool good = config && read_config(config, f);
    json_decref(config);
    json_decref(copy);
    return good;
}

/* Names and values alone. */
static bool read_settings(const json_t *o, struct fault *f)
{
    struct keys k;
    const char *name;
    json_t *v;
    keys_begin(&k, &settings_keys, "tokenizer.json", o, "tokenizer_config.json");
    json_object_foreach((json_t *)(uintptr_t)o, name, v) keys_get(&k, name);
    return keys_end(&k, f->text, sizeof f->text);
}

static bool read_quant(const json_t *o, struct fault *f)
{
    struct quant_config q;
    return quant_config_read(&q, o, f);
}

/* What a method has at least, with a row of a group's or of its weights' in place of "{}". */
static bool read_quant_group(const json_t *o, struct fault *f)
{
    json_t *whole = json_pack("{s:s, s:{s:O}}", "quant_method", "compressed-tensors", "config_groups",
                              "group_0", (json_t *)(uintptr_t)o);
    bool good = read_quant(whole, f);
    json_decref(whole);
    return good;
}

static bool read_quant_weights(const json_t *o, struct fault *f)
{
    json_t *group = json_pack("{s:O}", "weights", (json_t *)(uintptr_t)o);
    bool good = read_quant_group(group, f);
    json_decref(group);
    return good;
}

typedef bool (*reader)(const json_t *o, struct fault *f);

/* ---- Real files, and one key more ---- */

static void refused_as(reader read, json_t *o, const char *what, const char *key)
{
    struct fault f = {{0}};
    json_object_set_new(o, key, json_integer(3));
    bool good = read(o, &f);
    CHECK(!good && strstr(f.text, key) && !strchr(f.text, '\n'), "%s: key '%s': %s", what, key, f.text);
    json_object_del(o, key);
}

static void test_real(const json_t *all, const char *part, reader read, const char *more)
{
    const char *what;
    json_t *o;
    json_object_foreach(json_object_get(all, part), what, o)
    {
        struct fault f = {{0}};
        char key[64];
        CHECK(read(o, &f), "%s of %s: %s", part, what, f.text);
        snprintf(key, sizeof key, "%s_%x", more, (unsigned)strlen(what) * 2654435761u);
        refused_as(read, o, what, key);
    }
}

/* Of GGUF also in the name of the architecture, of the tokenizer, and of another architecture. */
static void test_meta(const json_t *all)
{
    const char *what;
    json_t *o;
    test_real(all, "gguf", read_meta, "general.odd");
    test_real(all, "gguf", read_meta, "odd");
    test_real(all, "gguf", read_meta, "tokenizer.ggml.odd");
    test_real(all, "gguf", read_meta, "mamba.block_count");
    json_object_foreach(json_object_get(all, "gguf"), what, o)
    {
        char key[64];
        snprintf(key, sizeof key, "%s.odd", json_string_value(json_object_get(o, "general.architecture")));
        refused_as(read_meta, o, what, key);
    }
}

/* ---- Tables: each row is what happens ---- */

/* A value that nobody can read. */
static json_t *junk(void) { return json_pack("{s:i}", "neither", 1); }

static bool accepts(reader read, const json_t *base, const char *name, json_t *v, struct fault *f)
{
    json_t *o = json_deep_copy(base);
    f->text[0] = 0;
    json_object_set_new(o, name, v);
    if (!strcmp(name, "hidden_act")) json_object_del(o, "hidden_activation"); /* which would come first */
    bool good = read(o, f);
    json_decref(o);
    return good;
}

static void check_ignored(reader read, const json_t *base, const struct key *k, const char *name)
{
    struct fault f;
    json_t *all = k->values ? json_loads(k->values, 0, NULL) : NULL;
    bool any = accepts(read, base, name, junk(), &f);
    CHECK(any == !k->values, "'%s' %s: %s", name, any ? "is ignored whatever it is" : "is refused", f.text);
    for (size_t i = 0; i < json_array_size(all); i++)
        CHECK(accepts(read, base, name, json_deep_copy(json_array_get(all, i)), &f), "'%s': %s", name,
              f.text);
    json_decref(all);
}

static void check_row(reader read, const struct key_table *t, const json_t *base, unsigned bit,
                      const struct key *k, const char *name)
{
    struct fault f;
    bool twice = k->verdict == KEY_READ && key_find(t, bit, KEY_IGNORED, name, NULL);
    if (k->verdict == KEY_IGNORED && !key_find(t, bit, KEY_READ, name, NULL))
        check_ignored(read, base, k, name);
    if (k->verdict == KEY_READ && !twice)
        CHECK(!accepts(read, base, name, junk(), &f), "'%s' is said to be read, and is not", name);
    if (k->verdict == KEY_REFUSED) {
        CHECK(!accepts(read, base, name, json_integer(1), &f) && strstr(f.text, name), "'%s': %s", name,
              f.text);
        CHECK(accepts(read, base, name, json_null(), &f), "'%s': %s", name, f.text);
    }
}

/* ARCH is `architecture`. Patterns, and words of gguf_config, are no names that could be tried. */
static void check_rows(reader read, const struct key_table *t, const json_t *base, const char *family)
{
    unsigned bit = key_family(t, family);
    for (int i = 0; i < t->count; i++) {
        char names[1200], name[160];
        snprintf(names, sizeof names, "%s", t->key[i].names);
        for (char *rest = names, *one; (t->key[i].families & bit) && (one = strsep(&rest, " "));) {
            if (!*one || strpbrk(one, "*#") || !strncmp(one, "gguf:", 5)) continue;
            bool arch = !strncmp(one, "ARCH.", 5);
            if (arch) continue; /* by check_metas */
            snprintf(name, sizeof name, "%s", one);
            check_row(read, t, base, bit, &t->key[i], name);
        }
    }
}

const struct known_base known_bases[] = {{"llama", "llama"},
                                         {"mistral", "mistral"},
                                         {"qwen2", "qwen2"},
                                         {"qwen3", "qwen3"},
                                         {"phi3", "phi3"},
                                         {"gemma", "gemma"},
                                         {"gemma2", "gemma2"},
                                         {"gemma3", "gemma3_text"},
                                         {"gpt2", "gpt2"},
                                         {"bert", "bert"},
                                         {"vit", "vit"},
                                         {"siglip_vision", "siglip_vision_model"},
                                         {"gemma3_whole", "gemma3"},
                                         {"mistral3", "mistral3"},
                                         {"siglip", "siglip"},
                                         {"mamba", "mamba"},
                                         {"mamba2", "mamba2"},
                                         {"qwen3_5", "qwen3_5_text"},
                                         {"qwen3_5_whole", "qwen3_5"},
                                         {"nemotron_h", "nemotron_h"},
                                         {"granite4", "granitemoehybrid"},
                                         {"falcon_h1", "falcon_h1"}};

static void test_rows(const char *tiny)
{
    for (size_t i = 0; i < (size_t)KNOWN_BASES; i++) {
        json_t *base;
        char folder[600];
        snprintf(folder, sizeof folder, "%s/%s", tiny, known_bases[i].folder);
        base = load(folder, "config.json");
        check_rows(read_config, &config_keys, base, known_bases[i].family);
        refused_as(read_config, base, known_bases[i].family, "odd_member");
        json_decref(base);
    }
    json_t *none = json_object();
    check_rows(read_generation, &generation_keys, none, "all");
    json_decref(none);
}

/* ---- The same of quantization_config ---- */

static const struct {
    const char *family, *base;
    const struct key_table *table;
    reader read;
} quant_bases[] = {
    {"compressed-tensors", "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {}}", &quant_keys,
     read_quant},
    {"fp8", "{\"quant_method\": \"fp8\"}", &quant_keys, read_quant},
    {"fbgemm_fp8", "{\"quant_method\": \"fbgemm_fp8\"}", &quant_keys, read_quant},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": -1}", &quant_keys, read_quant},
    {"awq", "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 64}", &quant_keys, read_quant},
    {"modelopt", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}", &quant_keys, read_quant},
    {"all", "{}", &quant_group_keys, read_quant_group},
    {"all", "{\"num_bits\": 4, \"type\": \"int\"}", &quant_weights_keys, read_quant_weights},
};

static void test_quant_rows(void)
{
    for (size_t i = 0; i < sizeof quant_bases / sizeof *quant_bases; i++) {
        struct fault f = {{0}};
        json_t *base = json_loads(quant_bases[i].base, 0, NULL);
        CHECK(quant_bases[i].read(base, &f), "%s: %s", quant_bases[i].base, f.text);
        check_rows(quant_bases[i].read, quant_bases[i].table, base, quant_bases[i].family);
        refused_as(quant_bases[i].read, base, quant_bases[i].base, "odd_member");
        json_decref(base);
    }
}

/* Values that are read, and are not supported. */
static void test_quant_values(void)
{
    static const struct {
        const char *config, *says;
    } refused[] = {
        {"{\"quant_method\": \"bitsandbytes\"}", "quant_method 'bitsandbytes' is not supported"},
        {"{\"quant_method\": \"gptq\", \"bits\": 3, \"group_size\": 128}", "gptq of 3 bits"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0}", "group_size is 0"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4}", "group_size is missing"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"checkpoint_format\": \"marlin\"}",
         "checkpoint_format 'marlin'"},
        {"{\"quant_method\": \"awq\", \"bits\": 8, \"group_size\": 128}", "awq of 8 bits"},
        {"{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128, \"version\": \"gemv\"}", "gemv"},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A8_AWQ\"}", "quant_algo 'W4A8_AWQ'"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}", "no two numbers"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [0, 128]}", "no two numbers"},
        {"{\"quant_method\": \"compressed-tensors\"}", "config_groups is no object"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {}, \"format\": \"marlin-24\"}",
         "marlin-24"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {}, \"transform_config\": {\"a\": "
         "1}}",
         "transform_config"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {}, \"sparsity_config\": "
         "{\"format\": \"sparse-24-bitmask\"}}",
         "sparsity_config of format 'sparse-24-bitmask'"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"weights\": {\"num_bits\": "
         "3, "
         "\"type\": \"int\"}}}}",
         "g: int of 3 bits"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"weights\": {\"num_bits\": "
         "4, "
         "\"type\": \"int\", \"strategy\": \"token\"}}}}",
         "strategy 'token'"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct fault f = {{0}};
        json_t *o = json_loads(refused[i].config, 0, NULL);
        CHECK(o && !read_quant(o, &f) && strstr(f.text, refused[i].says) && !strchr(f.text, '\n'), "%s: '%s'",
              refused[i].config, f.text);
        json_decref(o);
    }
}

/* ---- The same of GGUF: a file of each architecture ---- */

static bool container_key(const char *name)
{
    return !strncmp(name, "general.", 8) || !strncmp(name, "split.", 6) || !strncmp(name, "tokenizer.", 10);
}

/* What yarn alone reads is looked at with yarn. */
static void check_meta_row(const json_t *meta, const char *architecture, const struct key *k,
                           const char *name)
{
    char full[160];
    struct fault f;
    unsigned bit = key_family(&gguf_keys, architecture);
    snprintf(full, sizeof full, "%s%s", architecture, name + 4);
    bool twice = k->verdict == KEY_READ && key_find(&gguf_keys, bit, KEY_IGNORED, full, architecture);
    bool read = key_find(&gguf_keys, bit, KEY_READ, full, architecture);
    if (k->verdict == KEY_IGNORED && !read) check_ignored(read_meta, meta, k, full);
    if (k->verdict == KEY_READ && !twice)
        CHECK(!accepts(read_meta, meta, full, junk(), &f), "'%s' is said to be read, and is not", full);
    if (k->verdict == KEY_REFUSED) CHECK(!accepts(read_meta, meta, full, junk(), &f), "'%s'", full);
}

static void test_meta_rows(const json_t *all)
{
    const char *what;
    json_t *meta;
    json_object_foreach(json_object_get(all, "gguf"), what, meta)
    {
        const char *architecture = json_string_value(json_object_get(meta, "general.architecture"));
        unsigned bit = key_family(&gguf_keys, architecture);
        for (int i = 0; i < gguf_keys.count; i++) {
            char names[1200];
            snprintf(names, sizeof names, "%s", gguf_keys.key[i].names);
            for (char *rest = names, *one; (gguf_keys.key[i].families & bit) && (one = strsep(&rest, " "));)
                if (*one && !strpbrk(one, "*#") && !container_key(one))
                    check_meta_row(meta, architecture, &gguf_keys.key[i], one);
        }
    }
}

/* Values that a table does not have, but that llama.cpp acts on. */
static void test_values(const json_t *all)
{
    static const struct {
        const char *file, *key, *value, *says;
    } refused[] = {
        {"LLaMA 3.1", "llama.expert_count", "8", "llama.expert_count"},
        {"LLaMA 3.1", "llama.attention.causal", "false", "llama.attention.causal"},
        {"LLaMA 3.1", "llama.attention.value_length", "64", "value_length is 64, but keys have 128"},
        {"LLaMA 3.1", "llama.attention.sliding_window", "4096", "llama.attention.sliding_window"},
        {"LLaMA 3.1", "general.type", "\"adapter\"", "general.type"},
        {"LLaMA 3.1", "llama.rope.scaling.type", "\"dynamic\"", "dynamic"},
        {"LLaMA 3.1", "llama.rope.scaling.type", "\"longrope\"", "without rope_factors_short"},
        {"LLaMA 3.1", "llama.rope.scaling.yarn_ext_factor", "0.5", "yarn_ext_factor"},
        {"LLaMA 3.1", "llama.rope.dimension_sections", "[16, 24, 24, 0]", "several coordinates"},
        {"LLaMA 3.1", "llama.rope.dimension_count", "130", "rotary"},
        {"LLaMA 3.1", "llama.attention.head_count", "[32, 16]", "num_attention_heads"},
        {"MiniLM", "bert.attention.head_count_kv", "4", "head_count_kv is not head_count"},
        {"MiniLM", "bert.attention.causal", "true", "bert.attention.causal"},
        {"MiniLM", "bert.attention.max_alibi_bias", "8.0", "max_alibi_bias"},
        {"Gemma 3", "gemma3.attn_logit_softcapping", "50.0", "attn_logit_softcapping"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct fault f;
        const json_t *meta = json_object_get(json_object_get(all, "gguf"), refused[i].file);
        json_t *v = json_loads(refused[i].value, JSON_DECODE_ANY, NULL);
        CHECK(!accepts(read_meta, meta, refused[i].key, v, &f) && strstr(f.text, refused[i].says),
              "%s of %s: '%s'", refused[i].key, refused[i].file, f.text);
    }
}

/* ---- Members of config.json that have a meaning which no graph here has ---- */

static void test_members(const char *tiny)
{
    static const struct {
        const char *folder, *key, *value, *says;
    } refused[] = {
        {"llama", "quantization_config", "{\"quant_method\": \"hqq\"}", "quant_method 'hqq'"},
        {"llama", "quantization_config", "{\"quant_method\": \"awq\", \"bits\": 3, \"group_size\": 128}",
         "awq of 3 bits"},
        {"gemma3_whole", "quantization_config",
         "{\"quant_method\": \"gptq\", \"bits\": 2, \"group_size\": 128}", "gptq of 2 bits"},
        {"llama", "num_local_experts", "8", "experts are not supported"},
        {"llama", "rope_interleaved", "true", "rope_interleaved"},
        {"llama", "partial_rotary_factor", "2", "partial_rotary_factor"},
        {"llama", "rope_parameters", "{\"rope_type\": \"default\", \"odd\": 1}", "'odd' is not known"},
        {"llama", "rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 2, \"mscale\": 1}", "'mscale'"},
        {"llama", "rope_parameters", "{\"rope_type\": \"gguf:factors\"}", "factors"},
        {"llama", "forced_eos_token_id", "2", "forced_eos_token_id"},
        {"llama", "pruned_heads", "{\"0\": [1]}", "pruned_heads"},
        {"llama", "sliding_window", "64", "sliding_window"},
        {"qwen3", "rope_parameters",
         "{\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 64, \"mscale\": 1}",
         "yarn with mscale"},
        {"bert", "position_embedding_type", "\"relative_key\"", "position_embedding_type"},
        {"bert", "is_decoder", "true", "is_decoder"},
        {"mistral", "attention_bias", "true", "attention_bias"},
        {"phi3", "original_max_position_embeddings", "64", "original_max_position_embeddings is 64, and 32"},
        {"gemma3_whole", "tie_word_embeddings", "false",
         "tie_word_embeddings is not the same in text_config"},
    };
    char folder[600];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct fault f;
        snprintf(folder, sizeof folder, "%s/%s", tiny, refused[i].folder);
        json_t *base = load(folder, "config.json"), *v = json_loads(refused[i].value, 0, NULL);
        if (!v) v = json_loads(refused[i].value, JSON_DECODE_ANY, NULL);
        CHECK(!accepts(read_config, base, refused[i].key, v, &f) && strstr(f.text, refused[i].says),
              "%s of %s: '%s'", refused[i].key, refused[i].folder, f.text);
        json_decref(base);
    }
}

/* What a file leaves out is what transformers has, where no shape of a tensor would tell. */
static void test_defaults(const char *tiny)
{
    struct fault f;
    struct config *c = malloc(sizeof *c);
    char folder[600];
    snprintf(folder, sizeof folder, "%s/gemma2", tiny);
    json_t *o = load(folder, "config.json");
    json_object_del(o, "sliding_window");
    json_object_del(o, "attn_logit_softcapping");
    json_object_del(o, "final_logit_softcapping");
    json_object_del(o, "query_pre_attn_scalar");
    CHECK(config_read(c, o, &f), "%s", f.text);
    CHECK(c->window == 4096 && c->attention_cap == 50 && c->logit_cap == 30 &&
              c->attention_scale == 1 / 16.0f,
          "gemma2: %d %g %g %g", c->window, (double)c->attention_cap, (double)c->logit_cap,
          (double)c->attention_scale);
    json_decref(o);
    snprintf(folder, sizeof folder, "%s/mistral", tiny);
    o = load(folder, "config.json");
    json_object_del(o, "sliding_window");
    CHECK(config_read(c, o, &f) && c->window == 4096 && c->sliding[0], "mistral: %d", c->window);
    json_object_set_new(o, "sliding_window", json_null());
    CHECK(config_read(c, o, &f) && !c->sliding[0], "mistral: null slides");
    json_decref(o);
    free(c);
}

void test_known(const char *tiny, const char *scratch)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s/..", tiny);
    json_t *all = load(folder, "configs.json");
    test_real(all, "config", read_config, "odd");
    test_real(all, "generation", read_generation, "odd");
    test_real(all, "tokenizer", read_settings, "odd");
    test_meta(all);
    test_meta_rows(all);
    test_values(all);
    json_decref(all);
    test_rows(tiny);
    test_quant_rows();
    test_quant_values();
    test_members(tiny);
    test_defaults(tiny);
    known_tensors(tiny, scratch);
    known_page();
}
