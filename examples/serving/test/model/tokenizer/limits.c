/*
 * limits.c -- what an encoding may cost: ids, time, and work, by texts and by files that are made to cost
 * more.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tokenizer_test.h"

enum { GUARD_SECONDS = 120 };

#if defined __SANITIZE_ADDRESS__
enum { SHARE = 6 }; /* of the cases one in so many runs: it looks at code, and the others at costs */
#else
enum { SHARE = 1 };
#endif

static char running[300]; /* what the guard names */
static char err[400];     /* of the last file */

static void too_long(int signal)
{
    (void)signal;
    ssize_t n = write(1, running, strlen(running));
    _exit(n < 0 ? 2 : 1);
}

static int encoded(struct tokenizer *t, const char *what, const char *text, size_t n, int64_t tokens,
                   const struct deadline *deadline)
{
    const struct encode_limits limits = {deadline, tokens};
    snprintf(running, sizeof running, "limits: %.200s: no end after %d s\n", what, GUARD_SECONDS);
    alarm(GUARD_SECONDS);
    int ids = tokenizer_encode(t, text, n, NULL, 0, &limits);
    alarm(0);
    return ids;
}

/* ---- Ids ---- */

void check_limits_of(struct tokenizer *t, const char *name, const char *text, size_t n)
{
    int count = tokenizer_encode(t, text, n, NULL, 0, NULL);
    if (count < 1) return;
    check(encoded(t, name, text, n, count, NULL) == count, "%s: %d ids of as many", name, count);
    check(encoded(t, name, text, n, 0, NULL) == count, "%s: %d ids of any number", name, count);
    if (count > 1)
        check(encoded(t, name, text, n, count - 1, NULL) == REFUSED_LONG, "%s: %d ids of one less", name,
              count);
}

static char *repeated(const char *piece, size_t n)
{
    char *text = malloc(n + 1);
    size_t size = strlen(piece), whole = n / size * size;
    for (size_t i = 0; i < n; i++) text[i] = i < whole ? piece[i % size] : 'x';
    return text;
}

/* Texts of one piece again and again, which some tokenizers take for one word. */
static void check_texts(const char *dir, const char *name, size_t n)
{
    static const char *const pieces[] = {"a",
                                         " ",
                                         "1",
                                         "\xcc\x81",
                                         "\xf0\x9f\x98\x80",
                                         "a'",
                                         "\n ",
                                         "a\xcc\xa3\xcc\x81",
                                         "\xea\xb0\x81",
                                         "'s",
                                         "\xe4\xbb\x8a",
                                         "<s>",
                                         "ab ",
                                         "\xc2\xa0",
                                         "\xef\xb7\xba",
                                         "\xe2\x80\x8d",
                                         ".,"};
    char path[600], what[100];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    struct tokenizer *t = tokenizer_open(path, err, sizeof err);
    for (size_t i = 0; t && i < sizeof pieces / sizeof *pieces; i++) {
        char *text = repeated(pieces[i], n);
        snprintf(what, sizeof what, "%s, %zu bytes of '%s'", name, n, pieces[i]);
        int count = encoded(t, what, text, n, 0, NULL);
        check(count >= 0, "%s: %d", what, count);
        check_limits_of(t, what, text, n < 20000 ? n : 20000);
        check(encoded(t, what, text, n, 1, NULL) == (count > 1 ? REFUSED_LONG : count), "%s: one id", what);
        free(text);
    }
    check(t != NULL, "%s", err);
    tokenizer_close(t);
}

/* ---- Files: a few members of a tokenizer.json, the rest is the least there may be ---- */

static struct tokenizer *opened(const char *members, const char *model)
{
    char *text = NULL;
    const char *folder = new_folder();
    const char *usual = "{\"type\": \"BPE\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0, \"a\": 1, \"b\": 2, "
                        "\"aa\": 3, \"aaaa\": 4, \" \": 5}, \"merges\": [\"a a\", \"aa aa\"]}";
    int n = asprintf(&text, "{\"version\": \"1.0\", %s%s\"model\": %s}", members, *members ? ", " : "",
                     model ? model : usual);
    store(folder, "tokenizer.json", text, (size_t)n);
    free(text);
    return tokenizer_open(folder, err, sizeof err);
}

static struct tokenizer *made(const char *members, const char *model)
{
    struct tokenizer *t = opened(members, model);
    check(t != NULL, "%.100s: %s", members, err);
    return t;
}

static const struct {
    const char *regex, *piece;
    int wanted; /* REFUSED_INPUT, or 0: it has ids */
} searches[] = {
    /* no search ends early for want of a certain character: what is missing is one of two */
    {"[^x]*[yz]", "a", REFUSED_INPUT},
    {"a*a*a*[bc]", "a", REFUSED_INPUT},
    {"(?:a|aa)+[bc]", "a", REFUSED_INPUT},
    {"(?:a|b)*?[cd]", "ab", REFUSED_INPUT},
    {"(?:a+)+[bc]", "a", REFUSED_INPUT},
    {"\\\\s+[xy]", " ", REFUSED_INPUT},
    {"(?=a*[bc])a", "a", REFUSED_INPUT},
    {"a{1,1000}[bc]", "a", 0},
    {"a(?=[ab]*[cd])|b", "a", REFUSED_INPUT},
    {"(?:(?:a|b)+)+[cd]", "ab", REFUSED_INPUT},
    {"a+|b", "a", 0},
    {"a+b|a", "b", 0},
    {"a(?!b)", "a", 0},
    {"[^x]+", "a", 0},
    {"a{1,3}", "a", 0},
};

static void check_searches(size_t n)
{
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i += SHARE)
        for (int k = 0; k < 2; k++) {
            static const char *const forms[] = {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": "
                                                "{\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}",
                                                "\"normalizer\": {\"type\": \"Replace\", \"pattern\": "
                                                "{\"Regex\": \"%s\"}, \"content\": \"b\"}"};
            char members[400];
            snprintf(members, sizeof members, k ? forms[1] : forms[0], searches[i].regex);
            struct tokenizer *t = made(members, NULL);
            char *text = repeated(searches[i].piece, n);
            int ids = t ? encoded(t, members, text, n, 0, NULL) : 0;
            check(searches[i].wanted ? ids == searches[i].wanted : ids > 0, "%s: %d", members, ids);
            free(text);
            tokenizer_close(t);
        }
}

/* `many` of one step in a list. */
static char *steps_of(const char *member, const char *list, const char *step, int many)
{
    size_t room = (size_t)many * (strlen(step) + 2) + 200, n;
    char *s = malloc(room);
    n = (size_t)sprintf(s, "\"%s\": {\"type\": \"Sequence\", \"%s\": [", member, list);
    for (int i = 0; i < many; i++) n += (size_t)sprintf(s + n, "%s%s", i ? ", " : "", step);
    sprintf(s + n, "]}");
    return s;
}

/* Steps that double a text, again and again; and more of them than may be. */
static void check_steps(size_t n)
{
    static const struct {
        const char *member, *list, *step;
        int many;
    } all[] = {
        {"normalizer", "normalizers",
         "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}", 60},
        {"normalizer", "normalizers",
         "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"aaa\"}", 60},
        {"pre_tokenizer", "pretokenizers", "{\"type\": \"ByteLevel\", \"use_regex\": false}", 256},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *members = steps_of(all[i].member, all[i].list, all[i].step, all[i].many),
             *text = repeated("a", n);
        struct tokenizer *t = made(members, NULL);
        int ids = t ? encoded(t, all[i].step, text, n, 0, NULL) : 0;
        check(ids == REFUSED_INPUT || ids == REFUSED_MEMORY, "%s: %d", all[i].step, ids);
        tokenizer_close(t);
        free(members);
        free(text);
    }
    char *members =
        steps_of("decoder", "decoders",
                 "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}", 60);
    struct tokenizer *t = made(members, NULL);
    check(t && tokenizer_decode(t, (int32_t[]){1, 4, 1}, 3, NULL, 0) < 0, "a decoder that doubles a text");
    tokenizer_close(t);
    free(members);
    t = opened("\"added_tokens\": [{\"id\": 4000, \"content\": \"x\"}, {\"id\": 9, \"content\": \"x\"}]",
               NULL);
    check(!t && strstr(err, "has the ids 4000 and 9"), "a token with two ids: %s", err);
    tokenizer_close(t);
    members = steps_of("normalizer", "normalizers", "{\"type\": \"NFC\"}", 257);
    t = opened(members, NULL);
    check(!t && strstr(err, "more than 256 steps"), "257 steps: %s", err);
    tokenizer_close(t);
    free(members);
}

/* Words in the vocabulary, and added tokens, as long as what is looked for. */
static void check_long_tokens(size_t n)
{
    char *many = repeated("a", 20000), *text = repeated("a", n), *model = NULL, *members = NULL;
    many[20000] = 0;
    check(asprintf(&model,
                   "{\"type\": \"WordPiece\", \"unk_token\": \"u\", \"max_input_chars_per_word\": 100000000, "
                   "\"vocab\": {\"u\": 0, \"a\": 1, \"##a\": 2, \"##%sb\": 3}}",
                   many) > 0,
          "no memory");
    struct tokenizer *t = made("", model);
    int ids = t ? encoded(t, "WordPiece", text, n, 0, NULL) : 0;
    check(ids == REFUSED_INPUT, "a WordPiece whose longest word has 20,001 bytes: %d", ids);
    tokenizer_close(t);
    check(asprintf(&members, "\"added_tokens\": [{\"id\": 9, \"content\": \"%sb\", \"special\": true}]",
                   many) > 0,
          "no memory");
    t = made(members, NULL);
    ids = t ? encoded(t, "added token", text, n, 0, NULL) : 0;
    check(ids == REFUSED_INPUT, "an added token of 20,001 bytes: %d", ids);
    tokenizer_close(t);
    t = made("\"added_tokens\": [{\"id\": 5, \"content\": \" \", \"special\": true, \"rstrip\": true, "
             "\"lstrip\": true}]",
             NULL);
    memset(text, ' ', n);
    ids = t ? encoded(t, "spaces", text, n, 0, NULL) : 0;
    check(ids == (int)n, "an added token that is a space, and takes those behind it along: %d", ids);
    tokenizer_close(t);
    free(many), free(text), free(model), free(members);
}

/* ---- Time ---- */

static void check_deadlines(const char *dir)
{
    enum { BYTES = 120000 / SHARE };
    static const char *const names[] = {"gpt2", "llama2", "bert_uncased", "llama3"};
    atomic_bool yes = true, no = false;
    const struct deadline past = {1, &no}, cancelled = {INT64_MAX, &yes}, later = deadline_in(3600, &no);
    char *text = repeated("the a' ", BYTES), path[600];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        struct tokenizer *t = tokenizer_open(path, err, sizeof err);
        int late = encoded(t, "late", text, BYTES, 0, &past),
            none = encoded(t, "cancelled", text, BYTES, 0, &cancelled);
        check(late == REFUSED_LATE && none == REFUSED_CANCELLED, "%s: %d, %d", names[i], late, none);
        check(encoded(t, "later", text, BYTES, 0, &later) > 0, "%s: a deadline in an hour", names[i]);
        check(encoded(t, "no UTF-8", "\xff", 1, 0, &later) == REFUSED_INPUT, "%s: no UTF-8", names[i]);
        tokenizer_close(t);
    }
    free(text);
}

void check_limits(const char *dir)
{
    static const char *const names[] = {
        "bert_cased", "bert_uncased", "deepseek", "digits", "flags", "gemma",   "gpt2",   "llama2", "llama3",
        "metaspace",  "minilm",       "mistral",  "o200k",  "qwen2", "roberta", "smollm", "tekken"};
    bool full = getenv("CODA_FULL") != NULL;
    signal(SIGALRM, too_long);
    for (size_t i = 0; i < sizeof names / sizeof *names; i += SHARE)
        if (strcmp(names[i], "minilm") != 0) check_texts(dir, names[i], full ? 1000000 : 20000 / SHARE);
    check_searches(full ? 1000000 : 20000);
    check_steps(full ? 1000000 : 20000 / SHARE);
    check_long_tokens(full ? 1000000 : 48000 / SHARE);
    check_deadlines(dir);
}
