/*
 * key.c -- everything that can change a cubin, as text. Two kernels of one key are the same bytes.
 *
 * No install path, date, device index or pointer: a cache moves between machines. NVRTC adds the
 * flags of its own two environment variables, so they are part of the key.
 */
#include "compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_FORMAT 1 /* of this text and of compile.c's payload; raise it when either changes */

static const char *environment(const char *name)
{
    const char *s = getenv(name);
    return s ? s : "";
}

char *key_print(const struct key_parts *k)
{
    char *key = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&key, &size);
    if (!f) return NULL;
    fprintf(f, "coda kernel %d\n", KEY_FORMAT);
    fprintf(f, "nvrtc %d.%d %s\n", k->nvrtc_major, k->nvrtc_minor, k->nvrtc_build);
    fprintf(f, "arch %s\n", k->arch);
    for (const char *const *o = k->options; *o; o++) fprintf(f, "option %s\n", *o);
    fprintf(f, "prepend %s\n", environment("NVRTC_PREPEND_FLAGS"));
    fprintf(f, "append %s\n", environment("NVRTC_APPEND_FLAGS"));
    fprintf(f, "primitives %s\n", k->primitives);
    fprintf(f, "symbol %s\n", k->symbol);
    fprintf(f, "text %zu\n%s", strlen(k->text), k->text);
    bool ok = !ferror(f);
    if (fclose(f) == 0 && ok) return key;
    free(key);
    return NULL;
}
