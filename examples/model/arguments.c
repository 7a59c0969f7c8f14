/*
 * arguments.c -- a plan's arguments by their names.
 */
#include <string.h>

#include "arguments.h"

/* Inputs are a plan's first arguments and outputs its last, so both ends are searched at once. */
int arguments_find(const coda_plan *p, const char *name)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    int n = coda_plan_args(p);
    for (int i = 0; i < n; i++) {
        int at = i % 2 ? n - 1 - i / 2 : i / 2;
        if (coda_plan_arg(p, at, &info) == CODA_OK && !strcmp(info.name, name)) return at;
    }
    return -1;
}

bool arguments_bind(const coda_plan *p, void **args, arguments_memory *memory, void *context, struct fault *f)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    for (int i = 0; i < coda_plan_args(p); i++) {
        if (coda_plan_arg(p, i, &info) != CODA_OK) return fault_set(f, "%s", coda_error());
        if (!(args[i] = memory(context, &info)))
            return fault_set(f, "argument %s: there is no memory of its %zu bytes", info.name, info.bytes);
    }
    return true;
}
