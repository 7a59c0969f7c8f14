/* util_family_run.h -- runs a family in every mode and judges it. */
#ifndef UTIL_FAMILY_RUN_H
#define UTIL_FAMILY_RUN_H

#include "util_family.h"

/* Runs the family unfused, fused, and with each fold on opt->device, several times each as run_plan() does;
 * false with the reason if any run is wrong. */
bool family_good(const struct family *f, const coda_compile_options *opt, char *why, size_t size);

#endif
