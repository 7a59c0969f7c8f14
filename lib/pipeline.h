/* pipeline.h -- coda.c: the stages in order; plan_args.c and plan_texts.c: what a plan says of its arguments,
 * and of itself. */
#ifndef PIPELINE_H
#define PIPELINE_H

#include "executable.h"

/* A plan of a rewritten graph: copies, programs, order, schedules, memory. Emission comes after it. */
coda_status plan_build(struct plan *p, const graph *g, const struct plan_options *opt);

/* What plans that differ in numbers alone are written down from. */
struct plan_template {
    struct skeleton *skeleton; /* skeleton.h; beside it the places of arguments, without their names */
    struct template_ids ids;
    bool settles; /* none has a product that a library may take over */
};

/* What a plan shares with others of its graph; NULL, or zeros, if it stands alone. */
struct compile_context {
    /* The plan whose device this one takes. It has the texts that are only read, and what fusion saved, so
     * that this one has neither; the graph may be rewritten already. */
    const coda_plan *parent;
    struct variants *variants; /* plan.h */
    bool base;
    bool frugal; /* plan_options.frugal */
    const struct plan *const *larger;
    int largers;
    struct kernel_table *table; /* kernels that the plan takes, and adds to */
    bool unloaded;              /* its kernels are left to compile_load */
    bool loaded_only; /* if they are not all that it needs, it is not runnable, and that is no failure */
    int threads;      /* that compile; 0: kernels_threads() */
    const atomic_bool *stops; /* as kernels_compile() has it */
    bool dry_run;             /* what it would be: without kernels' texts, and not to be run */
    struct guards *guards;    /* guards.h: of questions that are asked of its extents, the notes; or NULL */
    /* The plan is written down from this template, at this point, and the graph is not needed; or NULL. */
    const struct plan_template *plan_template;
    const int64_t *at;
};

/* All of coda_compile of a graph without symbols, whose arguments are checked: *out is a new plan, or the
 * message is set. */
coda_status compile_graph(coda_plan **out, const graph *g, const coda_compile_options *opt,
                          const struct compile_context *context);
/* Goes on with plans that were left unloaded: compiles at one time what kernels of theirs are not known, and
 * gives the first plan its own. */
coda_status compile_load(coda_plan *const *plan, int plans, const coda_compile_options *opt,
                         struct kernel_table *table);
/* The graph that a plan with these options is of; symbols stay. NULL with the message set. */
graph *compile_rewritten(const graph *g, const coda_compile_options *opt);
/* A joint graph as coda_split cuts it; see rewrite_joint(). */
graph *split_ready(const graph *joint, int *value, int n);

/* ---- plan_args.c ---- */

/* Copies the graph's arguments, in memory of the host or of a device. */
coda_status args_copy(struct coda_plan *p, const graph *g, bool host);
/* Marks the weights that hold something else once coda_prepare has run. */
void args_mark_folds(struct coda_plan *p);
/* Marks the leaves that no run touches. Each shape of a graph with symbols has programs of its own, so that
 * nothing is said of these graphs. */
void args_mark_unread(struct coda_plan *p);

/* ---- plan_texts.c ---- */

struct rewrite_log;
coda_status keep_graph(struct coda_plan *p, const graph *g, coda_text what);
coda_status keep_derivation(struct coda_plan *p, const struct rewrite_log *log);
coda_status keep_plan(struct coda_plan *p); /* as text, and for dot */
/* CODA_TEXT_REASONS: why its programs are as many as they are, and their kernels those that they are. */
coda_status plan_reasons(const coda_plan *p, struct text *t);
coda_status plan_stages(const coda_plan *p, struct text *t); /* CODA_TEXT_STAGES */

#endif
