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

#include "old.h"

static char *print_key(const char *what, const struct jit_device *dev, const struct jit_options *opt)
{
    char *key = NULL;
    size_t size = 0;
    char err[JIT_ERROR_SIZE];
    const struct sources *s = sources_open(err);
    FILE *f = s ? open_memstream(&key, &size) : NULL;
    if (!f) return NULL;
    fprintf(f, "coda figures 1\n");
    fprintf(f, "device %s, %d SMs, driver %d, arch %s\n", dev->name, dev->sms, dev->driver, opt->arch);
    fprintf(f, "library %s, primitives %s\n%s", CODA_VERSION_STRING, s->digest, what);
    bool ok = !ferror(f);
    if (fclose(f) == 0 && ok) return key;
    free(key);
    return NULL;
}

char *jit_figures_get(const char *what, const struct jit_device *dev, const struct jit_options *opt)
{
    char *key = opt->no_cache ? NULL : print_key(what, dev, opt), *text = NULL;
    struct old_cache *c = key ? old_open(opt->cache_dir) : NULL;
    void *data;
    size_t size;
    if (c && old_get(c, key, &data, &size)) {
        text = strndup(data, size);
        free(data);
    }
    old_close(c);
    free(key);
    return text;
}

void jit_figures_put(const char *what, const struct jit_device *dev, const struct jit_options *opt,
                     const char *text)
{
    char *key = opt->no_cache ? NULL : print_key(what, dev, opt);
    struct old_cache *c = key ? old_open(opt->cache_dir) : NULL;
    if (c) old_put(c, key, text, strlen(text), NULL);
    old_close(c);
    free(key);
}
