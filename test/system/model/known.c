/*
 * known.c -- what files say that no graph reads: members of real files are known, any other is refused by its
 * name, for each family; the tables say what the code does, and keys.md what the tables say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_keys.h"
#include "gguf.h"
#include "gguf_file.h"
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
        snprintf(key, sizeof key, "%s.odd",
                 json_string_value(json_object_get(o, "general.architecture")));
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
        CHECK(accepts(read, base, name, json_deep_copy(json_array_get(all, i)), &f), "'%s': %s", name, f.text);
    json_decref(all);
}

static void check_row(reader read, const struct key_table *t, const json_t *base, unsigned bit,
                      const struct key *k, const char *name)
{
    struct fault f;
    bool twice = k->verdict == KEY_READ && key_find(t, bit, KEY_IGNORED, name, NULL);
    if (k->verdict == KEY_IGNORED && !key_find(t, bit, KEY_READ, name, NULL)) check_ignored(read, base, k, name);
    if (k->verdict == KEY_READ && !twice)
        CHECK(!accepts(read, base, name, junk(), &f), "'%s' is said to be read, and is not", name);
    if (k->verdict == KEY_REFUSED) {
        CHECK(!accepts(read, base, name, json_integer(1), &f) && strstr(f.text, name), "'%s': %s", name, f.text);
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

static const struct {
    const char *folder, *family;
} bases[] = {{"llama", "llama"},
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
             {"siglip", "siglip"}};

static void test_rows(const char *tiny)
{
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        json_t *base;
        char folder[600];
        snprintf(folder, sizeof folder, "%s/%s", tiny, bases[i].folder);
        base = load(folder, "config.json");
        check_rows(read_config, &config_keys, base, bases[i].family);
        refused_as(read_config, base, bases[i].family, "odd_member");
        json_decref(base);
    }
    json_t *none = json_object();
    check_rows(read_generation, &generation_keys, none, "all");
    json_decref(none);
}

void test_known(const char *tiny, const char *scratch)
{
    char folder[512];
    (void)scratch;
    snprintf(folder, sizeof folder, "%s/..", tiny);
    json_t *all = load(folder, "configs.json");
    test_real(all, "config", read_config, "odd");
    test_real(all, "generation", read_generation, "odd");
    test_real(all, "tokenizer", read_settings, "odd");
    test_meta(all);
    json_decref(all);
    test_rows(tiny);
}
void test_plain(const char *tiny, const char *scratch) {(void)tiny;(void)scratch;}
