/*
 * golden.c -- ids and texts are the package's, for all kinds of tokenizers and some 330 strings.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tokenizer_test.h"

enum { MOST = 4096 };

/* A golden that is open: what was asked, and what came. */
struct golden {
    struct tokenizer *t;
    const char *name;
    const json_t *file, *strings;
};

/* The bytes of a list's entry; `otherwise`, where it is null. */
static const json_t *entry(const struct golden *g, const char *list, size_t i)
{
    const json_t *v = json_array_get(json_object_get(g->file, list), i);
    return json_is_null(v) ? json_array_get(g->strings, i) : v;
}

static bool same_ids(const int32_t *ids, int n, const json_t *want, size_t skip, size_t leave)
{
    bool same = (size_t)n + skip + leave == json_array_size(want);
    for (int i = 0; same && i < n; i++)
        same = ids[i] == json_integer_value(json_array_get(want, (size_t)i + skip));
    return same;
}

static bool check_ids(const struct golden *g, size_t i)
{
    const json_t *s = json_array_get(g->strings, i),
                 *want = json_array_get(json_object_get(g->file, "ids"), i);
    const char *text = json_string_value(s);
    size_t before = (size_t)json_integer_value(json_object_get(g->file, "before")),
           after = (size_t)json_integer_value(json_object_get(g->file, "after"));
    int32_t ids[MOST];
    int n = tokenizer_encode(g->t, text, json_string_length(s), ids, MOST, NULL);
    if (!check(same_ids(ids, n, want, 0, 0), "%s: string %zu '%s' has other ids", g->name, i, text)) {
        char *all = json_dumps(want, JSON_COMPACT);
        printf("    wanted %s\n    got    [", all);
        for (int k = 0; k < n; k++) printf("%s%d", k ? "," : "", ids[k]);
        puts("]");
        free(all);
    }
    check_limits_of(g->t, g->name, text, json_string_length(s));
    n = tokenizer_encode_bare(g->t, text, json_string_length(s), ids, MOST, NULL);
    return check(same_ids(ids, n, want, before, after), "%s: string %zu bare", g->name, i);
}

static bool same_text(const char *text, int n, const json_t *want)
{
    return n >= 0 && (size_t)n == json_string_length(want) &&
           memcmp(text, json_string_value(want), (size_t)n) == 0;
}

/* The text of `n` ids, of which the first `from` stand before. */
static int streamed(struct tokenizer *t, const int32_t *ids, int n, int from, char *text, size_t room)
{
    struct tokenizer_stream *s = tokenizer_stream_open(t);
    int size = 0;
    check(from == 0 || tokenizer_stream_after(s, ids, from), "no stream after %d ids", from);
    for (int k = from; k < n; k++) size += tokenizer_stream_next(s, ids[k], text + size, room - (size_t)size);
    size += tokenizer_stream_end(s, text + size, room - (size_t)size);
    tokenizer_stream_close(s);
    return size;
}

/* Wherever the ids are cut, the rest says what the whole says more than the beginning; but where more ids
 * change what the beginning says. How often that was. */
static int check_cuts(const struct golden *g, size_t i, const int32_t *ids, int n)
{
    char whole[MOST], begin[MOST], rest[MOST];
    int size = tokenizer_decode(g->t, ids, n, whole, sizeof whole), told = 0;
    for (int from = 1; from < n; from++) {
        int first = tokenizer_decode(g->t, ids, from, begin, sizeof begin);
        if (first > size || memcmp(whole, begin, (size_t)first) != 0) continue;
        int more = streamed(g->t, ids, n, from, rest, sizeof rest);
        check(more == size - first && !memcmp(rest, whole + first, (size_t)more),
              "%s: ids %zu behind the first %d say '%s', of '%s'", g->name, i, from, rest, whole);
        told++;
    }
    return told;
}

static int check_text(const struct golden *g, size_t i)
{
    const json_t *list = json_array_get(json_object_get(g->file, "ids"), i);
    int32_t ids[MOST];
    int n = (int)json_array_size(list);
    char text[MOST];
    for (int k = 0; k < n; k++) ids[k] = (int32_t)json_integer_value(json_array_get(list, (size_t)k));
    int size = tokenizer_decode(g->t, ids, n, text, sizeof text);
    const json_t *want = entry(g, "text", i);
    check(same_text(text, size, want), "%s: ids %zu have text '%s' instead of '%s'", g->name, i, text,
          json_string_value(want));
    size = tokenizer_decode_all(g->t, ids, n, text, sizeof text);
    want = entry(g, "all", i);
    check(same_text(text, size, want), "%s: all ids %zu have text '%s' instead of '%s'", g->name, i, text,
          json_string_value(want));

    int told = check_cuts(g, i, ids, n);
    size = streamed(g->t, ids, n, 0, text, sizeof text);
    want = entry(g, "text", i);
    check(same_text(text, size, want), "%s: ids %zu as a stream have text '%s' instead of '%s'", g->name, i,
          text, json_string_value(want));
    return told;
}

void check_golden_of(struct tokenizer *t, const char *golden, const json_t *strings)
{
    json_t *file = load(golden, "golden.json");
    struct golden g = {t, strrchr(golden, '/') + 1, file, strings};
    size_t n = json_array_size(strings), told = 0;
    check(json_array_size(json_object_get(file, "ids")) == n, "%s: not as many goldens as strings", g.name);
    for (size_t i = 0; i < n; i++) {
        check_ids(&g, i);
        told += (size_t)check_text(&g, i);
    }
    check(told > n, "%s: %zu cuts of %zu strings", g.name, told, n);
    json_decref(file);
}

void check_golden(const char *tokenizer, const char *golden, const json_t *strings)
{
    char err[400] = "";
    struct tokenizer *t = tokenizer_open(tokenizer, err, sizeof err);
    if (check(t != NULL, "%s", err)) check_golden_of(t, golden, strings);
    tokenizer_close(t);
}

void check_goldens(const char *dir)
{
    DIR *d = opendir(dir);
    json_t *strings = load(dir, "strings.json");
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[600], file[700];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        snprintf(file, sizeof file, "%s/tokenizer.json", path);
        if (access(file, R_OK) != 0) continue;
        check_golden(path, path, strings);
        count++;
    }
    check(count >= 16, "only %d tokenizers in %s", count, dir);
    if (d) closedir(d);
    json_decref(strings);
}

/* A file as it is. */
static void copy(const char *from, const char *to, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *f = fopen(path, "rb");
    char *text = malloc(1 << 22);
    size_t n = f && text ? fread(text, 1, 1 << 22, f) : 0;
    if (check(n > 0, "%s cannot be read", path)) store(to, name, text, n);
    if (f) fclose(f);
    free(text);
}

void check_real(const char *dir, const char *vocabulary)
{
    char golden[600], file[600];
    snprintf(golden, sizeof golden, "%s/minilm", dir);
    snprintf(file, sizeof file, "%s/tokenizer.json", vocabulary);
    if (access(file, R_OK) != 0) {
        printf("SKIP: all-MiniLM-L6-v2's vocabulary: %s is not there\n", file);
        return;
    }
    json_t *strings = load(dir, "strings.json");
    check_golden(vocabulary, golden, strings);
    const char *legacy = new_folder();
    copy(vocabulary, legacy, "vocab.txt");
    copy(vocabulary, legacy, "tokenizer_config.json");
    check_golden(legacy, golden, strings);
    json_decref(strings);
}
