/* executable.c -- the end of a coda_plan. */
#include "executable.h"

#include <stdlib.h>

void executable_free(struct coda_plan *p)
{
    if (!p) return;
    kernels_free(p);
    plan_free(&p->plan);
    arena_free(&p->arena);
    free(p);
}
