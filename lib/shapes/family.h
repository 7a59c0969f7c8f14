/*
 * family.h -- what the plans of all shapes of one graph share, and how one more of them is made. It does not
 * change once it is open: many threads may make plans.
 */
#ifndef FAMILY_H
#define FAMILY_H

#include "executable.h"
#include "templates.h"

enum { MOST_EXTREMES = 1024, MOST_PROBES = 8 };

struct family {
    graph *graph;     /* as it was given */
    graph *rewritten; /* NULL: only with its symbols bound it can be */
    coda_compile_options opt;
    struct variants *variants;
    struct templates *templates;
    struct kernel_table *table;        /* on a GPU; else NULL */
    coda_plan *extreme[MOST_EXTREMES]; /* plans of shapes that are large, as far as their kind goes */
    int extremes;
    coda_plan *probe[MOST_PROBES]; /* of the base, of shapes that want other kernels than those have */
    int probes;
    const struct plan *larger[MOST_EXTREMES + 1]; /* theirs, and that of the whole */
    int largers;
};

coda_status family_open(struct family *f, const graph *g, const coda_compile_options *opt);
void family_close(struct family *f);
/* Nobody changes what its plans share in between: a fork() gives its child all of it whole. */
void family_hold(struct family *f);
void family_let_go(struct family *f);

/* family_whole.c: the plan of the largest shape, whose workspace and prepared memory serve all others.
 * `base`: of kernels for any number of rows; those that other shapes want besides are loaded, too, as far as
 * probes find them. */
coda_status family_whole(struct family *f, coda_plan **out, bool base);

/* Which plan of a shape is wanted. */
struct plan_request {
    const char *call; /* for messages */
    const int64_t *dims;
    bool base;                /* of kernels that serve any shape, though slower; else of the best ones */
    bool frugal;              /* products' tiles leave few states, though others are faster */
    bool loaded;              /* only if all its kernels are loaded: else *out is NULL, which is no failure */
    bool dry_run;             /* only to be looked at: it has no kernels */
    bool text_only;           /* only to be looked at: it has its kernels' texts alone */
    bool unloaded;            /* compile_load goes on with it */
    bool approximate;         /* dry_run: as shapes around it are, though it may do with less */
    struct guards *guards;    /* dry_run: takes notes of what was asked of extents; or NULL */
    bool fully;               /* by all stages, though its template is known */
    int threads;              /* that compile; 0: kernels_threads() */
    const atomic_bool *stops; /* as kernels_compile() has it */
};
coda_status family_plan(struct family *f, coda_plan **out, const coda_plan *whole,
                        const struct plan_request *w);

/* The same of the request's graph as it is, with such flags besides: the plan may want more memory than
 * callers were told. */
coda_status family_compile(struct family *f, coda_plan **out, const coda_plan *whole,
                           const struct plan_request *w, unsigned flags);

/* "B=1, T=37" */
void family_say(const struct family *f, const int64_t *dims, char *out, size_t size);

#endif
