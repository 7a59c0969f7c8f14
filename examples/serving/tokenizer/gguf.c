/*
 * gguf.c -- the tokenizer that a GGUF file has in its metadata, as the files that it was made
 * of: `tokenizer.ggml.tokens`, a list by ids, `token_type`, of each token, and `merges`.
 *
 * Of WordPiece llama.cpp keeps tokens that begin a word with U+2581 in front, and those that go on
 * without their "##". Byte-level BPE is as in vocab.json; which regular expression cuts the text is said
 * by name. SentencePiece has `scores` in place of merges.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"
#include "words_keys.h"

enum { UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4 }; /* of token_type */

static const char mark[] = "\xe2\x96\x81"; /* for a blank */

struct gguf_words {
    const json_t *meta, *tokens, *types;
    struct complaint *complaint;
};

static json_t *of(const json_t *meta, const char *name)
{
    char whole[64];
    snprintf(whole, sizeof whole, "tokenizer.ggml.%s", name);
    return json_object_get(meta, whole);
}

/* Text of token i, or NULL. */
static const char *token(const struct gguf_words *w, size_t i)
{
    return json_string_value(json_array_get(w->tokens, i));
}

static bool is_a(const struct gguf_words *w, size_t i, int type)
{
    return json_integer_value(json_array_get(w->types, i)) == type;
}

/* A special token by the first of two ids that the file has. */
static void set_part(const struct gguf_words *w, json_t *config, const char *part, const char *first,
                     const char *second)
{
    json_t *id = of(w->meta, first);
    if (!id && second) id = of(w->meta, second);
    const char *text =
        json_is_integer(id) && json_integer_value(id) >= 0 ? token(w, (size_t)json_integer_value(id)) : NULL;
    if (text) json_object_set_new(config, part, json_string(text));
}

static json_t *config_of(const struct gguf_words *w, const char *class)
{
    json_t *config = json_pack("{s:s}", "tokenizer_class", class);
    set_part(w, config, "bos_token", "bos_token_id", NULL);
    set_part(w, config, "eos_token", "eos_token_id", NULL);
    set_part(w, config, "unk_token", "unknown_token_id", NULL);
    set_part(w, config, "pad_token", "padding_token_id", NULL);
    set_part(w, config, "cls_token", "cls_token_id", "bos_token_id");
    set_part(w, config, "sep_token", "seperator_token_id", "eos_token_id"); /* as the format spells it */
    set_part(w, config, "mask_token", "mask_token_id", NULL);
    return config;
}

static bool flag_of(const struct gguf_words *w, const char *name, bool otherwise)
{
    const json_t *v = of(w->meta, name);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

/* What stands around a text; `begins`: one begins with a token for that, if the file does not say it. */
static void set_around(const struct gguf_words *w, json_t *config, bool begins)
{
    json_object_set_new(config, AROUND_BY_CONFIG, json_true());
    json_object_set_new(config, "add_bos_token", json_boolean(flag_of(w, "add_bos_token", begins)));
    json_object_set_new(config, "add_eos_token", json_boolean(flag_of(w, "add_eos_token", false)));
}

/* Of two ways to say so, the id that stands for all others. */
static bool stands_for_all(const struct gguf_words *w, size_t i)
{
    const json_t *id = of(w->meta, "unknown_token_id");
    return is_a(w, i, UNKNOWN) || (json_is_integer(id) && json_integer_value(id) == (json_int_t)i);
}

/* Tokens that a text is searched for are no words of the model, but for the one that stands for all
 * others. A user's token is searched for in the text as it came, or as it was `normalized`. */
static json_t *words_of(const struct gguf_words *w, json_t *config, bool normalized)
{
    json_t *words = json_object(), *added = json_object();
    for (size_t i = 0; i < json_array_size(w->tokens); i++) {
        char id[24];
        bool special = is_a(w, i, CONTROL) || is_a(w, i, UNKNOWN);
        snprintf(id, sizeof id, "%zu", i);
        if (special || is_a(w, i, USER_DEFINED))
            json_object_set_new(added, id,
                                json_pack("{s:s, s:b, s:b}", "content", token(w, i), "special", special,
                                          "normalized", normalized && !special));
        if (stands_for_all(w, i) || !json_object_get(added, id))
            json_object_set_new(words, token(w, i), json_integer((json_int_t)i));
    }
    json_object_set_new(config, "added_tokens_decoder", added);
    return words;
}

/* ---- WordPiece ---- */

static json_t *pieces_of(const struct gguf_words *w)
{
    json_t *words = json_object();
    for (size_t i = 0; i < json_array_size(w->tokens); i++) {
        const char *s = token(w, i);
        struct text piece = {0};
        bool begins = !strncmp(s, mark, 3);
        if (!is_a(w, i, CONTROL) && !begins) text_add(&piece, "##", 2);
        text_add(&piece, begins ? s + 3 : s, strlen(s) - (begins ? 3 : 0));
        if (piece.failed || json_object_setn_new(words, piece.data, piece.size, json_integer((json_int_t)i)))
            complain(w->complaint, "token %zu: no memory", i);
        text_free(&piece);
    }
    return words;
}

static json_t *wordpiece(const struct gguf_words *w, json_t **config)
{
    json_t *words = pieces_of(w);
    *config = config_of(w, "BertTokenizer");
    json_t *file = w->complaint->made ? NULL : file_of_words(*config, words, w->complaint);
    json_decref(words);
    return file;
}

/* ---- Byte-level BPE ---- */

static json_t *bytes(const struct gguf_words *w, json_t **config)
{
    static const struct {
        const char *name, *class;
        bool begins; /* a text begins with the token for that, unless the file says otherwise */
    } cuts[] = {{"gpt-2", "GPT2Tokenizer", false},
                {"qwen2", "Qwen2Tokenizer", false},
                {"deepseek-r1-qwen", "Qwen2Tokenizer", false},
                {"llama-bpe", CLASS_LLAMA3, true},
                {"llama3", CLASS_LLAMA3, true},
                {"tekken", CLASS_TEKKEN, true},
                {"smollm", CLASS_DIGITS, false}};
    const json_t *pre = of(w->meta, "pre");
    const char *family = json_string_value(json_object_get(w->meta, "general.architecture"));
    bool old = !pre && (!family || !strcmp(family, "gpt2")); /* of the time before others had such a model */
    const char *name = old ? "gpt-2" : json_string_value(pre), *class = NULL;
    bool begins = false;
    for (size_t i = 0; name && i < sizeof cuts / sizeof *cuts; i++)
        if (!strcmp(name, cuts[i].name)) class = cuts[i].class, begins = cuts[i].begins;
    if (class && !json_is_array(of(w->meta, "merges"))) {
        complain(w->complaint, "there is no list tokenizer.ggml.merges");
        return NULL;
    }
    if (!class) {
        if (pre) complain(w->complaint, "tokenizer.ggml.pre '%.40s' is not known", name ? name : "?");
        else
            complain(w->complaint, "there is no tokenizer.ggml.pre, which says how a text is cut into words");
        return NULL;
    }
    *config = config_of(w, class);
    set_around(w, *config, begins);
    json_t *words = words_of(w, *config, false);
    json_t *file = file_of_merges(*config, words, of(w->meta, "merges"), w->complaint);
    json_decref(words);
    return file;
}

/* ---- SentencePiece ---- */

static json_t *scored(const struct gguf_words *w, json_t **config)
{
    json_t *scores = of(w->meta, "scores");
    size_t n = json_array_size(w->tokens);
    bool good = json_is_array(scores) || complain(w->complaint, "there is no list tokenizer.ggml.scores");
    if (good && json_array_size(scores) != n)
        good = complain(w->complaint, "%zu tokens have %zu scores", n, json_array_size(scores));
    if (good && !w->types) good = complain(w->complaint, "there is no list tokenizer.ggml.token_type");
    if (!good) return NULL;
    *config = config_of(w, "LlamaTokenizer");
    set_around(w, *config, true);
    bool prefix = flag_of(w, "add_space_prefix", true);
    json_object_set_new(*config, "add_prefix_space", json_boolean(prefix));
    json_t *words = words_of(w, *config, !prefix); /* a normalized token would have the prefix, too */
    json_t *file = file_of_scores(*config, words, scores);
    json_decref(words);
    return file;
}

/* ---- The file ---- */

static bool tokens_there(const struct gguf_words *w)
{
    size_t n = json_array_size(w->tokens);
    if (!n) return complain(w->complaint, "there is no list tokenizer.ggml.tokens");
    if (w->types && json_array_size(w->types) != n)
        return complain(w->complaint, "%zu tokens have %zu types", n, json_array_size(w->types));
    for (size_t i = 0; i < n; i++)
        if (!token(w, i)) return complain(w->complaint, "token %zu is no text in UTF-8", i);
    return true;
}

/* Whether a value is what its key's readers take it for; another one would be passed over. */
static bool is_typed(const char *name, const json_t *v)
{
    static const char *const flags[] = {"add_bos_token", "add_eos_token", "add_space_prefix"};
    size_t n = strlen(name), id = strlen("_token_id");
    if (n > id && !strcmp(name + n - id, "_token_id")) return json_is_integer(v);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(name, flags[i])) return json_is_boolean(v);
    return true;
}

static bool types_good(const struct gguf_words *w)
{
    const char *name;
    json_t *v;
    size_t i;
    json_object_foreach((json_t *)w->meta, name, v)
    {
        if (!strncmp(name, "tokenizer.ggml.", 15) && !json_is_null(v) && !is_typed(name + 15, v))
            return complain(w->complaint, "%.100s is no %s", name,
                            strstr(name, "_token_id") ? "integer" : "truth value");
    }
    json_array_foreach(w->types, i, v)
    {
        if (!json_is_integer(v)) return complain(w->complaint, "the type of token %zu is no integer", i);
    }
    return true;
}

/* Keys that say something else than what the table knows. All that it reads are asked for by name. */
static bool keys_known(const json_t *metadata, const char *model, struct complaint *c)
{
    char why[280];
    const char *name;
    json_t *v, *words = json_object();
    struct keys k;
    json_object_foreach((json_t *)metadata, name, v)
    {
        if (!strncmp(name, "tokenizer.", 10)) json_object_set(words, name, v);
    }
    keys_begin(&k, &words_keys, model, words, "GGUF");
    json_object_foreach(words, name, v) keys_get(&k, name);
    bool good = keys_end(&k, why, sizeof why) || complain(c, "%s", why);
    json_decref(words);
    return good;
}

json_t *file_of_gguf(const json_t *metadata, json_t **config, struct complaint *c)
{
    struct gguf_words w = {metadata, of(metadata, "tokens"), of(metadata, "token_type"), c};
    const char *model = json_string_value(of(metadata, "model"));
    static const struct {
        const char *name;
        json_t *(*make)(const struct gguf_words *w, json_t **config);
    } models[] = {{"bert", wordpiece}, {"gpt2", bytes}, {"llama", scored}};
    for (size_t i = 0; model && i < sizeof models / sizeof *models; i++)
        if (!strcmp(model, models[i].name))
            return keys_known(metadata, model, c) && tokens_there(&w) && types_good(&w)
                       ? models[i].make(&w, config)
                       : NULL;
    complain(c, "tokenizer.ggml.model '%.40s' is not known: tokenizer.json is wanted beside the file",
             model ? model : "none");
    return NULL;
}
