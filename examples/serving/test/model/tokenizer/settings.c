/*
 * settings.c -- tokenizer_config.json, special_tokens_map.json and added_tokens.json: ids by transformers
 * (make_settings.py), keys that are not known, and what stands around a text by GGUF.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_test.h"

static void store_json(const char *to, const char *name, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    store(to, name, text, strlen(text));
    free(text);
}

/* merges.txt and vocab.json of a tokenizer.json. */
static void store_parts(const char *to, const json_t *file)
{
    const json_t *model = json_object_get(file, "model"), *merges = json_object_get(model, "merges");
    char *text = malloc(1 << 20);
    size_t n = (size_t)sprintf(text, "#version: 0.2\n");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *pair = json_array_get(merges, i);
        n += (size_t)sprintf(text + n, "%s %s\n", json_string_value(json_array_get(pair, 0)),
                             json_string_value(json_array_get(pair, 1)));
    }
    store(to, "merges.txt", text, n);
    store_json(to, "vocab.json", json_object_get(model, "vocab"));
    free(text);
}

static json_t *base_of(const char *dir, const char *name)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s/%s", dir, name);
    return load(folder, "tokenizer.json");
}

static const char *folder_of(const char *dir, const json_t *one)
{
    const char *to = new_folder(), *name;
    json_t *file = base_of(dir, json_string_value(json_object_get(one, "base"))), *v;
    json_object_update(file, json_object_get(one, "replace"));
    if (json_is_true(json_object_get(one, "legacy"))) store_parts(to, file);
    else store_json(to, "tokenizer.json", file);
    json_object_foreach(json_object_get(one, "files"), name, v) store_json(to, name, v);
    json_decref(file);
    return to;
}

static void check_ids(struct tokenizer *t, const char *what, const json_t *text, const json_t *want)
{
    int32_t ids[128];
    int n = tokenizer_encode(t, json_string_value(text), json_string_length(text), ids, 128, NULL);
    bool same = n >= 0 && (size_t)n == json_array_size(want);
    for (int i = 0; same && i < n; i++) same = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    check(same, "%s: '%s' has %d ids, %zu are right, or others", what, json_string_value(text), n,
          json_array_size(want));
}

static void check_cases(const char *dir)
{
    json_t *all = load(dir, "settings.json"), *texts = json_object_get(all, "texts"), *one;
    size_t i;
    json_array_foreach(json_object_get(all, "cases"), i, one)
    {
        char err[400] = "";
        const char *what = json_string_value(json_object_get(one, "what"));
        struct tokenizer *t = tokenizer_open(folder_of(dir, one), err, sizeof err);
        if (!check(t != NULL, "%s: %s", what, err)) continue;
        for (size_t k = 0; k < json_array_size(texts); k++)
            check_ids(t, what, json_array_get(texts, k), json_array_get(json_object_get(one, "ids"), k));
        tokenizer_close(t);
    }
    json_decref(all);
}

/* ---- What is refused, by its name ---- */

static const struct {
    const char *base, *file, *text, *says; /* "" of says: it is accepted */
} files[] = {
    {"gpt2", "tokenizer_config.json", "{\"odd_setting\": 1}", "odd_setting"},
    {"gpt2", "tokenizer_config.json", "{\"coda:around\": true}", "coda:around"},
    {"gpt2", "tokenizer_config.json", "{\"split_special_tokens\": true}", "split_special_tokens"},
    {"gpt2", "tokenizer_config.json", "{\"split_special_tokens\": false, \"model_max_length\": 1e30}", ""},
    {"gpt2", "tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}", ""},
    {"gpt2", "tokenizer_config.json", "{\"sp_model_kwargs\": {\"alpha\": 0.1}}", "sp_model_kwargs"},
    {"gpt2", "tokenizer_config.json", "{\"additional_special_tokens\": [\"<none>\"]}",
     "'<none>' is no token"},
    {"gpt2", "tokenizer_config.json", "{\"image_token\": \"<image>\"}", "'<image>' is no token"},
    {"gpt2", "tokenizer_config.json", "{\"extra_special_tokens\": {\"image_token\": \"<image>\"}}",
     "<image>"},
    {"gpt2", "tokenizer_config.json", "{\"add_prefix_space\": true}", "add_prefix_space is true"},
    {"gpt2", "tokenizer_config.json", "{\"do_lower_case\": true}", "do_lower_case, but tokenizer.json"},
    {"gpt2", "tokenizer_config.json", "{\"added_tokens_decoder\": {\"7\": {\"content\": \"<|endoftext|>\"}}}",
     "'<|endoftext|>' has id 7"},
    {"gpt2", "tokenizer_config.json", "{\"added_tokens_decoder\": {\"7\": \"x\"}}", "token 7 has no content"},
    {"gpt2", "special_tokens_map.json", "{\"odd\": 1}", "odd"},
    {"gpt2", "special_tokens_map.json", "{\"additional_special_tokens\": [\"<none>\"]}",
     "'<none>' is no token"},
    {"gpt2", "added_tokens.json", "{\"<a>\": \"x\"}", "'<a>' has no id"},
    {"gpt2", "added_tokens.json", "{\"<|endoftext|>\": 7}", "'<|endoftext|>' has id 7"},
    {"gpt2", "added_tokens.json", "{\"<a>\": 5}", "id 5 belongs to"},
    {"gpt2", "added_tokens.json", "[]", "added_tokens.json is no object"},
};

static void check_files(const char *dir)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char err[400] = "";
        const char *to = new_folder();
        json_t *file = base_of(dir, files[i].base);
        store_json(to, "tokenizer.json", file);
        store(to, files[i].file, files[i].text, strlen(files[i].text));
        struct tokenizer *t = tokenizer_open(to, err, sizeof err);
        check(*files[i].says ? !t && strstr(err, files[i].says) : t != NULL, "%s %s: '%s'", files[i].file,
              files[i].text, err);
        tokenizer_close(t);
        json_decref(file);
    }
}

void check_settings(const char *dir)
{
    check_cases(dir);
    check_files(dir);
}
