/*
 * settings.c -- what the files beside tokenizer.json change in it: tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json, as transformers applies them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"
#include "words_keys.h"

struct settings {
    json_t *file;                       /* a tokenizer.json */
    json_t *list;                       /* its added_tokens */
    json_t *index;                      /* by content, the place in the list */
    const json_t *config, *map, *older; /* `older` is added_tokens.json; each may be NULL */
    struct complaint *complaint;
};

static const char *const parts[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
enum { PARTS = sizeof parts / sizeof *parts };

/* The text of a token, which is one, or an object that has it. */
static const char *text_of(const json_t *v)
{
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

/* ---- Added tokens ---- */

static bool append(struct settings *s, json_t *token)
{
    const char *content = text_of(token);
    json_int_t at = (json_int_t)json_array_size(s->list);
    if (!content) return json_decref(token), complain(s->complaint, "an added token has no content");
    return (!json_object_set_new(s->index, content, json_integer(at)) &&
            !json_array_append_new(s->list, token)) ||
           complain(s->complaint, "no memory");
}

static json_t *known(const struct settings *s, const char *content)
{
    const json_t *at = json_object_get(s->index, content);
    return at ? json_array_get(s->list, (size_t)json_integer_value(at)) : NULL;
}

static bool index_all(struct settings *s)
{
    s->list = json_object_get(s->file, "added_tokens");
    s->index = json_object();
    if (json_is_null(s->list)) s->list = NULL;
    if (s->list && !json_is_array(s->list)) return complain(s->complaint, "'added_tokens' is no list");
    if (!s->list) json_object_set_new(s->file, "added_tokens", s->list = json_array());
    for (size_t i = 0; i < json_array_size(s->list); i++) {
        const char *content = text_of(json_array_get(s->list, i));
        if (content) json_object_set_new(s->index, content, json_integer((json_int_t)i));
    }
    return (s->list && s->index) || complain(s->complaint, "no memory");
}

/* An entry of added_tokens_decoder stands in place of tokenizer.json's. */
static bool decoder_token(struct settings *s, const char *id, const json_t *v)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word", "normalized", "special"};
    const char *content = text_of(v);
    if (!content || !json_is_object(v))
        return complain(s->complaint, "added_tokens_decoder: token %.20s has no content", id);
    json_int_t number = strtoll(id, NULL, 10);
    json_t *there = known(s, content);
    if (!there) {
        json_t *token = json_deep_copy(v);
        json_object_set_new(token, "id", json_integer(number));
        json_object_del(token, "__type");
        return append(s, token);
    }
    if (json_integer_value(json_object_get(there, "id")) != number)
        return complain(s->complaint, "added_tokens_decoder: '%.40s' has id %lld, but %lld in tokenizer.json",
                        content, (long long)number,
                        (long long)json_integer_value(json_object_get(there, "id")));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        json_t *flag = json_object_get(v, flags[i]);
        if (flag) json_object_set(there, flags[i], flag);
    }
    return true;
}

/* Whether any of the files names it as special. */
static bool is_special(const struct settings *s, const char *content)
{
    const json_t *from[] = {s->config, s->map};
    for (int f = 0; f < 2; f++) {
        const json_t *more = json_object_get(from[f], "additional_special_tokens");
        for (int i = 0; i < PARTS; i++) {
            const char *text = text_of(json_object_get(from[f], parts[i]));
            if (text && !strcmp(text, content)) return true;
        }
        for (size_t i = 0; i < json_array_size(more); i++) {
            const char *text = text_of(json_array_get(more, i));
            if (text && !strcmp(text, content)) return true;
        }
    }
    return false;
}

static bool plain_token(struct settings *s, const char *content, json_int_t id, bool special)
{
    json_t *token = json_pack("{s:I, s:s, s:b, s:b}", "id", id, "content", content, "special", (int)special,
                              "normalized", 0);
    return token ? append(s, token) : complain(s->complaint, "no memory");
}

/* Ids by tokens, as versions before 4.34 have them. */
static bool older_tokens(struct settings *s)
{
    const char *content;
    json_t *id, *there;
    json_object_foreach((json_t *)s->older, content, id)
    {
        if (!json_is_integer(id))
            return complain(s->complaint, "added_tokens.json: '%.40s' has no id", content);
        if (!(there = known(s, content))) {
            if (!plain_token(s, content, json_integer_value(id), is_special(s, content))) return false;
        } else if (json_integer_value(json_object_get(there, "id")) != json_integer_value(id)) {
            return complain(s->complaint, "added_tokens.json: '%.40s' has id %lld, but %lld elsewhere",
                            content, (long long)json_integer_value(id),
                            (long long)json_integer_value(json_object_get(there, "id")));
        }
    }
    return true;
}

static json_t *vocabulary_id(const struct settings *s, const char *content)
{
    const json_t *model = json_object_get(s->file, "model");
    return json_object_get(json_object_get(model, "vocab"), content);
}

/* A special token that is a word of the model's is searched for, too. One that is nowhere would get a new id,
 * behind the model's table. */
static bool special_token(struct settings *s, const char *where, const json_t *v)
{
    const char *content = text_of(v);
    if (!content || known(s, content)) return true;
    json_t *id = vocabulary_id(s, content);
    if (id) return plain_token(s, content, json_integer_value(id), true);
    return complain(s->complaint, "%s: '%.60s' is no token of the vocabulary", where, content);
}

static bool special_list(struct settings *s, const char *where, const json_t *v)
{
    if (json_is_object(v)) { /* names of tokens, and these */
        const char *name;
        json_t *one;
        json_object_foreach((json_t *)v, name, one) if (!special_token(s, name, one)) return false;
        return true;
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!special_token(s, where, json_array_get(v, i))) return false;
    return true;
}

/* All of one file. */
static bool special_tokens(struct settings *s, const json_t *from)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)from, name, v)
    {
        size_t n = strlen(name);
        bool list = !strcmp(name, "additional_special_tokens") || !strcmp(name, "extra_special_tokens");
        bool one = n > 6 && !strcmp(name + n - 6, "_token") && !json_is_boolean(v);
        if (list && !special_list(s, name, v)) return false;
        if (one && !special_token(s, name, v)) return false;
    }
    return true;
}

static bool merge_tokens(struct settings *s)
{
    const json_t *decoder = json_object_get(s->config, "added_tokens_decoder");
    const char *id;
    json_t *v;
    if (!index_all(s)) return false;
    json_object_foreach((json_t *)decoder, id, v) if (!decoder_token(s, id, v)) return false;
    return (decoder || older_tokens(s)) && special_tokens(s, s->map) && special_tokens(s, s->config);
}

/* ---- Steps ---- */

/* The step of a kind, which may be one of a sequence; NULL: there is none. */
static json_t *step_of(json_t *v, const char *list, const char *type)
{
    const char *own = json_string_value(json_object_get(v, "type"));
    json_t *steps = json_object_get(v, list), *found = NULL;
    if (own && !strcmp(own, type)) return v;
    for (size_t i = 0; !found && i < json_array_size(steps); i++)
        found = step_of(json_array_get(steps, i), list, type);
    return found;
}

/* Classes of BERT put their own settings in place of tokenizer.json's; others do not read them. */
static bool set_bert(struct settings *s)
{
    static const char *const names[][2] = {{"do_lower_case", "lowercase"},
                                           {"strip_accents", "strip_accents"},
                                           {"tokenize_chinese_chars", "handle_chinese_chars"}};
    json_t *all = json_object_get(s->file, "normalizer"),
           *bert = step_of(all, "normalizers", "BertNormalizer");
    json_t *lower = step_of(all, "normalizers", "Lowercase");
    for (size_t i = 0; i < 3; i++) {
        json_t *v = json_object_get(s->config, names[i][0]);
        if (json_is_boolean(v) && bert) json_object_set(bert, names[i][1], v);
        else if (json_is_true(v) && !(lower && i == 0) && i < 2)
            return complain(s->complaint,
                            "tokenizer_config.json: %s, but tokenizer.json has no BertNormalizer",
                            names[i][0]);
    }
    return true;
}

/* Whether tokenizer.json puts a blank in front of a text. */
static bool has_prefix(json_t *file, json_t *bytes)
{
    json_t *cuts = json_object_get(file, "pre_tokenizer"), *v;
    json_t *mark = step_of(cuts, "pretokenizers", "Metaspace");
    const char *scheme = json_string_value(json_object_get(mark, "prepend_scheme"));
    if (step_of(json_object_get(file, "normalizer"), "normalizers", "Prepend")) return true;
    if (bytes) return json_is_true(json_object_get(bytes, "add_prefix_space"));
    if (scheme) return strcmp(scheme, "never") != 0;
    return mark && !((v = json_object_get(mark, "add_prefix_space")) && json_is_false(v));
}

/* Byte-level classes put it in tokenizer.json's place; others make all of it anew. */
static bool set_prefix(struct settings *s)
{
    const json_t *v = json_object_get(s->config, "add_prefix_space");
    json_t *bytes = step_of(json_object_get(s->file, "pre_tokenizer"), "pretokenizers", "ByteLevel");
    bool byte_class = class_is(s->config, "GPT2Tokenizer") || class_is(s->config, "RobertaTokenizer");
    if (!json_is_boolean(v) || has_prefix(s->file, bytes) == json_is_true(v)) return true;
    if (bytes && byte_class)
        return !json_object_set(bytes, "add_prefix_space", (json_t *)v) ||
               complain(s->complaint, "no memory");
    return complain(s->complaint,
                    "tokenizer_config.json: add_prefix_space is %s, and otherwise in tokenizer.json",
                    json_is_true(v) ? "true" : "false");
}

/* ---- The whole ---- */

static bool known_keys(const struct key_table *table, const char *family, const json_t *object,
                       const char *name, struct complaint *c)
{
    char why[280];
    const char *key;
    json_t *v;
    struct keys k;
    keys_begin(&k, table, family, object, name);
    json_object_foreach((json_t *)object, key, v) keys_get(&k, key); /* those that this file reads */
    return keys_end(&k, why, sizeof why) || complain(c, "%s", why);
}

bool settings_apply(json_t *file, const char *words, const json_t *config, const json_t *map,
                    const json_t *older, struct complaint *c)
{
    struct settings s = {file, NULL, NULL, config, map, older, c};
    bool good = known_keys(&settings_keys, words, config, "tokenizer_config.json", c) &&
                known_keys(&map_keys, "all", map, "special_tokens_map.json", c) && merge_tokens(&s) &&
                set_bert(&s) && set_prefix(&s);
    json_decref(s.index);
    return good;
}
