/*
 * files.c -- a checkpoint's files, and a tokenizer.json for a checkpoint that has only the older
 * ones.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "regular.h"
#include "tokenizer_json.h"

/* The file, or NULL: with a complaint if it is there all the same. */
static FILE *open_file(const char *dir, const char *name, struct complaint *c)
{
    struct text path = {0};
    char why[128] = "no memory";
    text_add(&path, dir, strlen(dir));
    text_add(&path, "/", 1);
    text_add(&path, name, strlen(name) + 1);
    FILE *f = path.failed ? NULL : regular_stream(path.data, REGULAR_JSON, why, sizeof why);
    if (!f && (path.failed || errno != ENOENT)) complain(c, "%s: %s", name, why);
    text_free(&path);
    return f;
}

json_t *file_json(const char *dir, const char *name, struct complaint *c)
{
    FILE *f = open_file(dir, name, c);
    if (!f) return NULL;
    json_error_t e;
    json_t *v = json_stream(f, JSON_ALLOW_NUL, &e);
    fclose(f);
    if (!v) complain(c, "%s, line %d: %s", name, e.line, e.text);
    else if (!json_is_object(v)) {
        complain(c, "%s is no object", name);
        json_decref(v);
        v = NULL;
    }
    return v;
}

/* A line without its end: false when there is none any more. */
static bool next_line(FILE *f, char **line, size_t *room, size_t *n)
{
    ssize_t got = getline(line, room, f);
    if (got < 0) return false;
    *n = (size_t)got;
    while (*n && strchr("\r\n", (*line)[*n - 1]) && (*line)[*n - 1]) (*line)[--*n] = '\0';
    return true;
}

/* The lines of vocab.txt: each is a token, and its number the token's id. */
static json_t *words_of(FILE *f, struct complaint *c)
{
    json_t *words = json_object();
    char *line = NULL;
    size_t room = 0, n;
    for (json_int_t id = 0; next_line(f, &line, &room, &n); id++) {
        while (n && strchr(" \t", line[n - 1])) line[--n] = '\0';
        if (json_object_setn_new(words, line, n, json_integer(id)) != 0) {
            complain(c, "vocab.txt, line %d is no UTF-8", (int)id + 1);
            break;
        }
    }
    free(line);
    return words;
}

/* The lines of merges.txt. */
static json_t *merges_of(FILE *f, struct complaint *c)
{
    json_t *merges = json_array();
    char *line = NULL;
    size_t room = 0, n;
    for (int number = 1; next_line(f, &line, &room, &n); number++) {
        if (n == 0 || strncmp(line, "#version", 8) == 0) continue;
        if (json_array_append_new(merges, json_stringn(line, n)) != 0) {
            complain(c, "merges.txt, line %d is no UTF-8", number);
            break;
        }
    }
    free(line);
    return merges;
}

static bool flag_of(const json_t *config, const char *member, bool otherwise)
{
    const json_t *v = json_object_get(config, member);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

/* A special token by its part, or what it usually is. */
static const char *part_of(const json_t *config, const char *part, const char *otherwise)
{
    const json_t *v = json_object_get(config, part);
    if (json_is_object(v)) v = json_object_get(v, "content");
    return json_is_string(v) ? json_string_value(v) : otherwise;
}

static json_t *id_of(const json_t *words, const char *token, struct complaint *c)
{
    json_t *id = json_object_get(words, token);
    if (!id) complain(c, "token '%.40s' is not in the vocabulary", token);
    return json_incref(id);
}

/* The entry of added_tokens_decoder for an id, or of a special token of the vocabulary. */
static void add_token(json_t *to, json_t *id, const char *content, bool lstrip)
{
    json_array_append_new(to, json_pack("{s:O, s:s, s:b, s:b, s:b}", "id", id, "content", content, "special",
                                        1, "normalized", 0, "lstrip", (int)lstrip));
}

static json_t *added_of(const json_t *config, const json_t *words, const char *const *parts)
{
    json_t *list = json_array(), *decoder = json_object_get(config, "added_tokens_decoder"), *v;
    const char *id;
    json_object_foreach(decoder, id, v)
    {
        json_t *token = json_deep_copy(v);
        json_object_set_new(token, "id", json_integer(strtoll(id, NULL, 10)));
        json_array_append_new(list, token);
    }
    for (size_t i = 0; !decoder && parts[i]; i += 2) {
        const char *content = part_of(config, parts[i], parts[i + 1]);
        json_t *number = json_object_get(words, content);
        bool seen = false;
        for (size_t k = 0; k < json_array_size(list); k++)
            seen |= json_object_get(json_array_get(list, k), "id") == number;
        if (number && !seen)
            add_token(list, number, content, strcmp(parts[i], "mask_token") == 0 && *content == '<');
    }
    return list;
}

/* Two tokens around a text: [[name, id], [name, id]] as BertProcessing and RobertaProcessing have them. */
static json_t *around(const char *type, const json_t *config, const json_t *words, const char *cls,
                      const char *sep, struct complaint *c)
{
    cls = part_of(config, "cls_token", cls);
    sep = part_of(config, "sep_token", sep);
    json_t *first = id_of(words, cls, c), *last = id_of(words, sep, c);
    return json_pack("{s:s, s:[s, o], s:[s, o]}", "type", type, "cls", cls, first, "sep", sep, last);
}

static json_t *bert(const json_t *config, json_t *words, struct complaint *c)
{
    static const char *const parts[] = {"pad_token", "[PAD]", "unk_token",  "[UNK]",  "cls_token", "[CLS]",
                                        "sep_token", "[SEP]", "mask_token", "[MASK]", NULL};
    json_t *accents = json_object_get(config, "strip_accents");
    json_t *normalizer =
        json_pack("{s:s, s:b, s:b, s:O?}", "type", "BertNormalizer", "lowercase",
                  (int)flag_of(config, "do_lower_case", true), "handle_chinese_chars",
                  (int)flag_of(config, "tokenize_chinese_chars", true), "strip_accents", accents);
    json_t *post = around("BertProcessing", config, words, "[CLS]", "[SEP]", c);
    return json_pack("{s:o, s:o, s:{s:s}, s:o, s:{s:s, s:s}, s:{s:s, s:s, s:O}}", "added_tokens",
                     added_of(config, words, parts), "normalizer", normalizer, "pre_tokenizer", "type",
                     "BertPreTokenizer", "post_processor", post, "decoder", "type", "WordPiece", "prefix",
                     "##", "model", "type", "WordPiece", "unk_token", part_of(config, "unk_token", "[UNK]"),
                     "vocab", words);
}

/* Byte-level BPE with steps of its own; those that are NULL are left out. */
static json_t *byte_level(json_t *words, json_t *merges, json_t *added, json_t *normalizer, json_t *cut,
                          json_t *post)
{
    return json_pack("{s:o, s:o*, s:o, s:o*, s:{s:s}, s:{s:s, s:O, s:O}}", "added_tokens", added,
                     "normalizer", normalizer, "pre_tokenizer", cut, "post_processor", post, "decoder",
                     "type", "ByteLevel", "model", "type", "BPE", "vocab", words, "merges", merges);
}

static json_t *gpt2(const json_t *config, json_t *words, json_t *merges, struct complaint *c)
{
    static const char *const parts[] = {"bos_token",     "<|endoftext|>", "eos_token",
                                        "<|endoftext|>", "unk_token",     "<|endoftext|>",
                                        "pad_token",     "<|endoftext|>", NULL};
    if (flag_of(config, "add_bos_token", false) && !json_object_get(config, AROUND_BY_CONFIG))
        complain(c, "tokenizer_config.json: add_bos_token is not known");
    json_t *cut = json_pack("{s:s, s:b}", "type", "ByteLevel", "add_prefix_space",
                            (int)flag_of(config, "add_prefix_space", false));
    return byte_level(words, merges, added_of(config, words, parts), NULL, cut, NULL);
}

static json_t *roberta(const json_t *config, json_t *words, json_t *merges, struct complaint *c)
{
    static const char *const parts[] = {"bos_token",  "<s>",       "eos_token", "</s>",      "unk_token",
                                        "<unk>",      "pad_token", "<pad>",     "cls_token", "<s>",
                                        "mask_token", "<mask>",    NULL};
    json_t *cut = json_pack("{s:s, s:b}", "type", "ByteLevel", "add_prefix_space",
                            (int)flag_of(config, "add_prefix_space", false));
    return byte_level(words, merges, added_of(config, words, parts), NULL, cut,
                      around("RobertaProcessing", config, words, "<s>", "</s>", c));
}

/* What the regular expressions of Qwen 2 and LLaMA 3 have before and behind that of digits. */
#define LETTERS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Mistral's, by the pattern in its files: a word's first letters may be large, all others are small. */
#define LARGE "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define SMALL "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define TEKKEN                                                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?[" LARGE "]*[" SMALL "]+|[^\\r\\n\\p{L}\\p{N}]?[" LARGE "]+[" SMALL               \
    "]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static json_t *split_by(const char *pattern)
{
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s, s:b, s:b}]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", pattern, "behavior", "Isolated", "type",
                     "ByteLevel", "add_prefix_space", 0, "use_regex", 0);
}

static json_t *qwen2(const json_t *config, json_t *words, json_t *merges, struct complaint *c)
{
    static const char *const parts[] = {"eos_token", "<|endoftext|>", "pad_token", "<|endoftext|>", NULL};
    (void)c;
    return byte_level(words, merges, added_of(config, words, parts), json_pack("{s:s}", "type", "NFC"),
                      split_by(LETTERS "\\p{N}" SIGNS), NULL);
}

/* Each digit alone, and what is between them as GPT-2 has it. */
static json_t *split_digits(void)
{
    return json_pack("{s:s, s:[{s:s, s:b}, {s:s, s:b}]}", "type", "Sequence", "pretokenizers", "type",
                     "Digits", "individual_digits", 1, "type", "ByteLevel", "add_prefix_space", 0);
}

/* `whole`: a word that is a token is not merged. */
static json_t *cut_by(const json_t *config, json_t *words, json_t *merges, json_t *cut, bool whole)
{
    static const char *const parts[] = {"bos_token", "<|begin_of_text|>", NULL};
    json_t *file = byte_level(words, merges, added_of(config, words, parts), NULL, cut, NULL);
    json_object_set_new(json_object_get(file, "model"), "ignore_merges", json_boolean(whole));
    return file;
}

json_t *file_of_merges(const json_t *config, json_t *words, json_t *merges, struct complaint *c)
{
    if (class_is(config, "RobertaTokenizer")) return roberta(config, words, merges, c);
    if (class_is(config, "Qwen2Tokenizer")) return qwen2(config, words, merges, c);
    if (class_is(config, CLASS_LLAMA3))
        return cut_by(config, words, merges, split_by(LETTERS "\\p{N}{1,3}" SIGNS), true);
    if (class_is(config, CLASS_TEKKEN)) return cut_by(config, words, merges, split_by(TEKKEN), true);
    if (class_is(config, CLASS_DIGITS)) return cut_by(config, words, merges, split_digits(), false);
    if (!json_object_get(config, "tokenizer_class") || class_is(config, "GPT2Tokenizer"))
        return gpt2(config, words, merges, c);
    complain(c, "vocab.json and merges.txt of tokenizer_class '%.60s', which is not known",
             part_of(config, "tokenizer_class", "?"));
    return NULL;
}

/* LLaMA's SentencePiece: U+2581 for each blank, and one in front of a text, if the configuration says so. */
json_t *file_of_scores(const json_t *config, json_t *words, json_t *scores)
{
    static const char mark[] = "\xe2\x96\x81";
    static const char *const none[] = {NULL};
    bool prefix = flag_of(config, "add_prefix_space", true);
    json_t *steps =
        json_pack("[{s:s, s:{s:s}, s:s}]", "type", "Replace", "pattern", "String", " ", "content", mark);
    json_t *back = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern", "String",
                             mark, "content", " ", "type", "ByteFallback", "type", "Fuse");
    if (prefix) json_array_insert_new(steps, 0, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", mark));
    if (prefix)
        json_array_append_new(
            back, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    return json_pack("{s:o, s:{s:s, s:o}, s:{s:s, s:o}, s:{s:s, s:s*, s:O, s:O}}", "added_tokens",
                     added_of(config, words, none), "normalizer", "type", "Sequence", "normalizers", steps,
                     "decoder", "type", "Sequence", "decoders", back, "model", "type", SCORED_MODEL,
                     "unk_token", part_of(config, "unk_token", NULL), "vocab", words, "scores", scores);
}

json_t *file_of_words(const json_t *config, json_t *words, struct complaint *c)
{
    if (!json_object_get(config, "tokenizer_class") || class_is(config, "BertTokenizer") ||
        class_is(config, "DistilBertTokenizer") || class_is(config, "ElectraTokenizer"))
        return bert(config, words, c);
    complain(c, "vocab.txt of tokenizer_class '%.60s', which is not known",
             part_of(config, "tokenizer_class", "?"));
    return NULL;
}

json_t *file_legacy(const char *dir, const json_t *config, const char **name, struct complaint *c)
{
    json_t *words = file_json(dir, "vocab.json", c), *merges = NULL, *v = NULL;
    FILE *f = c->made ? NULL : open_file(dir, words ? "merges.txt" : "vocab.txt", c);
    *name = words ? "vocab.json" : "vocab.txt";
    if (!f)
        complain(c, words ? "there is no merges.txt" : "there is no tokenizer.json, vocab.json or vocab.txt");
    else if (words) merges = merges_of(f, c);
    else words = words_of(f, c);
    if (!c->made) v = merges ? file_of_merges(config, words, merges, c) : file_of_words(config, words, c);
    if (!v) complain(c, "no memory");
    if (f) fclose(f);
    json_decref(words);
    json_decref(merges);
    if (!c->made) return v;
    json_decref(v);
    return NULL;
}
