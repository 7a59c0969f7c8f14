/* caches.c -- the cache that a process has without asking. */
#include "compile.h"

#include <stdatomic.h>
#include <stdio.h>

static _Atomic(struct coda_cache *) own;

/* Opened at first need; of two threads that open it the first wins. */
struct coda_cache *jit_cache(struct coda_cache *c)
{
    struct coda_cache *none = NULL;
    if (c || (c = atomic_load(&own))) return c;
    process_keeps();
    if (!(c = cache_open(NULL)) || atomic_compare_exchange_strong(&own, &none, c)) return c;
    cache_close(c);
    return none;
}

void jit_cache_drop(void) { cache_close(atomic_exchange(&own, NULL)); }

bool jit_cache_info(char *line, size_t size)
{
    struct coda_cache *c = jit_cache(NULL);
    bool kept = c && cache_dir(c)[0];
    char why[JIT_ERROR_SIZE];
    if (!jit_inputs_are_known(why, sizeof why)) snprintf(line, size, "passed by: %s", why);
    else if (kept) snprintf(line, size, "%s", cache_dir(c));
    else snprintf(line, size, "none: %s", c ? cache_problem(c) : "out of memory");
    return kept;
}
