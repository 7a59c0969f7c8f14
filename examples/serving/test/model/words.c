/*
 * words.c -- text by the tokenizer that a GGUF file has itself: ids are those of the package
 * `tokenizers` by the words and merges of make_goldens.py, and those of `sentencepiece` by the files of
 * make_sentencepiece.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gguf.h"
#include "model_test.h"
#include "text.h"

enum { MOST = 16 };

static const struct {
    const char *model, *line;
    int32_t ids[MOST]; /* up to the first -1 */
} all[] = {
    {"gpt2", "a fox", {1, 30, 33, -1}},
    {"gpt2", "foxes fo\n a<|endoftext|>fox", {33, 5, 19, 36, 31, 34, 0, 33, -1}},
    {"gpt2", "hello, world!", {8, 5, 12, 12, 15, 28, 30, 23, 15, 18, 12, 4, 29, -1}},
    {"bert", "A fox, barking! FOX.", {2, 5, 6, 1, 7, 9, 1, 6, 10, 3, -1}},
    {"bert", "foxfox barks", {2, 6, 11, 7, 8, 3, -1}},
    {"bert", "a [MASK] f\xc3\xb3x", {2, 5, 4, 6, 3, -1}},
};

static void test_lines(const char *tiny)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[512];
        struct fault f = {{0}};
        int32_t *ids = NULL;
        int want = 0;
        snprintf(path, sizeof path, "%s/%s/model.gguf", tiny, all[i].model);
        struct text *t = text_open(path, NULL, &f);
        int n = t ? text_tokens(t, all[i].line, &ids, &f) : -1;
        while (all[i].ids[want] >= 0) want++;
        CHECK(n == want && !memcmp(ids, all[i].ids, sizeof *ids * (size_t)n),
              "%s: '%s' has other ids, %d: %s", all[i].model, all[i].line, n, f.text);
        free(ids);
        text_close(t);
    }
}

static json_t *load(const char *folder, const char *name)
{
    char path[512];
    json_error_t e;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *v = json_load_file(path, JSON_ALLOW_NUL, &e);
    CHECK(v, "%s: %s", path, e.text);
    return v;
}

static bool same_ids(const int32_t *ids, int n, const json_t *want)
{
    bool same = n >= 0 && (size_t)n == json_array_size(want);
    for (int i = 0; same && i < n; i++) same = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    return same;
}

/* SentencePiece's vocabulary in a file without a model. */
static void test_scored(const char *tiny, const char *name)
{
    char folder[512], path[600], strings_in[512];
    struct fault f = {{0}};
    snprintf(folder, sizeof folder, "%s/../tokenizers_gguf/%s", tiny, name);
    snprintf(strings_in, sizeof strings_in, "%s/../tokenizers", tiny);
    snprintf(path, sizeof path, "%s/words.gguf", folder);
    json_t *strings = load(strings_in, "strings.json"), *golden = load(folder, "golden.json");
    const json_t *ids_of = json_object_get(golden, "ids");
    struct text *t = text_open(path, NULL, &f);
    CHECK(t, "%s", f.text);
    for (size_t i = 0; t && i < json_array_size(strings); i++) {
        const json_t *s = json_array_get(strings, i);
        int32_t *ids = NULL;
        if (strlen(json_string_value(s)) != json_string_length(s)) continue; /* a line has no NUL */
        int n = text_tokens(t, json_string_value(s), &ids, &f);
        CHECK(same_ids(ids, n, json_array_get(ids_of, i)), "%s: string %zu '%s' has other ids", name, i,
              json_string_value(s));
        free(ids);
    }
    text_close(t);
    json_decref(strings);
    json_decref(golden);
}

/* Tokenizer files beside a GGUF file are asked first; one that has neither is refused. */
static void test_beside(const char *tiny, const char *scratch)
{
    static char data[1 << 18];
    char path[512], folder[256];
    struct fault f = {{0}};
    snprintf(folder, sizeof folder, "%s/words", scratch);
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/llama3/model.gguf", tiny);
    struct text *t = text_open(path, NULL, &f);
    CHECK(!t && strstr(f.text, "model 'none' is not known"), "llama3: '%s'", f.text);
    text_close(t);
    snprintf(path, sizeof path, "%s/bert/model.gguf", tiny);
    FILE *from = fopen(path, "rb");
    size_t n = from ? fread(data, 1, sizeof data, from) : 0;
    if (from) fclose(from);
    snprintf(path, sizeof path, "%s/words.gguf", folder);
    FILE *to = fopen(path, "wb");
    CHECK(to && fwrite(data, 1, n, to) == n && !fclose(to), "%s cannot be written", path);
    CHECK((t = text_open(path, NULL, &f)) != NULL, "%s", f.text);
    text_close(t);
    char beside[512];
    snprintf(beside, sizeof beside, "%s/vocab.txt", folder);
    to = fopen(beside, "wb");
    CHECK(to && fputs("[CLS]\n[SEP]\n[UNK]\nfox\n", to) >= 0 && !fclose(to), "%s cannot be written", beside);
    int32_t *ids = NULL;
    t = text_open(path, NULL, &f);
    CHECK(t && text_tokens(t, "fox", &ids, &f) == 3 && ids[1] == 3, "vocab.txt beside is not asked: %s",
          f.text);
    free(ids);
    text_close(t);
    remove(beside);
}

void test_words(const char *tiny, const char *scratch)
{
    test_lines(tiny);
    test_scored(tiny, "llama");
    test_scored(tiny, "gemma");
    test_scored(tiny, "no_bytes");
    test_beside(tiny, scratch);
}
