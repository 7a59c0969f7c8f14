/*
 * calls.c -- arguments at their ends, special tokens, texts that are long or no UTF-8, and streams.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_test.h"

static struct tokenizer *open_one(const char *dir, const char *name)
{
    char path[600], err[400] = "";
    snprintf(path, sizeof path, "%s/%s", dir, name);
    struct tokenizer *t = tokenizer_open(path, err, sizeof err);
    if (!t) puts(err), exit(1);
    return t;
}

/* No more is stored than there is room for, and the number does not depend on it. */
static void check_room(struct tokenizer *t)
{
    static const char text[] = "hello world, hello kernels";
    int32_t all[64], ids[64];
    int n = tokenizer_encode(t, text, sizeof text - 1, all, 64, NULL);
    check(n > 4 && n < 60, "%d ids", n);
    check(tokenizer_encode(t, text, sizeof text - 1, NULL, 0, NULL) == n, "ids without room");
    for (int most = 0; most < n; most++) {
        memset(ids, 0x55, sizeof ids);
        check(tokenizer_encode(t, text, sizeof text - 1, ids, most, NULL) == n, "%d ids of %d", most, n);
        check(memcmp(ids, all, (size_t)most * sizeof *ids) == 0 && ids[most] == 0x55555555,
              "the first %d ids", most);
    }
    char whole[128], part[128];
    int size = tokenizer_decode(t, all, n, whole, sizeof whole);
    check(size > 20 && strlen(whole) == (size_t)size, "'%s' of %d bytes", whole, size);
    check(tokenizer_decode(t, all, n, NULL, 0) == size, "text without room");
    for (int room = 1; room <= size; room++) {
        memset(part, 0x55, sizeof part);
        check(tokenizer_decode(t, all, n, part, (size_t)room) == size, "%d bytes of room", room);
        check(strncmp(part, whole, (size_t)room - 1) == 0 && !part[room - 1] && part[room] == 0x55,
              "the first %d bytes", room);
    }
}

static void check_invalid(struct tokenizer *t)
{
    /* clang-format off */
    static const char *const invalid[] = {
        "\x80", "\xff", "a\xc3", "\xc3(", "\xc0\x80", "\xe2\x82", "\xe2\x28\xa1", "\xed\xa0\x80",
        "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "hello \xfe"
    };
    /* clang-format on */
    int32_t ids[16];
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        check(tokenizer_encode(t, invalid[i], strlen(invalid[i]), ids, 16, NULL) < 0,
              "invalid text %zu was taken", i);
    char text[64];
    int32_t odd[] = {-1, INT32_MIN, INT32_MAX, tokenizer_size(t), 1 << 24};
    check(tokenizer_decode_all(t, odd, 5, text, sizeof text) == 0, "ids without a token are '%s'", text);
    check(tokenizer_decode(t, NULL, 0, text, sizeof text) == 0 && !*text, "no ids are '%s'", text);
}

static void check_specials(const char *dir)
{
    static const struct {
        const char *tokenizer, *name;
        int id;
    } cases[] = {
        {"gpt2", "bos", 0},           {"gpt2", "eos", 0},         {"gpt2", "pad", -1},
        {"gpt2", "<|endoftext|>", 0}, {"gpt2", "nothing", -1},    {"gpt2", "", -1},
        {"roberta", "cls", 0},        {"roberta", "sep", 2},      {"llama2", "bos", 1},
        {"llama2", "eos", 2},         {"llama2", "unk", 0},       {"llama2", "<0x0A>", 13},
        {"llama3", "pad", -1},        {"llama3", "bos", 420},     {"llama3", "eos", 424},
        {"qwen2", "eos", 402},        {"qwen2", "pad", 400},      {"qwen2", "<tool_call>", 403},
        {"gemma", "bos", 2},          {"bert_uncased", "cls", 2}, {"bert_uncased", "[MASK]", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = open_one(dir, cases[i].tokenizer);
        int id = tokenizer_special(t, cases[i].name);
        check(id == cases[i].id, "%s: '%s' is %d instead of %d", cases[i].tokenizer, cases[i].name, id,
              cases[i].id);
        tokenizer_close(t);
    }
}

/* A tokenizer of the same tokenizer.json as another one, with other files beside it. */
static struct tokenizer *open_with(const char *dir, const char *name, const char *config, const char *names)
{
    char from[600], err[400] = "";
    snprintf(from, sizeof from, "%s/%s", dir, name);
    json_t *file = load(from, "tokenizer.json");
    char *text = json_dumps(file, 0);
    const char *folder = new_folder();
    store(folder, "tokenizer.json", text, strlen(text));
    store(folder, "config.json", config, strlen(config));
    store(folder, "tokenizer_config.json", names, strlen(names));
    json_decref(file);
    free(text);
    struct tokenizer *t = tokenizer_open(folder, err, sizeof err);
    check(t != NULL, "%s", err);
    return t;
}

/* config.json's numbers count where tokenizer_config.json has no names. */
static void check_config(const char *dir)
{
    struct tokenizer *t =
        open_with(dir, "gpt2", "{\"bos_token_id\": 5, \"eos_token_id\": [7, 8], \"pad_token_id\": 1000000}",
                  "{\"bos_token\": {\"content\": \"<|endoftext|>\"}, \"pad_token\": null}");
    if (!t) return;
    check(tokenizer_special(t, "bos") == 0, "bos by its name");
    check(tokenizer_special(t, "eos") == 7, "eos by config.json");
    check(tokenizer_special(t, "pad") == -1, "a pad that is no token");
    tokenizer_close(t);
}

/* LLaMA's class puts tokens around a text as tokenizer_config.json says, whatever tokenizer.json's template
 * is. */
static void check_around(const char *dir, const char *class, const char *flags, int first, int last)
{
    char config[200];
    int32_t ids[16];
    snprintf(config, sizeof config,
             "{\"tokenizer_class\": \"%s\", \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", %s}", class,
             flags);
    struct tokenizer *t = open_with(dir, "mistral", "{}", config);
    if (!t) return;
    int bare = tokenizer_encode_bare(t, "hello", 5, ids, 16, NULL),
        n = tokenizer_encode(t, "hello", 5, ids, 16, NULL);
    check(n == bare + (first >= 0) + (last >= 0), "%s, %s: %d ids, %d bare", class, flags, n, bare);
    check((ids[0] == 1) == (first >= 0) && (ids[n - 1] == 2) == (last >= 0), "%s, %s: ends", class, flags);
    tokenizer_close(t);
}

/* A long text comes back; of words without end, too. */
static void check_long(const char *dir, const char *name, const char *piece, size_t bytes)
{
    struct tokenizer *t = open_one(dir, name);
    size_t size = strlen(piece), n = bytes / size * size;
    char *text = malloc(n + 1), *back = malloc(n + 1);
    int32_t *ids = malloc((n + 2) * sizeof *ids);
    for (size_t i = 0; i < n; i++) text[i] = piece[i % size];
    int count = tokenizer_encode(t, text, n, ids, (int)n + 2, NULL);
    check(count > 0 && (size_t)count <= n + 2, "%s: %d ids of %zu bytes", name, count, n);
    int got = tokenizer_decode(t, ids, count, back, n + 1);
    check((size_t)got == n && memcmp(text, back, n) == 0, "%s: %zu bytes of '%s' came back as %d", name, n,
          piece, got);
    free(text);
    free(back);
    free(ids);
    tokenizer_close(t);
}

/* A stream holds back what is half a character, and gives up on what never becomes one. */
static void check_stream(const char *dir)
{
    struct tokenizer *t = open_one(dir, "llama2");
    struct tokenizer_stream *s = tokenizer_stream_open(t);
    int byte = tokenizer_special(t, "<0x00>"), n = 0;
    char out[64];
    static const unsigned char smile[] = {0xf0, 0x9f, 0x98, 0x80};
    for (int i = 0; i < 4; i++) {
        n = tokenizer_stream_next(s, byte + smile[i], out, sizeof out);
        check(n == (i == 3 ? 4 : 0), "byte %d of four gave %d", i, n);
    }
    check(memcmp(out, smile, 4) == 0, "the character is '%s'", out);
    int total = 0;
    for (int i = 0; i < 100; i++) total += tokenizer_stream_next(s, byte + 0xff, out, sizeof out);
    check(total > 200, "of 100 bytes that are no text %d bytes came", total);
    total += tokenizer_stream_end(s, out, sizeof out);
    check(total == 300, "and at the end %d", total);
    check(tokenizer_stream_end(s, out, sizeof out) == 0, "the end again");
    tokenizer_stream_close(s);
    tokenizer_close(t);
}

void check_calls(const char *dir)
{
    static const char *const names[] = {"gpt2", "llama2", "bert_uncased", "flags"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tokenizer *t = open_one(dir, names[i]);
        check_room(t);
        check_invalid(t);
        tokenizer_close(t);
    }
    check_specials(dir);
    check_config(dir);
    check_around(dir, "LlamaTokenizer", "\"add_bos_token\": true", 1, -1);
    check_around(dir, "LlamaTokenizerFast", "\"add_bos_token\": false", -1, -1);
    check_around(dir, "LlamaTokenizerFast", "\"add_bos_token\": true, \"add_eos_token\": true", 1, 2);
    check_around(dir, "GemmaTokenizer", "\"add_bos_token\": false, \"add_eos_token\": true", -1, 2);
    check_around(dir, "PreTrainedTokenizerFast", "\"add_bos_token\": false", 1, -1);
    check_around(dir, "LlamaTokenizer", "\"add_eos_token\": true", 1, 2);
    check_long(dir, "gpt2", "hello", 200000);
    check_long(dir, "gpt2", " ", 200000);
    check_long(dir, "llama3", "a\xcc\x81 1234\n", 200000);
    check_long(dir, "llama2", "hello \xf0\x9f\x98\x80", 200000);
    check_long(dir, "llama2", "the", 200000);
    check_long(dir, "gemma", "\n \n", 200000);
    check_long(dir, "qwen2", "\xe4\xbb\x8a\xe5\xa4\xa9", 200000);
    check_stream(dir);
    tokenizer_close(NULL);
    tokenizer_stream_close(NULL);
}
