/* pipeline.h -- coda.c: the stages in order. */
#ifndef PIPELINE_H
#define PIPELINE_H

#include "plan.h"

/* A plan of a rewritten graph: copies, programs, order, schedules, memory. Emission comes after it. */
coda_status plan_build(struct plan *p, const graph *g, const struct plan_options *opt);

/* All of coda_compile of a graph without symbols, whose arguments are checked: *out is a new plan, or the
 * message is set. */
coda_status compile_graph(coda_plan **out, const graph *g, const coda_compile_options *opt);
/* The graph that a plan with these options is of; symbols stay. NULL with the message set. */
graph *compile_rewritten(const graph *g, const coda_compile_options *opt);
/* compile_graph on the device of another plan, and without what is only read: texts, what fusion saved. The
 * graph may be rewritten already. */
coda_status compile_beside(coda_plan **out, const graph *g, const coda_compile_options *opt,
                           const coda_plan *other);

#endif
