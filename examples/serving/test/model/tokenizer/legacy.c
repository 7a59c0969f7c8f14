/*
 * legacy.c -- checkpoints without tokenizer.json: the same ids from vocab.json and merges.txt, or from
 * vocab.txt.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_test.h"

static void store_json(const char *to, const char *name, const json_t *v)
{
    char *text = json_dumps(v, 0);
    store(to, name, text, strlen(text));
    free(text);
}

/* vocab.json and merges.txt, as their tokenizer.json says. */
static void store_bpe(const char *to, const json_t *model)
{
    const json_t *merges = json_object_get(model, "merges");
    char *text = malloc(1 << 20);
    size_t n = (size_t)sprintf(text, "#version: 0.2\n");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *pair = json_array_get(merges, i);
        n += (size_t)sprintf(text + n, "%s %s%s\n", json_string_value(json_array_get(pair, 0)),
                             json_string_value(json_array_get(pair, 1)), i % 2 ? "" : "\r");
    }
    store(to, "merges.txt", text, n);
    store_json(to, "vocab.json", json_object_get(model, "vocab"));
    free(text);
}

static void store_words(const char *to, const json_t *model)
{
    json_t *vocab = json_object_get(model, "vocab"), *id;
    size_t count = json_object_size(vocab), n = 0;
    const char **words = calloc(count, sizeof *words), *word;
    char *text = malloc(1 << 20);
    json_object_foreach(vocab, word, id) words[json_integer_value(id)] = word;
    for (size_t i = 0; i < count; i++) n += (size_t)sprintf(text + n, "%s\n", words[i]);
    store(to, "vocab.txt", text, n);
    free(words);
    free(text);
}

/* tokenizer_config.json, with the added tokens by their ids: these are in no other file. */
static void store_config(const char *to, const char *from, const json_t *file, const char *class)
{
    json_t *config = load(from, "tokenizer_config.json"), *decoder = json_object();
    const json_t *added = json_object_get(file, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        json_t *token = json_deep_copy(json_array_get(added, i));
        char id[24];
        snprintf(id, sizeof id, "%lld", (long long)json_integer_value(json_object_get(token, "id")));
        json_object_del(token, "id");
        json_object_set_new(decoder, id, token);
    }
    json_object_set_new(config, "added_tokens_decoder", decoder);
    if (class) json_object_set_new(config, "tokenizer_class", json_string(class));
    store_json(to, "tokenizer_config.json", config);
    json_decref(config);
}

static void check_one(const char *dir, const char *name, const char *class, const json_t *strings)
{
    char from[600];
    snprintf(from, sizeof from, "%s/%s", dir, name);
    json_t *file = load(from, "tokenizer.json"), *config = load(from, "tokenizer_config.json");
    const json_t *model = json_object_get(file, "model");
    const char *to = new_folder();
    if (json_object_get(model, "merges")) store_bpe(to, model);
    else store_words(to, model);
    if (class) store_config(to, from, file, class);
    else store_json(to, "tokenizer_config.json", config);
    check_golden(to, from, strings);
    json_decref(file);
    json_decref(config);
}

void check_legacy(const char *dir)
{
    json_t *strings = load(dir, "strings.json");
    check_one(dir, "gpt2", NULL, strings);
    check_one(dir, "gpt2", "GPT2TokenizerFast", strings);
    check_one(dir, "roberta", NULL, strings);
    check_one(dir, "qwen2", "Qwen2Tokenizer", strings);
    check_one(dir, "bert_uncased", NULL, strings);
    check_one(dir, "bert_cased", NULL, strings);
    check_one(dir, "bert_cased", "BertTokenizer", strings);
    json_decref(strings);
}
