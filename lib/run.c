/*
 * run.c -- bind pointers and launch programs in order. Neither allocates nor looks anything up by name:
 * a kernel's parameters are built on the stack from tables made by coda_compile.
 */
#include "compiled.h"
#include "cpu.h"

#include <string.h>

struct call {
    const struct coda_plan *p;
    void *const *args;
    char *prepared, *workspace;
};

static char *address(const struct call *c, int buffer, int64_t bytes)
{
    const struct buffer *b = &c->p->plan.buffer[buffer];
    char *base = b->space == SPACE_ARG    ? c->args[b->arg]
                 : b->space == SPACE_WORK ? c->workspace + b->offset
                                          : c->prepared + b->offset;
    return base + bytes;
}

struct params {
    _Alignas(128) struct jit_map map[KERNEL_MAX_MAPS];
    void *pointer[KERNEL_MAX_POINTERS];
};

static coda_status launch_kernel(const struct call *c, int index, coda_stream stream, char *err)
{
    const struct kernel_spec *spec = &c->p->plan.program[index].kernel;
    const struct compiled_program *cp = &c->p->program[index];
    struct params params;
    for (int i = 0; i < spec->maps; i++) {
        params.map[i] = cp->map[i];
        const struct map_spec *m = &spec->map[i];
        coda_status status =
            jit_map_rebase(&params.map[i], address(c, m->buffer, m->offset * dtype_size(m->dtype)), err);
        if (status) return status;
    }
    void **pointer = (void **)&params.map[spec->maps];
    for (int i = 0; i < spec->pointers; i++)
        pointer[i] = address(c, spec->pointer[i].buffer, spec->pointer[i].bytes);
    size_t bytes = sizeof(struct jit_map) * (size_t)spec->maps + sizeof(void *) * (size_t)spec->pointers;
    return jit_launch(c->p->kernel[cp->kernel].kernel, &cp->launch, &params, bytes, stream, err);
}

static coda_status launch_lt(const struct call *c, int index, coda_stream stream, char *err)
{
    const struct program *q = &c->p->plan.program[index];
    const struct port *d = &q->port[q->step[1].port];
    return jit_lt_run(c->p->program[index].lt, address(c, q->a.buffer, q->a.offset * dtype_size(q->a.dtype)),
                      address(c, q->b.buffer, q->b.offset * dtype_size(q->b.dtype)),
                      address(c, d->buffer, d->offset * dtype_size(d->dtype)), address(c, q->scratch, 0),
                      stream, err);
}

static coda_status run_gpu(const struct call *c, int index, coda_stream stream)
{
    char err[JIT_ERROR_SIZE];
    const struct program *q = &c->p->plan.program[index];
    int kernel = c->p->program[index].kernel;
    if (kernel == KERNEL_NONE && !is_cublaslt(q)) return CODA_OK; /* an empty domain */
    coda_status status =
        kernel == KERNEL_NONE ? launch_lt(c, index, stream, err) : launch_kernel(c, index, stream, err);
    if (!status) return CODA_OK;
    return fail(status, "@%d %s: %s", index,
                kernel == KERNEL_NONE ? "cublaslt" : c->p->kernel[kernel].info.name, err);
}

static coda_status check(const struct call *c)
{
    const struct coda_plan *p = c->p;
    if (!p->runnable) return fail(CODA_E_INVALID, "run: the plan was compiled for no device");
    if (!c->args) return fail(CODA_E_INVALID, "run: args is NULL; the plan takes %d", p->args);
    for (int i = 0; i < p->args; i++) {
        if (!c->args[i] && p->arg[i].bytes)
            return fail(CODA_E_INVALID, "run: args[%d] (%s, %zu bytes) is NULL", i, p->arg[i].name,
                        p->arg[i].bytes);
        if ((uintptr_t)c->args[i] % 16)
            return fail(CODA_E_INVALID, "run: args[%d] (%s) is at %p, not a multiple of 16", i,
                        p->arg[i].name, c->args[i]);
    }
    if (p->plan.workspace && (!c->workspace || (uintptr_t)c->workspace % 256))
        return fail(CODA_E_INVALID, "run: workspace at %p; %lld bytes aligned to 256 are needed",
                    (void *)c->workspace, (long long)p->plan.workspace);
    if (p->plan.prepared && (!c->prepared || (uintptr_t)c->prepared % 256))
        return fail(CODA_E_INVALID, "run: prepared memory at %p; %lld bytes aligned to 256 are needed",
                    (void *)c->prepared, (long long)p->plan.prepared);
    return CODA_OK;
}

static coda_status run(const struct call *c, bool prepare, coda_stream stream)
{
    if (!c->p) return fail(CODA_E_INVALID, "run: plan is NULL");
    coda_status status = check(c);
    for (int i = 0; i < c->p->plan.programs && !status; i++) {
        if (c->p->plan.program[i].prepare != prepare) continue;
        status = c->p->device == CODA_DEVICE_CPU
                     ? cpu_run(&c->p->plan, &c->p->plan.program[i], c->args, c->prepared, c->workspace)
                     : run_gpu(c, i, stream);
    }
    return status;
}

CODA_API coda_status coda_run(const coda_plan *p, void *const *args, void *prepared, void *workspace,
                              coda_stream stream)
{
    return run(&(struct call){p, args, prepared, workspace}, false, stream);
}

CODA_API coda_status coda_prepare(const coda_plan *p, void *const *args, void *prepared, void *workspace,
                                  coda_stream stream)
{
    return run(&(struct call){p, args, prepared, workspace}, true, stream);
}
