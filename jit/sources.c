/*
 * sources.c -- the primitives' sources, built in, or read from $CODA_PRIMITIVES while they are edited.
 *
 * A file that the folder lacks comes from the built-in set. The digest is over the contents, so an
 * edit never meets an old cubin.
 */
#include "compile.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prim.h"

/* The whole file as a string; NULL if it cannot be read. */
static char *read_file(const char *folder, const char *name)
{
    char *path = NULL, *text = NULL;
    size_t size = 0;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return NULL;
    FILE *in = fopen(path, "re"), *out = in ? open_memstream(&text, &size) : NULL;
    free(path);
    char block[4096];
    size_t n;
    while (out && (n = fread(block, 1, sizeof block, in))) fwrite(block, 1, n, out);
    bool ok = in && out && !ferror(in);
    if (in) fclose(in);
    if (out && fclose(out)) ok = false;
    if (ok) return text;
    free(text);
    return NULL;
}

/* Digest of the lines "digest name", one a file, in the table's order. */
static bool digest_all(struct sources *s)
{
    char *list = NULL, hex[DIGEST_HEX];
    size_t size = 0;
    FILE *f = open_memstream(&list, &size);
    if (!f) return false;
    for (int i = 0; i < s->count; i++) {
        struct digest d = digest_of(s->texts[i], strlen(s->texts[i]));
        digest_hex(hex, &d);
        fprintf(f, "%s %s\n", hex, s->names[i]);
    }
    bool ok = fclose(f) == 0;
    struct digest all = digest_of(list, size);
    if (ok) digest_hex(s->digest, &all);
    free(list);
    return ok;
}

static bool load(struct sources *s)
{
    const char *folder = secure_getenv("CODA_PRIMITIVES");
    size_t bytes = sizeof(char *) * (size_t)(prim_file_count + 1);
    s->count = prim_file_count;
    s->names = malloc(bytes);
    s->texts = calloc(1, bytes);
    if (!s->names || !s->texts) return false;
    for (int i = 0; i < s->count; i++) {
        char *text = folder && *folder ? read_file(folder, prim_files[i].path) : NULL;
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
    free(s);
}

/* Of two threads that load them the first wins; no lock, so that a child of fork() never meets one. */
const struct sources *sources_open(char *err)
{
    static _Atomic(struct sources *) loaded; /* never freed: programs of other threads point into it */
    struct sources *s = atomic_load(&loaded), *none = NULL;
    if (s) return s;
    if (!(s = calloc(1, sizeof *s)) || !load(s)) {
        drop(s);
        jit_fail(err, CODA_E_MEMORY, "out of memory for the primitives' sources");
        return NULL;
    }
    if (atomic_compare_exchange_strong(&loaded, &none, s)) return s;
    drop(s);
    return none;
}
