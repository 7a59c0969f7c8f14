/*
 * key.c -- everything that can change a cubin, as text. Two kernels of one key are the same bytes.
 *
 * It has two parts. WHAT is asked for: arch, options, text, and the primitives that it can read; NVRTC adds
 * the flags of its own two environment variables, so they are part of it. BY whom it is made: NVRTC's version
 * and build. A bundle is asked for the first alone, so that it serves a machine that has another NVRTC or
 * none.
 *
 * No install path, date, device index or pointer: a cache moves between machines. Sources stand in it as
 * their digests: the primitives' is a SHA-256, the text's is not, and the text is compared with the entry's
 * note, which is the whole of it.
 */
#include "compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_FORMAT 4 /* of this text and of compile.c's payload; raise it when either changes */

static char *finish(FILE *f, char **key)
{
    bool ok = !ferror(f);
    if (fclose(f) == 0 && ok) return *key;
    free(*key);
    return NULL;
}

static void print_flags(FILE *f, const char *name, const char *variable)
{
    const char *s = environment(variable);
    if (s) fprintf(f, "%s %s\n", name, s);
}

char *key_print_what(const struct key_parts *k)
{
    char *key = NULL, hex[DIGEST_HEX];
    size_t size = 0, length = strlen(k->text);
    FILE *f = open_memstream(&key, &size);
    if (!f) return NULL;
    struct digest text = digest_of(k->text, length);
    digest_hex(hex, &text);
    fprintf(f, "coda kernel %d\n", KEY_FORMAT);
    fprintf(f, "symbol %s\n", k->symbol);
    fprintf(f, "arch %s\n", k->arch);
    for (const char *const *o = k->options; *o; o++) fprintf(f, "option %s\n", *o);
    print_flags(f, "prepend", "NVRTC_PREPEND_FLAGS");
    print_flags(f, "append", "NVRTC_APPEND_FLAGS");
    fprintf(f, "primitives %s\n", k->primitives);
    fprintf(f, "text %zu %s\n", length, hex);
    return finish(f, &key);
}

char *key_print_by(int major, int minor, const char *build)
{
    char *key = NULL;
    return asprintf(&key, "nvrtc %d.%d %s\n", major, minor, *build ? build : "unknown") < 0 ? NULL : key;
}
