/*
 * arguments.h -- memory for all of a plan's arguments.
 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "coda.h"
#include "fault.h"

/* Sets args[i] for each argument of the plan to what `memory` says of it. NULL is a fault that names the
 * argument and its size. */
typedef void *arguments_memory(void *context, const coda_arg_info *info);
bool arguments_bind(const coda_plan *p, void **args, arguments_memory *memory, void *context,
                    struct fault *f);

#endif
