/*
 * arguments.h -- a plan's arguments by their names.
 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "coda.h"
#include "fault.h"

/* The place of an argument in args; -1 if the plan has none of this name. */
int arguments_find(const coda_plan *p, const char *name);

/* Sets args[i] for each argument of the plan to what `memory` says of it. NULL is a fault that names the
 * argument and its size. */
typedef void *arguments_memory(void *context, const coda_arg_info *info);
bool arguments_bind(const coda_plan *p, void **args, arguments_memory *memory, void *context,
                    struct fault *f);

#endif
