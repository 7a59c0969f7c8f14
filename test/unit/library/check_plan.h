/* check_plan.h -- what is planned of a graph, and what its plans compute. */
#ifndef CHECK_PLAN_H
#define CHECK_PLAN_H

#include "util_run.h"

/* Of a plan for sm_90a that no GPU is asked for; workspace, in bytes, may be NULL. */
coda_plan_stats plan_stats_of(const graph *g, size_t *workspace);

/* Such a plan of the graph that a text is of. */
coda_plan *plan_of_text(const char *text);

/* The launches of a plan by these flags. */
int plan_launches(const graph *g, unsigned flags);

/* NVRTC compiles each kernel of its plan for `arch`: nothing spills, and ptxas has nothing to say. */
void plan_compiles_cleanly(const graph *g, const char *name, const char *arch);

/* In each mode the CPU device's results are within 1e-4 of fp64. */
void plan_check_modes(const graph *g, uint64_t seed);

/* A graph, and the launches of its plan; less than 0: any number. */
struct launch_case {
    const char *what, *text;
    int launches;
};

/* Its plan has so many launches, no more than without fusion, and computes the graph for some seeds. */
void plan_check_case(const struct launch_case *c);

#endif
