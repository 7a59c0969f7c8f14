/*
 * sources.c -- the primitives' sources, built in, or read from $CODA_PRIMITIVES while they are edited.
 *
 * A file that the folder lacks comes from the built-in set. Digests are over the contents, so an
 * edit never meets an old cubin; an edit that makes the compiler read other files keeps kernels out of the
 * cache. Keys hold digests alone, so they are such that nobody can find two texts for one.
 */
#include "closed_text.h"
#include "compile.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prim.h"
#include "sha256.h"

_Static_assert((int)SHA256_HEX == DIGEST_HEX, "a digest of 64 digits");

enum { SOURCE_MAX = 1 << 24 }; /* bytes */

/* The whole file as a string; NULL if it cannot be read, or is no source. */
static char *read_file(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return NULL;
    char *text = file_text(path, SOURCE_MAX);
    free(path);
    return text;
}

static bool is_ours(const char *name)
{
    for (int i = 0; i < prim_file_count; i++)
        if (!strcmp(prim_files[i].path, name)) return true;
    return false;
}

/* A text of the folder that is not the built-in one. What it makes the compiler read must be known, too. */
static void judge(struct sources *s, const char *name, const char *text)
{
    char why[100];
    if (s->open[0] || text_is_closed(text, is_ours, why, sizeof why)) return;
    snprintf(s->open, sizeof s->open, "$CODA_PRIMITIVES: %s: %s", name, why);
}

/* Digest of the lines "digest name", one a file, in the table's order. */
static bool digest_all(struct sources *s)
{
    char *list = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&list, &size);
    if (!f) return false;
    for (int i = 0; i < s->count; i++) {
        const struct prim_file *own = &prim_files[i];
        bool same = s->texts[i] == own->text || !strcmp(s->texts[i], own->text);
        if (!same) judge(s, own->path, s->texts[i]);
        if (same) memcpy(s->digests[i], own->digest, SHA256_HEX);
        else sha256_hex(s->digests[i], s->texts[i], strlen(s->texts[i]));
        fprintf(f, "%s %s\n", s->digests[i], own->path);
    }
    bool ok = fclose(f) == 0;
    if (ok) sha256_hex(s->digest, list, size);
    free(list);
    return ok;
}

static bool load(struct sources *s)
{
    const char *folder = environment("CODA_PRIMITIVES");
    size_t bytes = sizeof(char *) * (size_t)(prim_file_count + 1);
    s->count = prim_file_count;
    s->names = malloc(bytes);
    s->texts = calloc(1, bytes);
    s->digests = malloc(sizeof *s->digests * (size_t)(prim_file_count + 1));
    if (!s->names || !s->texts || !s->digests) return false;
    for (int i = 0; i < s->count; i++) {
        char *text = folder ? read_file(folder, prim_files[i].path) : NULL;
        s->names[i] = prim_files[i].path;
        s->texts[i] = text ? text : prim_files[i].text;
    }
    return digest_all(s);
}

static void drop(struct sources *s)
{
    if (!s) return;
    for (int i = 0; s->texts && i < s->count; i++)
        if (s->texts[i] != prim_files[i].text) free((char *)(uintptr_t)s->texts[i]);
    free(s->names);
    free(s->texts);
    free(s->digests);
    free(s);
}

static _Atomic(struct sources *) loaded; /* stays: programs of other threads point into it */

void sources_drop(void) { drop(atomic_exchange(&loaded, NULL)); }

/* Where two threads load them the first wins; no lock, so that a child of fork() never meets one. */
const struct sources *sources_open(char *err)
{
    struct sources *s = atomic_load(&loaded), *none = NULL;
    if (s) return s;
    process_keeps();
    if (!(s = calloc(1, sizeof *s)) || !load(s)) {
        drop(s);
        jit_fail(err, CODA_E_MEMORY, "out of memory for the primitives' sources");
        return NULL;
    }
    if (atomic_compare_exchange_strong(&loaded, &none, s)) return s;
    drop(s);
    return none;
}
