/*
 * figures.c -- what was measured on a device, as text in the cache.
 *
 * A figure is worth something where the same kernels run: on the same device, with the same SMs, the
 * same driver, library and primitives. All of them are in the key.
 */
#include "compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

static char *print_key(const char *what, const struct jit_device *dev)
{
    char *key = NULL;
    size_t size = 0;
    char err[JIT_ERROR_SIZE];
    const struct sources *s = sources_open(err);
    FILE *f = s ? open_memstream(&key, &size) : NULL;
    if (!f) return NULL;
    fprintf(f, "coda figures 1\n");
    fprintf(f, "device %s, %d SMs, driver %d\n", dev->name, dev->sms, dev->driver);
    fprintf(f, "library %s, primitives %s\n%s", CODA_VERSION_STRING, s->digest, what);
    bool ok = !ferror(f);
    if (fclose(f) == 0 && ok) return key;
    free(key);
    return NULL;
}

char *jit_figures_get(const char *what, const struct jit_device *dev, const char *cache_dir)
{
    char *key = print_key(what, dev), *text = NULL;
    struct cache *c = key ? cache_open(cache_dir) : NULL;
    void *data;
    size_t size;
    if (c && cache_get(c, key, &data, &size)) {
        text = strndup(data, size);
        free(data);
    }
    cache_close(c);
    free(key);
    return text;
}

void jit_figures_put(const char *what, const struct jit_device *dev, const char *cache_dir, const char *text)
{
    char *key = print_key(what, dev);
    struct cache *c = key ? cache_open(cache_dir) : NULL;
    if (c) cache_put(c, key, text, strlen(text), NULL);
    cache_close(c);
    free(key);
}
