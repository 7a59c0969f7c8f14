/*
 * logprobs.c -- what probabilities are told of tokens that are parts of characters, or texts of each other:
 * their bytes, their names, and as many of them as were asked for. What each token's bytes are is said here,
 * and the tokenizer.json is written of that by GPT-2's alphabet, or by tokens <0xNN>.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat_test.h"

enum { TOKENS = 80, TOP = 20, ANSWER = 40, SEEDS = 6 }; /* the tiny model's vocabulary */

struct token {
    const char *bytes;
    size_t count;
};
#define T(bytes)                                                                                             \
    {                                                                                                        \
        bytes, sizeof bytes - 1                                                                              \
    }

/* From 3 on, after the special ones; the rest are letters and single bytes. */
static const struct token byte_level[] = {
    T("\xe2"),         T("\xe2\x80"),  T("\x99"),     T("\xf0\x9f"), T("\xf0"), T("\x98"),
    T("\x80"),         T(" \xf0\x9f"), T("\xc3\xa9"), T("\0"),       T("\xff"), T("\\"),
    T("\\\xe2"),       T("bytes:"),    T(" the"),     T("a\0b"),     T("\n"),   T("\xe2\x80\x99"),
    T("\xed\xa0\x80"), T("\x7f"),      T("\xad"),     T(" ")};
static const struct token fallback[] = {T("A"),    T("A"),    T("\xe2"),     T("\x80"), T("\xff"), T("\0"),
                                        T(" the"), T("B"),    T("B"),        T("\x7f"), T("\n"),   T(" "),
                                        T("\xf0"), T("\x9f"), T("\xc3\xa9"), T("\xc3"), T("\xa9")};

struct case_of {
    const char *name;
    const struct token *first;
    int count;
    bool bytes; /* GPT-2's alphabet */
};

/* Bytes of a token; the text of one that the lists do not have is written to `room`. */
static struct token token_of(const struct case_of *c, int id, char room[16])
{
    static const struct token special[] = {T("<unk>"), T("<s>"), T("</s>")};
    if (id < 3) return special[id];
    if (id - 3 < c->count) return c->first[id - 3];
    return (struct token){room, (size_t)snprintf(room, 16, "w%d", id)};
}

/* ---- The tokenizer's file ---- */

/* GPT-2's alphabet, as its authors wrote it: bytes that can be seen are themselves, the others 256 and on. */
static int letter_of(int byte)
{
    int others = 0;
    for (int b = 0; b <= byte; b++) {
        bool seen = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
        if (b == byte) return seen ? b : 256 + others;
        others += !seen;
    }
    return -1;
}

static void put_token(FILE *f, const struct case_of *c, int id)
{
    char room[16];
    struct token t = token_of(c, id, room);
    bool doubled = !c->bytes && id >= 3 && id - 3 < c->count && id > 3 && t.count == 1 &&
                   !strcmp(t.bytes, c->first[id - 4].bytes);
    bool code = !c->bytes && id >= 3 && t.count == 1 &&
                ((unsigned char)*t.bytes >= 0x7f || *t.bytes < ' ' || doubled);
    fprintf(f, "%s\"", id ? "," : "");
    if (code) fprintf(f, "<0x%02X>", (unsigned char)*t.bytes);
    for (size_t i = 0; i < t.count && !code; i++) {
        unsigned char b = (unsigned char)t.bytes[i];
        if (c->bytes && id >= 3) fprintf(f, "\\u%04x", (unsigned)letter_of(b));
        else if (b == ' ') fputs("\\u2581", f);
        else fputc(b, f);
    }
    fprintf(f, "\":%d", id);
}

static void put_file_of(const struct case_of *c, const char *folder)
{
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    fputs("{\"version\":\"1.0\",\"added_tokens\":[", f);
    for (int i = 0; i < 3; i++)
        fprintf(f, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"normalized\":false}", i ? "," : "", i,
                (const char *const[]){"<unk>", "<s>", "</s>"}[i]);
    fprintf(f,
            "],\"pre_tokenizer\":%s,\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\","
            "\"merges\":[],\"vocab\":{",
            c->bytes ? "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}" : "null",
            c->bytes ? "{\"type\":\"ByteLevel\"}"
                     : "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
                       "\"\\u2581\"},"
                       "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
                       "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}");
    for (int i = 0; i < TOKENS; i++) put_token(f, c, i);
    fputs("}}}", f);
    fclose(f);
    put_file(folder, "tokenizer.json", text);
    free(text);
}

/* ---- What is expected ---- */

/* Whether UTF-8 without NUL, by the bits of RFC 3629. */
static bool is_text(struct token t)
{
    for (size_t i = 0; i < t.count;) {
        unsigned char b = (unsigned char)t.bytes[i];
        int more = b < 0x80 ? 0 : b >> 5 == 6 ? 1 : b >> 4 == 14 ? 2 : b >> 3 == 30 ? 3 : -1;
        unsigned long code = more <= 0 ? b : b & (0x3fu >> more);
        for (int k = 1; k <= more; k++) {
            if (i + (size_t)k >= t.count || ((unsigned char)t.bytes[i + (size_t)k] & 0xc0) != 0x80)
                return false;
            code = code << 6 | ((unsigned char)t.bytes[i + (size_t)k] & 0x3fu);
        }
        static const unsigned long least[] = {1, 0x80, 0x800, 0x10000};
        if (more < 0 || code < least[more] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
            return false;
        i += (size_t)more + 1;
    }
    return true;
}

static void name_token(struct token t, char name[64])
{
    size_t n = 0;
    if (is_text(t)) {
        memcpy(name, t.bytes, t.count);
        name[t.count] = 0;
        return;
    }
    n = (size_t)sprintf(name, "bytes:");
    for (size_t i = 0; i < t.count; i++) {
        unsigned char b = (unsigned char)t.bytes[i];
        bool plain = b >= 32 && b < 127 && b != '\\';
        n += (size_t)sprintf(name + n, plain ? "%c" : "\\x%02x", b);
    }
}

static bool same_bytes(const json_t *bytes, struct token t)
{
    bool same = json_array_size(bytes) == t.count;
    for (size_t i = 0; same && i < t.count; i++)
        same = json_integer_value(json_array_get(bytes, i)) == (unsigned char)t.bytes[i];
    return same;
}

/* An entry of a chat's logprobs; `id` < 0: which token it is is not known, but one of this name. */
static void expect_entry(const struct case_of *c, const json_t *entry, int id)
{
    char room[16], name[64];
    const char *got = json_string_value(json_object_get(entry, "token"));
    bool known = false;
    for (int i = id < 0 ? 0 : id; got && !known && i < (id < 0 ? TOKENS : id + 1); i++) {
        struct token t = token_of(c, i, room);
        name_token(t, name);
        known = !strcmp(got, name) && same_bytes(json_object_get(entry, "bytes"), t);
    }
    char *shown = json_dumps(entry, JSON_COMPACT);
    CHECK(known, "%s: token %d is %.200s", c->name, id, shown ? shown : "?");
    free(shown);
}

static json_t *choice_of(int port, const char *path, const char *body)
{
    struct reply r = http(port, "POST", path, body);
    json_t *v = json_loadb(r.body, r.bytes, JSON_ALLOW_NUL, NULL);
    json_t *choice = json_incref(json_array_get(json_object_get(v, "choices"), 0));
    CHECK(choice, "%s: status %d, %.200s", path, r.status, r.body ? r.body : "");
    json_decref(v);
    reply_free(&r);
    return choice;
}

static void compare_chat(const struct case_of *c, int port, int seed)
{
    char body[512];
    snprintf(
        body, sizeof body,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"A\"}], \"max_tokens\": %d, \"temperature\": 2, "
        "\"seed\": %d, \"logprobs\": true, \"top_logprobs\": %d, \"ignore_eos\": true, \"return_token_ids\": "
        "true}",
        ANSWER, seed, TOP);
    json_t *choice = choice_of(port, "/v1/chat/completions", body), *entry, *one;
    const json_t *ids = json_object_get(choice, "token_ids");
    const json_t *all = json_object_get(json_object_get(choice, "logprobs"), "content");
    size_t i, k;
    CHECK(json_array_size(all) == ANSWER && json_array_size(ids) == ANSWER, "%s: %zu entries", c->name,
          json_array_size(all));
    json_array_foreach(all, i, entry)
    {
        const json_t *top = json_object_get(entry, "top_logprobs");
        expect_entry(c, entry, (int)json_integer_value(json_array_get(ids, i)));
        CHECK(json_array_size(top) == TOP, "%s: %zu likely tokens", c->name, json_array_size(top));
        json_array_foreach(top, k, one) expect_entry(c, one, -1);
    }
    json_decref(choice);
}

/* The likeliest ones of a place by name: none is missing, whatever they are called. */
static void expect_top(const struct case_of *c, const json_t *top)
{
    char room[16], name[64], number[32];
    int known = 0;
    CHECK(json_object_size(top) == TOP, "%s: %zu likely tokens of %d", c->name, json_object_size(top), TOP);
    for (int i = 0; i < TOKENS; i++) {
        name_token(token_of(c, i, room), name);
        snprintf(number, sizeof number, "token_id:%d", i);
        bool first = true; /* of those with its name */
        char other[64], space[16];
        for (int k = 0; k < i; k++)
            name_token(token_of(c, k, space), other), first &= strcmp(name, other) != 0;
        known += (first && json_object_get(top, name)) + (json_object_get(top, number) != NULL);
    }
    CHECK(known == TOP, "%s: %d of %d names are tokens'", c->name, known, TOP);
}

static int compare_text(const struct case_of *c, int port, int seed)
{
    char body[512], room[16], name[64];
    snprintf(body, sizeof body,
             "{\"prompt\": \"A\", \"max_tokens\": %d, \"temperature\": 2, \"seed\": %d, \"logprobs\": %d, "
             "\"ignore_eos\": true, \"return_token_ids\": true}",
             ANSWER, seed, TOP);
    json_t *choice = choice_of(port, "/v1/completions", body), *l = json_object_get(choice, "logprobs"), *top;
    const json_t *ids = json_object_get(choice, "token_ids"), *tokens = json_object_get(l, "tokens");
    size_t i;
    int numbers = 0;
    json_array_foreach(json_object_get(l, "top_logprobs"), i, top)
    {
        const char *got = json_string_value(json_array_get(tokens, i)), *key;
        json_t *v;
        name_token(token_of(c, (int)json_integer_value(json_array_get(ids, i)), room), name);
        CHECK(got && !strcmp(got, name), "%s: token %zu is '%s', not '%s'", c->name, i, got ? got : "?",
              name);
        expect_top(c, top);
        json_object_foreach(top, key, v) numbers += !strncmp(key, "token_id:", 9);
    }
    CHECK(i == ANSWER, "%s: %zu places", c->name, i);
    json_decref(choice);
    return numbers;
}

/* A message of a template that is longer than there is room for ends between two characters. */
static void expect_line(int port)
{
    struct reply r = http(port, "POST", "/v1/chat/completions",
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"raise\"}]}");
    json_t *v = json_loadb(r.body, r.bytes, 0, NULL);
    const char *message = json_string_value(json_object_get(json_object_get(v, "error"), "message"));
    CHECK(r.status == 400 && message && strstr(message, "line 1: \xe2\x82\xac\xe2\x82\xac"),
          "status %d, %.300s", r.status, r.body ? r.body : "no body");
    json_decref(v);
    reply_free(&r);
}

void test_logprobs(const char *program)
{
    static const struct case_of cases[] = {
        {"byte-level", byte_level, sizeof byte_level / sizeof *byte_level, true},
        {"byte fallback", fallback, sizeof fallback / sizeof *fallback, false}};
    for (int i = 0; i < 2; i++) {
        char folder[] = "/tmp/chat_logprobs.XXXXXX", command[64];
        int numbers = 0;
        CHECK(mkdtemp(folder), "no folder");
        copy_file("test/model/tiny/llama", folder, "config.json");
        copy_file("test/model/tiny/llama", folder, "model.safetensors");
        put_file_of(&cases[i], folder);
        put_file(
            folder, "tokenizer_config.json",
            "{\"chat_template\": \"{{ raise_exception('\\u20ac' * 150) if messages[0].content == 'raise' }}"
            "{{ messages[0].content }}\"}");
        struct running s = server_start(program, (const char *const[]){"--context", "96", folder, NULL});
        expect_line(s.port);
        for (int seed = 0; seed < SEEDS; seed++) {
            compare_chat(&cases[i], s.port, seed);
            numbers += compare_text(&cases[i], s.port, seed);
        }
        CHECK((numbers > 0) == !cases[i].bytes, "%s: %d tokens by their numbers", cases[i].name, numbers);
        CHECK(server_stop(&s) == 0, "%s: the server did not end well", cases[i].name);
        snprintf(command, sizeof command, "rm -r %s", folder);
        CHECK(!system(command), "%s is left", folder);
    }
}
