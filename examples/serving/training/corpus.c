/*
 * corpus.c -- a file's documents as tokens.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "regular.h"
#include "tokenizer.h"
#include "train_corpus.h"

enum { MANY = 20 /* documents, of which the last ones are held out whole */ };

struct reading {
    struct corpus *to;
    const struct corpus_format *how;
    const char *path;
    struct fault *f;
};

static bool make_room(struct reading *r, int64_t more)
{
    struct corpus *c = r->to;
    if (c->count + more <= c->room) return true;
    int64_t room = c->count + more + c->room / 2;
    int32_t *id = realloc(c->id, sizeof *id * (size_t)room);
    if (id) c->id = id;
    int32_t *place = id ? realloc(c->place, sizeof *place * (size_t)room) : NULL;
    if (place) c->place = place;
    if (!place) return fault_set(r->f, "%s: out of memory for %lld tokens", r->path, (long long)room);
    c->room = room;
    return true;
}

/* By the tokenizer, once more with room for all if a document has more tokens than bytes. */
static int64_t encode_words(struct reading *r, const char *text, size_t n)
{
    struct corpus *c = r->to;
    for (int64_t room = (int64_t)n + 8;;) {
        if (!make_room(r, room + 8)) return -1;
        int got = tokenizer_encode(r->how->tokenizer, text, n, c->id + c->count, (int)room, NULL);
        if (got < 0) break;
        if (got <= room) return got;
        room = got;
    }
    int shown = n < 40 ? (int)n : 40;
    return fault_set(r->f, "%s: '%.*s' cannot be made into tokens", r->path, shown, text), -1;
}

/* Tokens of a document behind those that are there, with room for two more; -1: a fault. */
static int64_t encode(struct reading *r, const char *text, size_t n)
{
    struct corpus *c = r->to;
    if (r->how->tokenizer) return encode_words(r, text, n);
    if (!make_room(r, (int64_t)n + 2)) return -1;
    for (size_t i = 0; i < n; i++) c->id[c->count + (int64_t)i] = (unsigned char)text[i];
    return (int64_t)n;
}

/* Puts `begins` and `ends` where they are wanted, and numbers the tokens. */
static bool close_document(struct reading *r, int64_t n)
{
    struct corpus *c = r->to;
    int32_t *id = c->id + c->count, begins = r->how->begins, ends = r->how->ends;
    if (begins >= 0 && id[0] != begins) {
        memmove(id + 1, id, sizeof *id * (size_t)n);
        id[0] = begins;
        n++;
    }
    if (ends >= 0 && (n < 2 || id[n - 1] != ends)) id[n++] = ends;
    for (int64_t i = 0; i < n; i++) {
        if (id[i] >= r->how->vocabulary)
            return fault_set(r->f, "%s: token %d is not in the vocabulary of %d", r->path, id[i],
                             r->how->vocabulary);
        c->place[c->count + i] = (int32_t)i;
    }
    c->count += n;
    c->documents++;
    return true;
}

/* A line's end in front of a document, and one behind it, belong to the separator. */
static bool add_document(struct reading *r, const char *text, size_t n)
{
    if (r->how->separator && n && *text == '\n') text++, n--;
    if (r->how->separator && n && text[n - 1] == '\n') n--;
    if (!n) return true;
    if (n > INT_MAX / 2)
        return fault_set(r->f,
                         "%s: a document of %zu bytes; %d are the most: --separator says where they end",
                         r->path, n, INT_MAX / 2);
    int64_t tokens = encode(r, text, n);
    return tokens >= 0 && (!tokens || close_document(r, tokens));
}

static const char *find_end(const struct reading *r, const char *text, const char *end)
{
    size_t left = (size_t)(end - text);
    const char *separator = r->how->separator;
    const char *found = separator ? memmem(text, left, separator, strlen(separator)) : NULL;
    if (!r->how->tokenizer) {
        const char *zero = memchr(text, 0, found ? (size_t)(found - text) : left);
        if (zero) return zero;
    }
    return found ? found : end;
}

static bool add_all(struct reading *r, const char *text, const char *end)
{
    while (text < end) {
        const char *stop = find_end(r, text, end);
        if (!add_document(r, text, (size_t)(stop - text))) return false;
        if (stop == end) break;
        text = stop + (*stop && r->how->separator ? strlen(r->how->separator) : 1);
    }
    return true;
}

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static uint64_t digest(const struct corpus *c)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < c->count; i++) {
        uint32_t word = (uint32_t)c->id[i] | (c->place[i] ? 0 : 1u << 31);
        for (int k = 0; k < 4; k++) h = (h ^ (word >> 8 * k & 255)) * 0x100000001b3u;
    }
    return h;
}

static void hold(struct corpus *c, double share)
{
    int64_t at = c->count - (int64_t)((double)c->count * share);
    while (c->documents >= MANY && at < c->count && c->place[at]) at++;
    c->learned = at;
}

bool corpus_read(struct corpus *c, const char *path, const struct corpus_format *how, struct fault *f)
{
    char why[128];
    int64_t bytes;
    struct reading r = {c, how, path, f};
    *c = (struct corpus){0};
    int fd = regular_open(path, REGULAR_ANY, &bytes, why, sizeof why);
    if (fd < 0) return fault_set(f, "%s: %s", path, why);
    char *text = bytes ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (text == MAP_FAILED) return fault_set(f, "%s: %s", path, strerror(errno));
    bool good = text && add_all(&r, text, text + bytes);
    if (text) munmap(text, (size_t)bytes);
    if (!good && bytes) return false;
    if (c->count < 2)
        return fault_set(f, "%s: %lld tokens; there is nothing to learn", path, (long long)c->count);
    c->digest = digest(c);
    hold(c, how->held);
    return true;
}

void corpus_free(struct corpus *c)
{
    free(c->id);
    free(c->place);
    *c = (struct corpus){0};
}
