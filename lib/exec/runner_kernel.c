/* runner_kernel.c -- programs that are kernels: their parameters are built on the stack, and launched. */
#include "runner.h"
#include "schedule.h"

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

/* Tensor maps of all members; and the blocks that each has of the launch. */
static coda_status load_members(struct coda_plan *p, int index, int64_t *blocks)
{
    struct compiled_program *c = &p->program[index];
    const struct launch_spec *l = &c->emitted.launch;
    int members = plan_together(&p->plan, index);
    int64_t tiles[MOST_TOGETHER];
    coda_status status = CODA_OK;
    for (int i = 0; i < members && !status; i++) {
        tiles[i] = c[i].emitted.launch.grid;
        status = load_maps(p, &c[i]);
    }
    int sms = p->gpu.sms - aside_sms(p, index);
    blocks[0] = kernel_blocks(l, sms);
    if (members > 1) launch_shares(tiles, members, l->persistent ? sms : 0, blocks);
    for (int i = 0; i < members; i++) c[i].blocks = (uint32_t)blocks[i];
    return status;
}

coda_status kernel_load(struct coda_plan *p, int index)
{
    struct compiled_program *c = &p->program[index];
    const struct launch_spec *l = &c->emitted.launch;
    int64_t blocks[MOST_TOGETHER], grid = 0;
    coda_status status = load_members(p, index, blocks);
    for (int i = 0; i < plan_together(&p->plan, index); i++) grid = add_counts(grid, blocks[i]);
    if (!status && grid > INT32_MAX)
        status = fail(CODA_E_UNSUPPORTED, "%s: %lld blocks", c->emitted.symbol, (long long)grid);
    if (!status)
        c->launch = (struct jit_launch){.grid = (unsigned)grid,
                                        .threads = (unsigned)l->threads,
                                        .shared_bytes = (unsigned)l->shared_bytes};
    return status;
}

/* ---- Run ---- */

static void *pointer_in(const struct call *c, const struct pointer_spec *p)
{
    return call_address(c, p->buffer, p->bytes + call_part(c, p->by_rank, p->ahead));
}

/* Writes the struct of one program. */
static coda_status write_params(const struct call *c, int index, char *out, char *err)
{
    const struct compiled_program *cp = &c->p->program[index];
    const struct kernel *spec = &cp->emitted;
    struct jit_map *map = (struct jit_map *)(void *)out;
    for (int i = 0; i < spec->maps; i++) {
        struct jit_map own = cp->map[i];
        const struct map_spec *m = &spec->map[i];
        int64_t from = m->offset ? dtype_bytes(m->dtype, m->offset) : 0;
        from += call_part(c, m->by_rank, m->ahead);
        coda_status status = jit_map_rebase(&own, call_address(c, m->buffer, from), err);
        if (status) return status;
        memcpy(&map[i], &own, sizeof own);
    }
    void **pointer = (void **)(void *)(out + sizeof *map * (size_t)spec->maps);
    for (int i = 0; i < spec->pointers; i++) pointer[i] = pointer_in(c, &spec->pointer[i]);
    uint32_t *scalar = (uint32_t *)(pointer + spec->pointers);
    for (int i = 0; i < spec->scalars; i++) {
        const struct scalar_spec *s = &spec->scalar[i];
        memcpy(&scalar[i],
               s->buffer == SCALAR_NUMBER ? (const void *)&s->number : call_address(c, s->buffer, 0), 4);
    }
    return CODA_OK;
}

/* Behind the members' structs: the first block of each, and how many it has. */
static void write_blocks(const struct compiled_program *cp, int members, char *out)
{
    uint32_t at = 0, *number = (uint32_t *)(void *)out;
    for (int i = 0; i < members; i++) {
        number[i] = at;
        number[members + i] = cp[i].blocks;
        at += cp[i].blocks;
    }
}

coda_status kernel_params(const struct call *c, int index, struct kernel_params *out, size_t *bytes,
                          char *err)
{
    const struct compiled_program *cp = &c->p->program[index];
    int members = cp->emitted.members;
    size_t stride = (size_t)kernel_stride(&cp->emitted);
    coda_status status = CODA_OK;
    *bytes = (size_t)kernel_bytes(&cp->emitted);
    for (int i = 0; i < members && !status; i++) {
        char *own = (char *)out + (size_t)i * stride;
        status = write_params(c, index + i, own, err);
        memset(own + *bytes, 0, stride - *bytes);
    }
    if (members == 1 || status) return status;
    write_blocks(cp, members, (char *)out + (size_t)members * stride);
    *bytes = (size_t)kernel_members_bytes(&cp->emitted);
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
