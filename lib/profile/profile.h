/* profile.h -- how long each launch of a plan takes, and how long it must. */
#ifndef PROFILE_H
#define PROFILE_H

#include "executable.h"

/* What coda_plan_profile() returns. */
struct coda_profile {
    struct arena arena;
    coda_profile_total total;
    coda_profile_launch *launch; /* total.launches of them */
};

/* The pointers of a run, which are as coda_run() has them. */
struct profiled {
    const struct coda_plan *plan;
    void *const *args;
    void *prepared, *workspace;
    coda_stream stream;
};

/* All of coda_plan_profile of a plan without symbols, whose options are checked. */
coda_status profile_plan(coda_profile **out, const struct profiled *run, const coda_profile_options *opt);
void profile_free(coda_profile *f); /* NULL is fine */

#endif
