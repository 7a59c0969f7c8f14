/*
 * fuzz.c -- tokenizers whose files have a few bytes changed, asked for random texts and ids: an error or
 * ids and text within their bounds. What a sanitizer sees ends the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_test.h"

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

/* What changes files most is what they themselves are made of. */
/* clang-format off */
static const char *const bits[] = {
    "\"", "{", "}", "[", "]", ",", ":", "null", "true", "-1", "0", "99999999", "\\u0000", "\xff",
    "\\p{L}", "(?:", "+", "*", "\"type\":", "\"Sequence\"", "\"ByteLevel\"", "\"NFC\"", "\"Metaspace\"",
    "\"Strip\"", "\"\"", "\xe2\x96\x81", "<0x0A>", "##", "\"WordPiece\"", "\"Replace\""
};
/* clang-format on */

/* Replaces, removes, or doubles a few bytes; the new length. */
static size_t change(char *s, size_t n)
{
    size_t at = draw((uint32_t)n), size = draw(12) < 9 ? draw(6) : draw(400);
    if (at + size > n) size = n - at;
    switch (draw(4)) {
    case 0: s[at] = (char)draw(256); return n;
    case 1: memmove(s + at, s + at + size, n - at - size); return n - size;
    case 2: memmove(s + at + size, s + at, n - at); return n + size;
    default: break;
    }
    const char *bit = bits[draw(sizeof bits / sizeof *bits)];
    memmove(s + at + strlen(bit), s + at, n - at);
    memcpy(s + at, bit, strlen(bit));
    return n + strlen(bit);
}

/* UTF-8 of random characters, with words of the tokenizers between. */
static size_t random_text(char *s)
{
    /* clang-format off */
    static const char *const words[] = {
        " ", "  ", "hello", "\n", "<s>", "[MASK]", "foo", "left", "\xe2\x96\x81", "e\xcc\x81", "123",
        "'s", "\xe4\xbb\x8a", "\xf0\x9f\x98\x80", "<|endoftext|>", "\xcc\x83\xcc\xa3"
    };
    /* clang-format on */
    size_t n = 0;
    for (uint32_t i = draw(20); i > 0; i--) {
        const char *w = words[draw(sizeof words / sizeof *words)];
        if (draw(3)) n += (size_t)sprintf(s + n, "%s", w);
        else s[n++] = (char)draw(128);
    }
    return n;
}

static bool is_text(const char *s, size_t n)
{
    json_t *v = json_stringn(s, n); /* which is checked for UTF-8 */
    json_decref(v);
    return v != NULL;
}

static void check_use(struct tokenizer *t)
{
    char text[1024], out[8192];
    int32_t ids[4096];
    size_t size = random_text(text);
    int n = tokenizer_encode(t, text, size, ids, 4096, NULL);
    for (int i = 0; i < n && i < 4096; i++)
        check(ids[i] >= 0 && ids[i] < tokenizer_size(t), "id %d of %d", ids[i], tokenizer_size(t));
    check_limits_of(t, "a changed file", text, size);
    if (n < 0 || n > 64) n = 0;
    while (n < 80) ids[n++] = (int32_t)draw((uint32_t)tokenizer_size(t) + 3) - 1;
    int got = tokenizer_decode_all(t, ids, n, out, sizeof out);
    check(got < 0 || got >= (int)sizeof out || is_text(out, (size_t)got), "decoded text is no UTF-8");
    struct tokenizer_stream *s = tokenizer_stream_open(t);
    for (int i = 0; i < n; i++) tokenizer_stream_next(s, ids[i], out, sizeof out);
    tokenizer_stream_end(s, out, sizeof out);
    tokenizer_stream_close(s);
    for (size_t i = 0; i < 64; i++) text[i] = (char)draw(256);
    tokenizer_encode(t, text, 64, ids, 4096, NULL);
}

static void check_changed(const char *dir, const char *name, int rounds)
{
    char from[600], err[400];
    snprintf(from, sizeof from, "%s/%s", dir, name);
    json_t *file = load(from, "tokenizer.json");
    char *good = json_dumps(file, JSON_COMPACT | JSON_SORT_KEYS), *s = malloc(strlen(good) + 4096);
    json_decref(file);
    for (int i = 0; i < rounds; i++) {
        size_t n = strlen(good);
        memcpy(s, good, n);
        for (uint32_t k = draw(4); k > 0; k--) n = change(s, n);
        const char *folder = new_folder();
        store(folder, "tokenizer.json", s, n);
        *err = '\0';
        struct tokenizer *t = tokenizer_open(folder, err, sizeof err);
        check(t || (*err && !strchr(err, '\n')), "%s, round %d: '%s'", name, i, err);
        for (int k = 0; t && k < 4; k++) check_use(t);
        tokenizer_close(t);
    }
    free(good);
    free(s);
}

void check_fuzz(const char *dir, unsigned seed, int rounds)
{
    static const char *const names[] = {"gpt2",      "llama3", "llama2",       "gemma",
                                        "metaspace", "flags",  "bert_uncased", "bert_cased"};
    state = seed;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_changed(dir, names[i], rounds / (int)(sizeof names / sizeof *names) + 1);
}
