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

char *figures_print_key(const char *what, const struct jit_device *dev, const char *arch)
{
    char *key = NULL;
    size_t size = 0;
    char err[JIT_ERROR_SIZE];
    const struct sources *s = sources_open(err);
    FILE *f = s ? open_memstream(&key, &size) : NULL;
    if (!f) return NULL;
    fprintf(f, "coda figures 2\n");
    fprintf(f, "arch %s\ndevice %s\nsms %d\ndriver %d\n", arch, dev->name, dev->sms, dev->driver);
    fprintf(f, "library %s\nprimitives %s\n%s", CODA_VERSION_STRING, s->digest, what);
    bool ok = !ferror(f);
    if (fclose(f) == 0 && ok) return key;
    free(key);
    return NULL;
}

/* Figures of kernels that are not known by their keys are nobody's either. */
static bool is_unkept(const struct jit_options *opt)
{
    char why[JIT_ERROR_SIZE];
    return opt->no_cache || !jit_inputs_are_known(why, sizeof why);
}

char *jit_figures_get(const char *what, const struct jit_device *dev, const struct jit_options *opt)
{
    char *text = is_unkept(opt) ? NULL : figures_print_key(what, dev, opt->arch), *found = NULL;
    struct coda_cache *c = text ? jit_cache(opt->cache) : NULL;
    struct cache_key key = cache_key(CACHE_TUNING, text ? text : "", "");
    void *data;
    size_t size;
    if (c && cache_get(c, &key, &data, &size)) {
        found = strndup(data, size);
        free(data);
    }
    free(text);
    return found;
}

void jit_figures_put(const char *what, const struct jit_device *dev, const struct jit_options *opt,
                     const char *text)
{
    char *own = is_unkept(opt) ? NULL : figures_print_key(what, dev, opt->arch);
    struct coda_cache *c = own ? jit_cache(opt->cache) : NULL;
    struct cache_key key = cache_key(CACHE_TUNING, own ? own : "", "");
    if (c) cache_put(c, &key, text, strlen(text));
    free(own);
}
