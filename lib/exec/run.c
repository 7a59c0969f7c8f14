/*
 * run.c -- bind pointers and launch programs in order. Neither allocates nor looks anything up by name:
 * a kernel's parameters are built on the stack from tables made by coda_compile. (CODA_DEBUG=launch does.)
 */
#include "executable.h"

#include "cpu.h"
#include "kept.h"
#include "launches.h"

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
    const struct compiled_program *cp = &c->p->program[index];
    const struct kernel *spec = &cp->emitted;
    struct params params;
    for (int i = 0; i < spec->maps; i++) {
        params.map[i] = cp->map[i];
        const struct map_spec *m = &spec->map[i];
        int64_t from = m->offset ? dtype_bytes(m->dtype, m->offset) : 0;
        coda_status status = jit_map_rebase(&params.map[i], address(c, m->buffer, from), err);
        if (status) return status;
    }
    void **pointer = (void **)&params.map[spec->maps];
    for (int i = 0; i < spec->pointers; i++)
        pointer[i] = address(c, spec->pointer[i].buffer, spec->pointer[i].bytes);
    uint32_t *scalar = (uint32_t *)(pointer + spec->pointers);
    for (int i = 0; i < spec->scalars; i++) {
        const struct scalar_spec *s = &spec->scalar[i];
        memcpy(&scalar[i], s->buffer == SCALAR_NUMBER ? (const void *)&s->number : address(c, s->buffer, 0),
               4);
    }
    size_t bytes = sizeof(struct jit_map) * (size_t)spec->maps + sizeof(void *) * (size_t)spec->pointers +
                   sizeof *scalar * (size_t)spec->scalars;
    return jit_launch(c->p->kernel[cp->kernel].kernel, &cp->launch, &params, bytes, stream, err);
}

static coda_status launch_lt(const struct call *c, int index, coda_stream stream, char *err)
{
    const struct program *q = &c->p->plan.program[index];
    const struct tensor_use *d = &q->port[q->step[1].port];
    const struct tensor_use *scratch = &q->port[q->ports - 1];
    return jit_lt_run(c->p->program[index].lt, address(c, q->a.buffer, use_start(&q->a)),
                      address(c, q->b.buffer, use_start(&q->b)), address(c, d->buffer, use_start(d)),
                      address(c, scratch->buffer, 0), stream, err);
}

static coda_status run_gpu(const struct call *c, int index, coda_stream stream)
{
    char err[JIT_ERROR_SIZE];
    int kernel = c->p->program[index].kernel;
    if (kernel == KERNEL_NONE && !is_cublaslt(&c->p->plan, index)) return CODA_OK; /* an empty domain */
    coda_status status =
        kernel == KERNEL_NONE ? launch_lt(c, index, stream, err) : launch_kernel(c, index, stream, err);
    if (!status) return CODA_OK;
    return fail(status, "@%d %s: %s", index,
                kernel == KERNEL_NONE ? "cublaslt" : c->p->kernel[kernel].info.name, err);
}

/* ---- A call ---- */

static struct arguments arguments(const struct call *c, const char *name, bool prepare)
{
    const struct coda_plan *p = c->p;
    return (struct arguments){.call = name,
                              .place = p->place,
                              .places = p->args,
                              .args = c->args,
                              .workspace = c->workspace,
                              .workspace_bytes = p->plan.workspace,
                              .prepared = c->prepared,
                              .prepared_bytes = p->plan.prepared,
                              .prepare = prepare,
                              .states = p->states};
}

static coda_status check(const struct call *c, const struct arguments *b)
{
    if (!c->p->runnable) return fail(CODA_E_INVALID, "%s: the plan was compiled for no device", b->call);
    return arguments_check(b);
}

/* A run on the CPU device has ended when this returns, a launch has begun. */
static coda_status run_one(const struct call *c, int index, coda_stream stream)
{
    bool on_cpu = c->p->device == CODA_DEVICE_CPU, shown = debug_on(DEBUG_LAUNCH);
    double began = shown ? launch_clock() : 0;
    coda_status status =
        on_cpu ? cpu_run(&c->p->plan, &c->p->plan.program[index], c->args, c->prepared, c->workspace)
               : run_gpu(c, index, stream);
    if (shown && !status) launch_show(c->p, index, on_cpu ? launch_clock() - began : -1);
    return status;
}

/* *begun: programs that were begun. */
static coda_status run_programs(const struct call *c, bool prepare, coda_stream stream, int *begun)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < c->p->plan.programs && !status; i++) {
        if (c->p->plan.program[i].prepare != prepare) continue;
        ++*begun;
        status = run_one(c, i, stream);
    }
    return status;
}

coda_status executable_run(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                           coda_stream stream, int threads)
{
    struct call c = {p, args, prepared, workspace};
    int begun = 0;
    struct arguments b = arguments(&c, "run", false);
    coda_status status = check(&c, &b);
    if (!status) status = kept_check(&b, p->plan.prepared_id);
    if (status) return status;
    int before = parallel_limit(threads);
    status = run_programs(&c, false, stream, &begun);
    parallel_limit(before);
    return status;
}

static bool is_gpu(const struct coda_plan *p) { return p->device == CODA_DEVICE_GPU; }

coda_status executable_prepare(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                               coda_stream stream)
{
    struct call c = {p, args, prepared, workspace};
    struct keeping *keeping;
    int begun = 0;
    struct arguments b = arguments(&c, "prepare", true);
    coda_status status = check(&c, &b);
    if (status || !p->plan.prepared_id) return status;
    status = kept_begin(&keeping, &b, p->plan.prepared_id, is_gpu(p));
    if (status) return status;
    status = run_programs(&c, true, stream, &begun);
    kept_end(keeping, status, begun > 0);
    return status;
}

coda_status executable_adopt(const struct coda_plan *p, void *const *args, void *prepared)
{
    struct call c = {p, args, prepared, NULL};
    struct arguments b = arguments(&c, "prepare_adopt", true);
    b.workspace_bytes = 0;
    coda_status status = check(&c, &b);
    return status || !p->plan.prepared_id ? status : kept_adopt(&b, p->plan.prepared_id, is_gpu(p));
}
