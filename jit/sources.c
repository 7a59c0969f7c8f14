/*
 * sources.c -- the primitives' sources, built in, or read from $CODA_PRIMITIVES while they are edited.
 *
 * A file that the folder lacks comes from the built-in set. The digest is over the contents, so an
 * edit never meets an old cubin.
 */
#include "compile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sources loaded; /* never freed: programs of other threads point into it */
static bool ready;

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
    s->texts = malloc(bytes);
    if (!s->names || !s->texts) return false;
    for (int i = 0; i < s->count; i++) {
        char *text = folder && *folder ? read_file(folder, prim_files[i].path) : NULL;
        s->names[i] = prim_files[i].path;
        s->texts[i] = text ? text : prim_files[i].text;
    }
    return digest_all(s);
}

const struct sources *sources_open(char *err)
{
    pthread_mutex_lock(&lock);
    if (!ready) {
        ready = load(&loaded);
        if (!ready) {
            free(loaded.names);
            free(loaded.texts);
        }
    }
    bool ok = ready;
    pthread_mutex_unlock(&lock);
    if (ok) return &loaded;
    jit_fail(err, CODA_E_MEMORY, "out of memory for the primitives' sources");
    return NULL;
}
