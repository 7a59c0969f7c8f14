/*
 * closure.c -- the primitives that a text includes, and those that they include in turn.
 *
 * NVRTC is given these files alone, and the key of a cubin names no others: so a kernel stays in its cache
 * when a primitive is edited that it does not read, and an include that is overlooked here is an error of the
 * compiler, never a stale kernel. Which of a file's lines are skipped by #if is not asked.
 */
#include "compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sha256.h"

static int by_name(const void *key, const void *element)
{
    return strcmp(key, *(const char *const *)element);
}

/* The name of the next `#include "NAME"` from *at on, *at moved behind it; false if there is none. */
static bool next_include(const char **at, char *name, size_t size)
{
    static const char word[] = "include";
    for (const char *s = *at; (s = strchr(s, '#'));) {
        s += 1 + strspn(s + 1, " \t");
        if (strncmp(s, word, sizeof word - 1)) continue;
        s += sizeof word - 1;
        s += strspn(s, " \t");
        size_t n = *s == '"' ? strcspn(s + 1, "\"\n") : size;
        if (n >= size) continue;
        memcpy(name, s + 1, n);
        name[n] = 0;
        *at = s + 1 + n;
        return true;
    }
    return false;
}

/* Marks what the text includes, and all that this includes. */
static void mark(bool *marked, const struct sources *s, const char *text)
{
    char name[256];
    while (next_include(&text, name, sizeof name)) {
        const char **found = bsearch(name, s->names, (size_t)s->count, sizeof *s->names, by_name);
        if (!found || marked[found - s->names]) continue;
        marked[found - s->names] = true;
        mark(marked, s, s->texts[found - s->names]);
    }
}

/* Digest of the lines "digest name", one a file, in the table's order. */
static bool digest_members(struct closure *c, const struct sources *s, const bool *marked)
{
    char *list = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&list, &size);
    if (!f) return false;
    for (int i = 0; i < s->count; i++)
        if (marked[i]) fprintf(f, "%s %s\n", s->digests[i], s->names[i]);
    bool ok = fclose(f) == 0;
    if (ok) sha256_hex(c->digest, list, size);
    free(list);
    return ok;
}

bool closure_of(struct closure *c, const struct sources *s, const char *text)
{
    bool *marked = calloc((size_t)s->count + 1, sizeof *marked);
    *c = (struct closure){.names = malloc(sizeof *c->names * ((size_t)s->count + 1)),
                          .texts = malloc(sizeof *c->texts * ((size_t)s->count + 1))};
    bool ok = marked && c->names && c->texts;
    if (ok) mark(marked, s, text);
    for (int i = 0; ok && i < s->count; i++)
        if (marked[i]) c->names[c->count] = s->names[i], c->texts[c->count++] = s->texts[i];
    ok = ok && digest_members(c, s, marked);
    free(marked);
    if (!ok) closure_free(c);
    return ok;
}

void closure_free(struct closure *c)
{
    free(c->names);
    free(c->texts);
    *c = (struct closure){0};
}
