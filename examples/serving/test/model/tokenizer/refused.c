/*
 * refused.c -- files that are damaged, or that ask for what is not known: one line that names it, and no
 * tokenizer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_test.h"

/* A member of a good file by its path, which gets another value, and words of the complaint. */
struct damage {
    const char *base, *path, *value, *words;
};

#define SPLIT "pre_tokenizer.pretokenizers.0.pattern.Regex"

static const struct damage damages[] = {
    /* What is not known */
    {"gpt2", "version", "\"2.0\"", "version '2.0'"},
    {"gpt2", "shape", "1", "'shape' is not known"},
    {"gpt2", "model.type", "\"Unigram\"", "model 'Unigram' is not known"},
    {"gpt2", "model.sampling", "0.5", "'sampling' is not known"},
    {"gpt2", "model.dropout", "0.1", "dropout"},
    {"gpt2", "normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"\"}", "'Precompiled'"},
    {"gpt2", "normalizer", "{\"type\": \"Nmt\"}", "normalizer 'Nmt' is not known"},
    {"gpt2", "normalizer", "{\"form\": \"NFC\"}", "normalizer has no type"},
    {"gpt2", "normalizer", "{\"type\": \"NFC\", \"fast\": true}", "NFC: 'fast'"},
    {"gpt2", "pre_tokenizer", "{\"type\": \"UnicodeScripts\"}", "'UnicodeScripts' is not known"},
    {"gpt2", "pre_tokenizer.limit", "3", "ByteLevel: 'limit'"},
    {"gpt2", "pre_tokenizer.use_regex", "3", "'use_regex' is neither true nor false"},
    {"gpt2", "decoder", "{\"type\": \"CTC\"}", "decoder 'CTC' is not known"},
    {"gpt2", "decoder", "{\"type\": \"Sequence\", \"decoders\": 3}", "no list 'decoders'"},
    {"gpt2", "decoder", "{\"type\": \"Strip\", \"content\": \"ab\", \"start\": 1, \"stop\": 0}",
     "not one character"},
    {"gpt2", "decoder", "{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}", "'start'"},
    {"gpt2", "post_processor", "{\"type\": \"PairProcessing\"}", "'PairProcessing' is not known"},
    {"mistral", "pre_tokenizer.prepend_scheme", "\"sometimes\"", "'sometimes', which is not known"},
    {"mistral", "pre_tokenizer.replacement", "\"ab\"", "not one character"},
    {"llama3", "pre_tokenizer.pretokenizers.0.behavior", "\"Dropped\"", "'Dropped', which is not known"},
    {"llama3", "pre_tokenizer.pretokenizers.0.pattern", "{\"Glob\": \"*\"}", "neither a String nor a Regex"},
    {"llama3", "pre_tokenizer.pretokenizers.0.pattern", "{\"String\": \"\"}", "empty string"},
    {"llama3", "added_tokens.0.color", "1", "'color' is not known"},
    /* Expressions that PCRE2 would read otherwise, or not at all */
    {"llama3", SPLIT, "\"[a-z&&[^b]]\"", "not known before character"},
    {"llama3", SPLIT, "\"[[:alpha:]]\"", "not known"},
    {"llama3", SPLIT, "\"(?i)x|y\"", "not known"},
    {"llama3", SPLIT, "\"(?<name>x)\"", "not known"},
    {"llama3", SPLIT, "\"a{1,2}+\"", "not known"},
    {"llama3", SPLIT, "\"a{,2}\"", "not known"},
    {"llama3", SPLIT, "\"^a\"", "not known"},
    {"llama3", SPLIT, "\"a$\"", "not known"},
    {"llama3", SPLIT, "\".\"", "not known"},
    {"llama3", SPLIT, "\"\\\\Ka\"", "not known"},
    {"llama3", SPLIT, "\"a\\\\\"", "not known"},
    {"llama3", SPLIT, "\"[^\\\\S]\"", "not known"},
    {"llama3", SPLIT, "\"\\\\p{Nonsense}\"", "'\\p{Nonsense}'"},
    {"llama3", SPLIT, "\"\\\\p{\"", "not known"},
    {"llama3", SPLIT, "\"[a\"", "'[a'"},
    {"llama3", SPLIT, "\"(a\"", "'(a'"},
    {"llama3", SPLIT, "\"a*\"", "matches nothing"},
    {"llama3", SPLIT, "\"\"", "empty"},
    /* What does not fit together */
    {"gpt2", "model", "null", "there is no model"},
    {"gpt2", "model.vocab", "[1]", "'vocab' is no object"},
    {"gpt2", "model.vocab.zz", "99999999999", "id of 'zz'"},
    {"gpt2", "model.vocab.zz", "4194304", "id of 'zz'"},
    {"gpt2", "model.vocab.zz", "-1", "id of 'zz'"},
    {"gpt2", "model.vocab.zz", "\"1\"", "id of 'zz'"},
    {"gpt2", "model.vocab.zz", "1", "id 1 belongs to"},
    {"gpt2", "model.merges", "{}", "'merges' is no list"},
    {"gpt2", "model.merges.3", "[\"q\", \"zq\"]", "merge 3, 'q' and 'zq'"},
    {"gpt2", "model.merges.3", "[\"q\"]", "merge 3 is not two strings"},
    {"gpt2", "model.merges.3", "\"q\"", "merge 3 is not two strings"},
    {"gpt2", "model.merges.3", "\"a b c\"", "merge 3 is not two strings"},
    {"gpt2", "model.merges.3", "[\"z\", \"q\"]", "merge 3, 'z' and 'q'"},
    {"gpt2", "model.unk_token", "\"<oov>\"", "unk_token '<oov>' is not in the vocabulary"},
    {"gpt2", "model.byte_fallback", "\"yes\"", "'byte_fallback' is neither"},
    {"gpt2", "added_tokens", "{}", "'added_tokens' is no list"},
    {"gpt2", "added_tokens.0.id", "7", "has id 7, but 0"},
    {"gpt2", "added_tokens.0.id", "-7", "'id' is no number"},
    {"gpt2", "added_tokens.0.id", "null", "without an id"},
    {"gpt2", "added_tokens.0.content", "\"\"", "token 0 has no content"},
    {"gpt2", "added_tokens.0.content", "\"<x>\"", "id 0 belongs to"},
    {"gpt2", "added_tokens.0.content", "3", "'content' is no string"},
    {"bert_uncased", "model.unk_token", "null", "without unk_token"},
    {"bert_uncased", "model.max_input_chars_per_word", "-3", "'max_input_chars_per_word'"},
    {"bert_uncased", "post_processor.single.0.SpecialToken.id", "\"[NO]\"", "'[NO]' has no ids"},
    {"bert_uncased", "post_processor.single.0", "{\"Other\": 1}", "neither SpecialToken nor Sequence"},
    {"bert_uncased", "post_processor.single.1.Sequence.id", "\"B\"", "another Sequence"},
    {"bert_uncased", "post_processor.single", "[]", "has no Sequence"},
    {"bert_uncased", "post_processor.special_tokens.[CLS].ids.0", "99999", "no token 99999"},
    {"bert_uncased", "post_processor.special_tokens.[CLS].ids.0", "-1", "an id is no number"},
    {"bert_cased", "post_processor.cls", "[\"[CLS]\"]", "'cls' is not a token and its id"},
    {"bert_cased", "decoder.prefix", "\"\"", "'prefix' is empty"},
};

/* Sets the member at a path, whose parts are names or indices. */
static void set(json_t *v, const char *path, json_t *value)
{
    char part[80];
    size_t n = strcspn(path, ".");
    snprintf(part, sizeof part, "%.*s", (int)n, path);
    bool last = !path[n];
    if (json_is_array(v)) {
        if (last) json_array_set_new(v, (size_t)atoi(part), value);
        else set(json_array_get(v, (size_t)atoi(part)), path + n + 1, value);
    } else if (last) json_object_set_new(v, part, value);
    else set(json_object_get(v, part), path + n + 1, value);
}

static void check_folder(const char *folder, const char *what, const char *words)
{
    char err[400] = "";
    struct tokenizer *t = tokenizer_open(folder, err, sizeof err);
    check(!t && strstr(err, words) && !strchr(err, '\n'), "%s: expected '%s', got '%s'", what, words,
          t ? "a tokenizer" : err);
    tokenizer_close(t);
}

static void check_damage(const char *dir, const struct damage *d)
{
    char from[600], what[200];
    snprintf(from, sizeof from, "%s/%s", dir, d->base);
    snprintf(what, sizeof what, "%s with %s = %s", d->base, d->path, d->value);
    json_t *file = load(from, "tokenizer.json"), *value = json_loads(d->value, JSON_DECODE_ANY, NULL);
    if (!check(value != NULL, "%s: no JSON", what)) return;
    set(file, d->path, value);
    char *text = json_dumps(file, 0);
    const char *folder = new_folder();
    store(folder, "tokenizer.json", text, strlen(text));
    check_folder(folder, what, d->words);
    free(text);
    json_decref(file);
}

/* A file that breaks off. */
static void check_truncated(const char *dir, const char *base)
{
    char from[600], what[64];
    snprintf(from, sizeof from, "%s/%s", dir, base);
    json_t *file = load(from, "tokenizer.json");
    char *text = json_dumps(file, 0);
    size_t n = strlen(text);
    for (int i = 0; i < 24; i++) {
        const char *folder = new_folder();
        snprintf(what, sizeof what, "%d / 24 of a file", i);
        store(folder, "tokenizer.json", text, n * (size_t)i / 24);
        check_folder(folder, what, "tokenizer.json, line");
    }
    free(text);
    json_decref(file);
}

/* Files by their names and contents, ended by NULL, and words of the complaint. */
static void check_files(const char *words, const char *const *files)
{
    const char *folder = new_folder();
    for (; *files; files += 2) store(folder, files[0], files[1], strlen(files[1]));
    check_folder(folder, words, words);
}
#define FILES(words, ...) check_files(words, (const char *const[]){__VA_ARGS__, NULL})

void check_refused(const char *dir)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) check_damage(dir, &damages[i]);
    check_truncated(dir, "gpt2");
    check_truncated(dir, "bert_uncased");
    check_folder("/nowhere", "no folder", "there is no tokenizer.json");
    FILES("there is no merges.txt", "vocab.json", "{}");
    FILES("vocab.json is no object", "vocab.json", "[]", "merges.txt", "");
    FILES("merge 0", "vocab.json", "{\"a\": 0}", "merges.txt", "#version: 0.2\na b\n");
    FILES("merges.txt, line 2", "vocab.json", "{\"a\": 0}", "merges.txt", "\n\xff \xfe\n");
    FILES("'T5Tokenizer'", "vocab.json", "{\"a\": 0}", "merges.txt", "", "tokenizer_config.json",
          "{\"tokenizer_class\": \"T5Tokenizer\"}");
    FILES("'CanineTokenizer'", "vocab.txt", "a\n", "tokenizer_config.json",
          "{\"tokenizer_class\": \"CanineTokenizer\"}");
    FILES("token '[CLS]' is not in the vocabulary", "vocab.txt", "[UNK]\n[SEP]\n");
    FILES("vocab.txt, line 2", "vocab.txt", "[UNK]\n\xc3\n");
    FILES("tokenizer_config.json, line", "vocab.txt", "[UNK]\n", "tokenizer_config.json", "{");
    FILES("add_bos_token", "vocab.json", "{\"a\": 0}", "merges.txt", "", "tokenizer_config.json",
          "{\"add_bos_token\": true}");
}
