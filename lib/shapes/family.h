/*
 * family.h -- what the plans of all shapes of one graph share, and how one more of them is made. It does not
 * change once it is open: many threads may make plans.
 */
#ifndef FAMILY_H
#define FAMILY_H

#include "executable.h"
#include "forms.h"

enum { MOST_CORNERS = 32, MOST_PROBES = 8 };

struct family {
    graph *graph;     /* as it was given */
    graph *rewritten; /* NULL: only with its symbols bound it can be */
    coda_compile_options opt;
    struct variants *variants;
    struct forms *forms;
    struct known *known;             /* on a GPU; else NULL */
    coda_plan *corner[MOST_CORNERS]; /* plans of shapes that are large, as far as their kind goes */
    int corners;
    coda_plan *probe[MOST_PROBES]; /* of the base, of shapes that want other kernels than those have */
    int probes;
    const struct plan *larger[MOST_CORNERS + 1]; /* theirs, and that of the whole */
    int largers;
};

coda_status family_open(struct family *f, const graph *g, const coda_compile_options *opt);
void family_close(struct family *f);
/* Nobody changes what its plans share in between: a fork() gives its child all of it whole. */
void family_hold(struct family *f);
void family_let_go(struct family *f);

/* The plan of the largest shape, whose workspace and prepared memory serve all others. `base`: of kernels for
 * any number of rows; those that other shapes want besides are loaded, too, as far as probes find them. */
coda_status family_whole(struct family *f, coda_plan **out, bool base);

/* Which plan of a shape is wanted. */
struct wish {
    const char *call; /* for messages */
    const int64_t *dims;
    bool base;             /* of kernels that serve any shape, though slower; else of the best ones */
    bool loaded;           /* only if all its kernels are loaded: else *out is NULL, which is no failure */
    bool drawn;            /* only to be looked at: it has no kernels */
    bool told;             /* only to be looked at: it has their texts alone */
    bool unloaded;         /* compile_load goes on with it */
    bool loosely;          /* drawn: as shapes around it are, though it may do with less */
    struct guards *guards; /* drawn: takes notes of what was asked of extents; or NULL */
    bool fully;            /* by all stages, though its form is known */
    int threads;           /* that compile; 0: kernels_threads() */
};
coda_status family_plan(struct family *f, coda_plan **out, const coda_plan *whole, const struct wish *w);

/* "B=1, T=37" */
void family_say(const struct family *f, const int64_t *dims, char *out, size_t size);

#endif
