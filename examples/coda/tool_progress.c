/* tool_progress.c -- compilations that show how far they are, where somebody looks: see progress.h. */
#include "tool.h"

struct progress working;

/* Kernels that the plan will have; 0 if that is not known. */
static int64_t count_kernels(const coda_graph *g, const coda_compile_options *opt)
{
    coda_compile_options c = *opt;
    coda_plan *p = NULL;
    c.flags |= CODA_PLAN_ONLY;
    if (c.device == CODA_DEVICE_GPU) c.device = CODA_DEVICE_NONE;
    if (coda_compile(&p, g, &c) != CODA_OK) return 0;
    int64_t n = coda_plan_kernels(p);
    coda_plan_free(p);
    return n;
}

coda_status compile_shown(coda_plan **out, const coda_graph *g, const coda_compile_options *c,
                          const char *file)
{
    bool tuned = c->flags & (CODA_AUTOTUNE | CODA_MAX_AUTOTUNE);
    progress_begin(&working, "%s %s",
                   c->flags & CODA_PLAN_ONLY ? "planning"
                   : tuned                   ? "tuning"
                                             : "compiling",
                   file);
    if (working.on && c->device != CODA_DEVICE_CPU && !(c->flags & (CODA_PLAN_ONLY | CODA_NO_CACHE)))
        progress_kernels(&working, c->cache, tuned ? 0 : count_kernels(g, c));
    coda_status status = coda_compile(out, g, c);
    progress_end(&working);
    return status;
}
