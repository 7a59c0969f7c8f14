/* runner_kernel.c -- programs that are kernels: their parameters are built on the stack, and launched. */
#include "runner.h"

#include <string.h>

static bool takes(const struct coda_plan *p, int index)
{
    (void)p, (void)index;
    return true;
}

/* ---- Load ---- */

static coda_status load_maps(struct coda_plan *p, struct compiled_program *c)
{
    char err[JIT_ERROR_SIZE] = "";
    const struct kernel *spec = &c->emitted;
    c->map = ARENA_NEW(&p->arena, struct jit_map, spec->maps + 1);
    if (!c->map) return fail(CODA_E_MEMORY, "out of memory for %d tensor maps", spec->maps);
    c->map = (struct jit_map *)(((uintptr_t)c->map + 127) / 128 * 128);
    for (int m = 0; m < spec->maps; m++) {
        const struct map_spec *s = &spec->map[m];
        struct jit_map_shape shape = {.dtype = s->dtype, .rank = s->rank, .swizzle = s->swizzle};
        shape.l2_promotion = s->l2_promotion;
        memcpy(shape.dim, s->dim, sizeof shape.dim);
        memcpy(shape.stride, s->stride, sizeof shape.stride);
        memcpy(shape.box, s->box, sizeof shape.box);
        coda_status status = jit_map_encode(&c->map[m], &shape, (void *)(uintptr_t)0x100000, err);
        if (status) return fail(status, "%s: tensor map %d: %s", spec->symbol, m, err);
    }
    return CODA_OK;
}

coda_status kernel_load(struct coda_plan *p, int index)
{
    struct compiled_program *c = &p->program[index];
    const struct launch_spec *l = &c->emitted.launch;
    int64_t grid = kernel_blocks(l, p->gpu.sms - aside_sms(p, index));
    coda_status status = load_maps(p, c);
    if (!status && grid > INT32_MAX)
        status = fail(CODA_E_UNSUPPORTED, "%s: %lld blocks", c->emitted.symbol, (long long)grid);
    if (!status)
        c->launch = (struct jit_launch){.grid = (unsigned)grid,
                                        .threads = (unsigned)l->threads,
                                        .shared_bytes = (unsigned)l->shared_bytes};
    return status;
}

/* ---- Run ---- */

coda_status kernel_params(const struct call *c, int index, struct kernel_params *out, size_t *bytes,
                          char *err)
{
    const struct compiled_program *cp = &c->p->program[index];
    const struct kernel *spec = &cp->emitted;
    for (int i = 0; i < spec->maps; i++) {
        out->map[i] = cp->map[i];
        const struct map_spec *m = &spec->map[i];
        int64_t from = m->offset ? dtype_bytes(m->dtype, m->offset) : 0;
        coda_status status = jit_map_rebase(&out->map[i], call_address(c, m->buffer, from), err);
        if (status) return status;
    }
    void **pointer = (void **)&out->map[spec->maps];
    for (int i = 0; i < spec->pointers; i++)
        pointer[i] = call_address(c, spec->pointer[i].buffer, spec->pointer[i].bytes);
    uint32_t *scalar = (uint32_t *)(pointer + spec->pointers);
    for (int i = 0; i < spec->scalars; i++) {
        const struct scalar_spec *s = &spec->scalar[i];
        memcpy(&scalar[i],
               s->buffer == SCALAR_NUMBER ? (const void *)&s->number : call_address(c, s->buffer, 0), 4);
    }
    *bytes = sizeof(struct jit_map) * (size_t)spec->maps + sizeof(void *) * (size_t)spec->pointers +
             sizeof *scalar * (size_t)spec->scalars;
    return CODA_OK;
}

static coda_status launch(const struct call *c, int index, char *err)
{
    const struct compiled_program *cp = &c->p->program[index];
    struct kernel_params params;
    size_t bytes;
    coda_status status = kernel_params(c, index, &params, &bytes, err);
    if (status) return status;
    return jit_launch(c->p->kernel[cp->kernel].kernel, &cp->launch, &params, bytes, c->stream, err);
}

static coda_status run(const struct call *c, int index)
{
    char err[JIT_ERROR_SIZE];
    coda_status status = launch(c, index, err);
    if (!status) return CODA_OK;
    return fail(status, "@%d %s: %s", index, c->p->kernel[c->p->program[index].kernel].info.name, err);
}

const struct runner runner_kernel = {.kernel = true, .takes = takes, .load = kernel_load, .run = run};
