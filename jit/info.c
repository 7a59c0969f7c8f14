/* info.c -- where compiled kernels are kept, as one line. */
#include "jit.h"

#include <stdio.h>

#include "cache.h"

bool jit_cache_info(char *line, size_t size)
{
    struct cache *c = cache_open(NULL);
    bool kept = c && cache_dir(c)[0];
    if (kept) snprintf(line, size, "%s", cache_dir(c));
    else snprintf(line, size, "none: %s", c ? cache_problem(c) : "out of memory");
    cache_close(c);
    return kept;
}
