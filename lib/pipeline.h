/* pipeline.h -- coda.c: the stages in order. */
#ifndef PIPELINE_H
#define PIPELINE_H

#include "executable.h"

/* A plan of a rewritten graph: copies, programs, order, schedules, memory. Emission comes after it. */
coda_status plan_build(struct plan *p, const graph *g, const struct plan_options *opt);

/* What plans that differ in numbers alone are written down from. */
struct form {
    struct skeleton *skeleton; /* skeleton.h; beside it the places of arguments, without their names */
    struct likeness like;
    bool settles; /* none has a product that a library may take over */
};

/* Of what family a plan is: NULL, or all of it NULL, if it stands alone. */
struct kinship {
    const coda_plan *elder; /* whose device it takes, and whose texts are enough: no text that is only read,
                                  nor what fusion saved; the graph may be rewritten already */
    struct variants *variants; /* plan.h */
    bool base;
    const struct plan *const *larger;
    int largers;
    struct known *known;   /* known.h: kernels that the plan takes, and adds to */
    bool unloaded;         /* its kernels are left to compile_load */
    bool known_alone;      /* if they are not all that it needs, it is not runnable, and that is no failure */
    int threads;           /* that compile; 0: kernels_threads() */
    bool drawn;            /* what it would be: without kernels' texts, and not to be run */
    struct guards *guards; /* guards.h: of questions that are asked of its extents, the notes; or NULL */
    const struct form *form; /* it has this one, at this point: the graph is not needed; or NULL */
    const int64_t *at;
};

/* All of coda_compile of a graph without symbols, whose arguments are checked: *out is a new plan, or the
 * message is set. */
coda_status compile_graph(coda_plan **out, const graph *g, const coda_compile_options *opt,
                          const struct kinship *kin);
/* Goes on with plans that were left unloaded: compiles at one time what kernels of theirs are not known, and
 * gives the first plan its own. */
coda_status compile_load(coda_plan *const *plan, int plans, const coda_compile_options *opt,
                         struct known *known);
/* CODA_TEXT_REASONS: why its programs are as many as they are, and their kernels those that they are. */
coda_status plan_reasons(const coda_plan *p, struct text *t);
/* The graph that a plan with these options is of; symbols stay. NULL with the message set. */
graph *compile_rewritten(const graph *g, const coda_compile_options *opt);

#endif
