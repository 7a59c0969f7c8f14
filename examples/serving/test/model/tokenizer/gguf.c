/*
 * gguf.c -- the tokenizers that GGUF files have in their metadata, as llama.cpp's converter writes it: the
 * same ids, and what is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_test.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

static void set(json_t *meta, const char *name, json_t *value)
{
    char whole[64];
    snprintf(whole, sizeof whole, "tokenizer.ggml.%s", name);
    json_object_set_new(meta, whole, value);
}

/* A token of a WordPiece: one that goes on loses its mark, one that begins a word gets another one. */
static json_t *phantom(const char *word)
{
    if (!strncmp(word, "##", 2)) return json_string(word + 2);
    return json_sprintf("\xe2\x96\x81%s", word);
}

/* Lists by ids: the model's words, and over them the added tokens. */
static json_t *metadata(const json_t *file, bool pieces)
{
    json_t *meta = json_object(), *tokens = json_array(), *types = json_array(), *id;
    json_t *model = json_object_get(file, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(file, "added_tokens");
    const char *word;
    json_int_t size = 0;
    json_object_foreach(vocab, word, id) if (json_integer_value(id) >= size) size =
        json_integer_value(id) + 1;
    for (size_t i = 0; i < json_array_size(added); i++) {
        id = json_object_get(json_array_get(added, i), "id");
        if (json_integer_value(id) >= size) size = json_integer_value(id) + 1;
    }
    for (json_int_t i = 0; i < size; i++) {
        json_array_append_new(tokens, json_sprintf("[PAD%d]", (int)i));
        json_array_append_new(types, json_integer(UNUSED));
    }
    json_object_foreach(vocab, word, id)
    {
        size_t at = (size_t)json_integer_value(id);
        json_array_set_new(tokens, at, pieces ? phantom(word) : json_string(word));
        json_array_set_new(types, at, json_integer(NORMAL));
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *one = json_array_get(added, i);
        size_t at = (size_t)json_integer_value(json_object_get(one, "id"));
        bool special = json_is_true(json_object_get(one, "special"));
        json_array_set(tokens, at, json_object_get(one, "content"));
        json_array_set_new(types, at, json_integer(special ? CONTROL : USER_DEFINED));
    }
    set(meta, "model", json_string(pieces ? "bert" : "gpt2"));
    set(meta, "tokens", tokens);
    set(meta, "token_type", types);
    return meta;
}

static json_t *merges_of(const json_t *file)
{
    const json_t *merges = json_object_get(json_object_get(file, "model"), "merges");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *pair = json_array_get(merges, i);
        json_array_append_new(list, json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
                                                 json_string_value(json_array_get(pair, 1))));
    }
    return list;
}

static json_t *id_of(const json_t *meta, const char *token)
{
    const json_t *tokens = json_object_get(meta, "tokenizer.ggml.tokens");
    for (size_t i = 0; i < json_array_size(tokens); i++)
        if (!strcmp(json_string_value(json_array_get(tokens, i)), token)) return json_integer((json_int_t)i);
    return json_null();
}

static json_t *open_meta(const char *dir, const char *name, const char *pre)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s/%s", dir, name);
    json_t *file = load(folder, "tokenizer.json"), *meta = metadata(file, !pre);
    if (pre) {
        set(meta, "merges", merges_of(file));
        set(meta, "pre", json_string(pre));
        set(meta, "bos_token_id", id_of(meta, strcmp(pre, "tekken") ? "<|begin_of_text|>" : "<s>"));
    } else {
        set(meta, "unknown_token_id", id_of(meta, "[UNK]"));
        set(meta, "cls_token_id", id_of(meta, "[CLS]"));
        set(meta, "seperator_token_id", id_of(meta, "[SEP]"));
    }
    json_decref(file);
    return meta;
}

/* `pre` is NULL of a WordPiece. */
static void check_one(const char *dir, const char *name, const char *pre, const json_t *strings)
{
    char folder[600], err[400] = "";
    json_t *meta = open_meta(dir, name, pre);
    snprintf(folder, sizeof folder, "%s/%s", dir, name);
    struct tokenizer *t = tokenizer_open_gguf(meta, name, err, sizeof err);
    if (check(t != NULL, "%s", err)) check_golden_of(t, folder, strings);
    tokenizer_close(t);
    json_decref(meta);
}

/* Vocabularies and ids of the package `sentencepiece` (make_sentencepiece.py), in a folder beside. `control`:
 * the token that stands for all others is said to be one of those, as in Phi-3's files. */
static void check_scored(const char *dir, const char *name, const json_t *strings, bool control)
{
    char folder[600], err[400] = "";
    snprintf(folder, sizeof folder, "%s_gguf/%s", dir, name);
    json_t *meta = load(folder, "metadata.json");
    const json_t *unknown = json_object_get(meta, "tokenizer.ggml.unknown_token_id");
    if (control)
        json_array_set_new(json_object_get(meta, "tokenizer.ggml.token_type"),
                           (size_t)json_integer_value(unknown), json_integer(CONTROL));
    struct tokenizer *t = tokenizer_open_gguf(meta, name, err, sizeof err);
    if (check(t != NULL, "%s", err)) check_golden_of(t, folder, strings);
    tokenizer_close(t);
    json_decref(meta);
}

struct refusal {
    const char *name, *value; /* of JSON; NULL: the member is missing */
    const char *says;
};

static void check_refusal(json_t *meta, const struct refusal *r)
{
    char err[400] = "", name[64];
    snprintf(name, sizeof name, "tokenizer.ggml.%s", r->name);
    if (r->value) json_object_set_new(meta, name, json_loads(r->value, JSON_DECODE_ANY, NULL));
    else json_object_del(meta, name);
    struct tokenizer *t = tokenizer_open_gguf(meta, "a file", err, sizeof err);
    check(!t && strstr(err, r->says), "%s %s: '%s' does not say '%s'", name, r->value, err, r->says);
    tokenizer_close(t);
    json_decref(meta);
}

static void check_scored_refusals(const char *dir)
{
    static const struct refusal all[] = {
        {"tokens", NULL, "there is no list tokenizer.ggml.tokens"},
        {"tokens", "[\"a\", \"b\"]", "2 tokens have 640 types"},
        {"token_type", NULL, "there is no list tokenizer.ggml.token_type"},
        {"scores", NULL, "there is no list tokenizer.ggml.scores"},
        {"scores", "7", "there is no list tokenizer.ggml.scores"},
        {"scores", "[1, 2]", "640 tokens have 2 scores"},
        {"bos_token_id", "3000000", "there is no bos token"},
        {"bos_token_id", NULL, "there is no bos token"},
        {"remove_extra_whitespaces", "true", "remove_extra_whitespaces' is true"},
        {"precompiled_charsmap", "[1]", "precompiled_charsmap' is [1]"},
    };
    char folder[600];
    snprintf(folder, sizeof folder, "%s_gguf/llama", dir);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_refusal(load(folder, "metadata.json"), &all[i]);
    char other[600];
    snprintf(other, sizeof other, "%s_gguf/no_bytes", dir);
    check_refusal(load(other, "metadata.json"),
                  &(struct refusal){"unknown_token_id", "400", "0 of 256 bytes have a token"});
    json_t *meta = load(folder, "metadata.json"), *scores = json_object_get(meta, "tokenizer.ggml.scores");
    json_array_set_new(scores, 300, json_string("much"));
    check_refusal(meta, &(struct refusal){"add_eos_token", "false", "token 300 has no score"});
    static char longest[1100];
    memset(longest, 'x', sizeof longest - 1);
    meta = load(folder, "metadata.json");
    json_array_set_new(json_object_get(meta, "tokenizer.ggml.tokens"), 300, json_string(longest));
    check_refusal(meta,
                  &(struct refusal){"add_eos_token", "false", "token 300 has 1099 bytes, more than 1024"});
}

static void check_refusals(const char *dir)
{
    static const struct refusal all[] = {
        {"model", NULL, "tokenizer.ggml.model 'none' is not known"},
        {"model", "\"t5\"", "tokenizer.ggml.model 't5' is not known"},
        {"model", "\"llama\"", "there is no list tokenizer.ggml.scores"},
        {"model", "7", "tokenizer.ggml.model 'none' is not known"},
        {"pre", "\"koala\"", "tokenizer.ggml.pre 'koala' is not known"},
        {"pre", "7", "tokenizer.ggml.pre '?' is not known"},
        {"tokens", NULL, "there is no list tokenizer.ggml.tokens"},
        {"tokens", "[]", "there is no list tokenizer.ggml.tokens"},
        {"tokens", "[\"a\", 7]", "tokens have"},
        {"token_type", "[1]", "tokens have 1 types"},
        {"merges", NULL, "there is no list tokenizer.ggml.merges"},
        {"merges", "[\"a\"]", "merge 0 is not two strings"},
        {"merges", "[\"zz zz\"]", "is no token"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_refusal(open_meta(dir, "gpt2", "gpt-2"), &all[i]);
    json_t *meta = open_meta(dir, "gpt2", "gpt-2");
    json_object_set_new(meta, "general.architecture", json_string("llama"));
    check_refusal(meta, &(struct refusal){"pre", NULL, "there is no tokenizer.ggml.pre"});
}

/* What llama.cpp puts around a text: by the file's flags, or as it has them for the cut. */
static void check_around(const char *dir, const char *name, const char *pre, const char *begin,
                         const char *end, bool usually)
{
    static const char *const flags[] = {NULL, "false", "true"};
    for (int b = 0; b < 3; b++)
        for (int e = 0; e < 3; e++) {
            char err[400] = "";
            int32_t bare[16], ids[16];
            json_t *meta = open_meta(dir, name, pre), *first = id_of(meta, begin), *last = id_of(meta, end);
            set(meta, "bos_token_id", json_incref(first));
            set(meta, "eos_token_id", json_incref(last));
            if (flags[b]) set(meta, "add_bos_token", json_boolean(b == 2));
            if (flags[e]) set(meta, "add_eos_token", json_boolean(e == 2));
            bool begins = b ? b == 2 : usually, ends = e == 2;
            struct tokenizer *t = tokenizer_open_gguf(meta, name, err, sizeof err);
            int n = t ? tokenizer_encode(t, "hello", 5, ids, 16, NULL) : -1,
                m = t ? tokenizer_encode_bare(t, "hello", 5, bare, 16, NULL) : -1;
            bool good = m > 0 && n == m + begins + ends &&
                        !memcmp(ids + begins, bare, sizeof *ids * (size_t)m) &&
                        (!begins || ids[0] == json_integer_value(first)) &&
                        (!ends || ids[n - 1] == json_integer_value(last));
            check(good, "%s, add_bos_token %s, add_eos_token %s: %d ids, %d bare: %s", pre,
                  flags[b] ? flags[b] : "absent", flags[e] ? flags[e] : "absent", n, m, err);
            tokenizer_close(t);
            json_decref(first);
            json_decref(last);
            json_decref(meta);
        }
}

/* A key that is not known, of each kind of tokenizer, and values that are not. */
static void check_odd(const char *dir)
{
    static const struct refusal all[] = {
        {"odd_one", "1", "tokenizer.ggml.odd_one"},
        {"add_space_prefix", "true", "tokenizer.ggml.add_space_prefix"},
        {"remove_extra_whitespaces", "true", "tokenizer.ggml.remove_extra_whitespaces"},
        {"precompiled_charsmap", "[1]", "tokenizer.ggml.precompiled_charsmap"},
    };
    char folder[600];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_refusal(open_meta(dir, "gpt2", "gpt-2"), &all[i]);
        check_refusal(open_meta(dir, "bert_uncased", NULL), &all[i]);
    }
    check_refusal(open_meta(dir, "bert_uncased", NULL),
                  &(struct refusal){"add_bos_token", "false", "tokenizer.ggml.add_bos_token"});
    snprintf(folder, sizeof folder, "%s_gguf/llama", dir);
    check_refusal(load(folder, "metadata.json"), &all[0]);
}

/* Values of another type than their key's, which would count as if they were not there. */
static void check_types(const char *dir)
{
    static const struct refusal all[] = {
        {"add_bos_token", "\"true\"", "tokenizer.ggml.add_bos_token is no truth value"},
        {"add_eos_token", "1", "tokenizer.ggml.add_eos_token is no truth value"},
        {"add_eos_token", "{}", "tokenizer.ggml.add_eos_token is no truth value"},
        {"add_space_prefix", "0.5", "tokenizer.ggml.add_space_prefix is no truth value"},
        {"bos_token_id", "\"1\"", "tokenizer.ggml.bos_token_id is no integer"},
        {"eos_token_id", "2.0", "tokenizer.ggml.eos_token_id is no integer"},
        {"unknown_token_id", "[0]", "tokenizer.ggml.unknown_token_id is no integer"},
        {"padding_token_id", "true", "tokenizer.ggml.padding_token_id is no integer"},
    };
    char folder[600];
    snprintf(folder, sizeof folder, "%s_gguf/llama", dir);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_refusal(load(folder, "metadata.json"), &all[i]);
    json_t *meta = load(folder, "metadata.json");
    json_array_set_new(json_object_get(meta, "tokenizer.ggml.token_type"), 300, json_real(4));
    check_refusal(meta, &(struct refusal){"add_eos_token", "false", "the type of token 300 is no integer"});
}

void check_gguf(const char *dir)
{
    json_t *strings = load(dir, "strings.json");
    check_one(dir, "bert_uncased", NULL, strings);
    check_one(dir, "gpt2", "gpt-2", strings);
    check_one(dir, "qwen2", "qwen2", strings);
    check_one(dir, "llama3", "llama-bpe", strings);
    check_one(dir, "tekken", "tekken", strings);
    check_one(dir, "smollm", "smollm", strings);
    check_scored(dir, "llama", strings, false);
    check_scored(dir, "llama", strings, true);
    check_scored(dir, "gemma", strings, false);
    check_scored(dir, "no_bytes", strings, false);
    json_decref(strings);
    check_around(dir, "qwen2", "qwen2", "<|endoftext|>", "<|im_end|>", false);
    check_around(dir, "qwen2", "deepseek-r1-qwen", "<|endoftext|>", "<|im_end|>", false);
    check_around(dir, "gpt2", "gpt-2", "<|endoftext|>", "<|endoftext|>", false);
    check_around(dir, "llama3", "llama-bpe", "<|begin_of_text|>", "<|eot_id|>", true);
    check_around(dir, "tekken", "tekken", "<s>", "</s>", true);
    check_refusals(dir);
    check_types(dir);
    check_scored_refusals(dir);
    check_odd(dir);
}
