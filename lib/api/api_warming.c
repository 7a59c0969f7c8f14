/* api_warming.c -- calls of coda_warm under way in this thread: the plans that their functions free stay. */
#include "api.h"

static _Thread_local struct warming *innermost;

void warming_begin(struct warming *w, const coda_plan *p)
{
    *w = (struct warming){.plan = p, .outer = innermost};
    innermost = w;
}

coda_plan *warming_end(struct warming *w)
{
    innermost = w->outer;
    for (const struct warming *o = innermost; o; o = o->outer)
        if (o->plan == w->plan) return NULL;
    return w->freed;
}

bool warming_frees(coda_plan *p)
{
    bool found = false;
    for (struct warming *w = innermost; w; w = w->outer)
        if (w->plan == p) w->freed = p, found = true;
    return found;
}
