/* info.c -- where compiled kernels are kept, as one line. */
#include "jit.h"

#include <stdio.h>

#include "old.h"

bool jit_cache_info(char *line, size_t size)
{
    struct old_cache *c = old_open(NULL);
    bool kept = c && old_dir(c)[0];
    if (kept) snprintf(line, size, "%s", old_dir(c));
    else snprintf(line, size, "none: %s", c ? old_problem(c) : "out of memory");
    old_close(c);
    return kept;
}
