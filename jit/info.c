/* info.c -- where compiled kernels are kept, as one line. */
#include "jit.h"

#include <stdio.h>

#include "cache.h"

bool jit_cache_info(char *line, size_t size)
{
    struct cache *c = cache_open(NULL);
    const char *dir = c ? cache_dir(c) : "";
    bool kept = dir[0] != 0;
    snprintf(line, size, "%s", kept ? dir : "none: no directory that can be trusted and written");
    if (c) cache_close(c);
    return kept;
}
