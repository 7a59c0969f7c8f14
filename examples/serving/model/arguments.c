/*
 * arguments.c -- memory for all of a plan's arguments.
 */
#include "arguments.h"

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
