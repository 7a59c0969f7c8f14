/*
 * kernels.c -- emit, compile, load: a plan's programs become what a run can launch.
 *
 * Programs with the same text share a kernel. cuBLASLt's products and empty domains have none.
 */
#include "compiled.h"

#include <stdlib.h>
#include <string.h>

/* ---- Emit ---- */

static int find_kernel(const struct coda_plan *p, const struct kernel_spec *spec)
{
    for (int i = 0; i < p->kernels; i++)
        if (!strcmp(p->kernel[i].spec->text, spec->text)) return i;
    return -1;
}

coda_status kernels_emit(struct coda_plan *p, const struct machine *m)
{
    p->kernel = ARENA_NEW(&p->arena, struct compiled_kernel, p->plan.programs);
    p->program = ARENA_NEW(&p->arena, struct compiled_program, p->plan.programs);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->plan.programs);
    for (int i = 0; i < p->plan.programs; i++) {
        struct program *q = &p->plan.program[i];
        p->program[i].kernel = KERNEL_NONE;
        if (is_cublaslt(q)) continue;
        coda_status status = emit_program(&p->plan, q, m);
        if (status) return status;
        if (!q->kernel.grid) continue;
        int found = find_kernel(p, &q->kernel);
        if (found < 0) {
            found = p->kernels++;
            p->kernel[found].spec = &q->kernel;
            p->kernel[found].info = (struct coda_kernel_info){
                .name = q->kernel.symbol, .source = q->kernel.text, .shared_bytes = q->kernel.shared_bytes};
            debug_stage(DEBUG_SOURCE, arena_format(&p->arena, "%s.cu", q->kernel.symbol), q->kernel.text);
        }
        p->program[i].kernel = found;
    }
    return CODA_OK;
}

/* ---- Compile ---- */

struct compilation {
    struct coda_plan *p;
    const struct jit_options *opt;
};

static void read_cubin(struct compiled_kernel *k)
{
    k->info.cached = k->cubin.cached;
    k->info.compile_ms = k->cubin.compile_ms;
    k->info.registers = k->cubin.registers;
    k->info.spill_bytes = k->cubin.spill_bytes;
}

static void compile_one(void *ctx, int64_t i)
{
    struct compilation *c = ctx;
    struct compiled_kernel *k = &c->p->kernel[i];
    k->status = jit_compile(&k->cubin, k->info.name, k->info.source, c->opt, k->error);
    read_cubin(k);
}

/* For CODA_DEBUG=cache: which key was missed, and why. */
static void explain_miss(struct coda_plan *p, const struct compiled_kernel *k)
{
    const char *why = k->cubin.missed;
    if (k->info.cached || !debug_on(DEBUG_CACHE)) return;
    const char *line =
        arena_format(&p->arena, "miss %s %s: %s", k->cubin.name, k->info.name, *why ? why : "switched off");
    if (line) debug_line(DEBUG_CACHE, line);
}

coda_status kernels_compile(struct coda_plan *p, const struct jit_options *opt)
{
    parallel_for(p->kernels, compile_one, &(struct compilation){p, opt});
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        if (k->status) return fail(k->status, "%s", k->error);
        explain_miss(p, k);
    }
    return CODA_OK;
}

/* ---- Load ---- */

static coda_status load_maps(struct coda_plan *p, const struct kernel_spec *spec, struct compiled_program *c,
                             char *err)
{
    c->map = ARENA_NEW(&p->arena, struct jit_map, spec->maps + 1);
    if (!c->map) return fail(CODA_E_MEMORY, "out of memory for %d tensor maps", spec->maps);
    c->map = (struct jit_map *)(((uintptr_t)c->map + 127) / 128 * 128);
    for (int m = 0; m < spec->maps; m++) {
        const struct map_spec *s = &spec->map[m];
        struct jit_map_shape shape = {.dtype = s->dtype, .rank = s->rank, .swizzle = s->swizzle};
        memcpy(shape.dim, s->dim, sizeof shape.dim);
        memcpy(shape.stride, s->stride, sizeof shape.stride);
        memcpy(shape.box, s->box, sizeof shape.box);
        coda_status status = jit_map_encode(&c->map[m], &shape, (void *)(uintptr_t)0x100000, err);
        if (status) return fail(status, "%s: tensor map %d: %s", spec->symbol, m, err);
    }
    return CODA_OK;
}

/* The largest power of two, 16 at most, that divides where an operand and its batches start. */
static int alignment(coda_dtype t, int64_t offset, int64_t batch)
{
    int64_t bytes = (offset | batch) * dtype_size(t) | 16;
    return (int)(bytes & -bytes);
}

static coda_status load_lt(const struct program *q, struct compiled_program *c, char *err)
{
    const struct port *d = &q->port[q->step[1].port];
    struct jit_lt_shape s = {.in = q->a.dtype,
                             .out = d->dtype,
                             .batch = q->dim[0],
                             .m = q->dim[1],
                             .n = q->dim[2],
                             .k = q->k,
                             .a_batch = q->a.batch,
                             .b_batch = q->b.batch,
                             .d_batch = d->stride[0],
                             .ldd = d->stride[1]};
    s.a_t = q->a.k != 1;
    s.b_t = q->b.k != 1;
    s.lda = s.a_t ? q->a.k : q->a.row;
    s.ldb = s.b_t ? q->b.k : q->b.row;
    s.align =
        MIN(alignment(q->a.dtype, q->a.offset, q->a.batch), alignment(q->b.dtype, q->b.offset, q->b.batch));
    s.align = MIN(s.align, alignment(d->dtype, d->offset, d->stride[0]));
    coda_status status = jit_lt_new(&c->lt, &s, err);
    return status ? fail(status, "%s", err) : CODA_OK;
}

/* A driver may refuse what came from the cache: then it is made anew, once. What it refuses of that is the
 * kernel's own fault. */
static coda_status load_kernel(struct coda_plan *p, struct compiled_kernel *k, const struct jit_options *opt)
{
    char err[JIT_ERROR_SIZE] = "";
    bool refused;
    coda_status status =
        jit_load(&k->kernel, &k->cubin, k->info.name, k->info.shared_bytes, &p->gpu, &refused, err);
    if (refused && !k->cubin.fresh) {
        status = jit_recompile(&k->cubin, k->info.name, k->info.source, opt, err);
        read_cubin(k);
        if (!status) explain_miss(p, k);
        if (!status)
            status = jit_load(&k->kernel, &k->cubin, k->info.name, k->info.shared_bytes, &p->gpu, NULL, err);
    }
    return status ? fail(status, "%s", err) : CODA_OK;
}

/*
 * A launch with the `pdl` attribute starts when all blocks of the kernel ahead have started and said so,
 * not when they have ended. That is right for an early program that follows a kernel of its own run:
 * - Until its wait it reads only an operand that no program of the run writes. A run's first launch is
 *   an ordinary one: once it has started, all that the stream held before the run has ended.
 * - Its wait ends when the kernel ahead has ended, with all its blocks. These wait for the one ahead of
 *   them before they end, and so on: after the wait all earlier programs of the run have ended. So what
 *   they wrote is complete, and memory that programs use one after the other is free.
 * - What follows the run in the stream waits for the last kernel, thus for all. A captured run has the
 *   same order, as edges of its graph; runs on other streams were never ordered with this one.
 */
static void allow_early_starts(struct coda_plan *p)
{
    bool follows = false; /* a kernel of this run */
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        struct compiled_program *c = &p->program[i];
        if (q->prepare || (c->kernel < 0 && !is_cublaslt(q))) continue;
        c->launch.pdl = follows && c->kernel >= 0 && q->kernel.early;
        follows = c->kernel >= 0;
    }
}

coda_status kernels_load(struct coda_plan *p, const struct jit_options *opt)
{
    char err[JIT_ERROR_SIZE] = "";
    for (int i = 0; i < p->kernels; i++) {
        coda_status status = load_kernel(p, &p->kernel[i], opt);
        if (status) return status;
    }
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        struct compiled_program *c = &p->program[i];
        coda_status status = CODA_OK;
        if (is_cublaslt(q)) status = load_lt(q, c, err);
        else if (c->kernel >= 0) status = load_maps(p, &q->kernel, c, err);
        if (status) return status;
        if (c->kernel < 0) continue;
        int64_t grid = kernel_blocks(&q->kernel, p->gpu.sms);
        if (grid > INT32_MAX)
            return fail(CODA_E_UNSUPPORTED, "%s: %lld blocks", q->kernel.symbol, (long long)grid);
        c->launch = (struct jit_launch){.grid = (unsigned)grid, .threads = (unsigned)q->kernel.threads,
                                        .shared_bytes = (unsigned)q->kernel.shared_bytes};
    }
    allow_early_starts(p);
    return CODA_OK;
}

void kernels_free(struct coda_plan *p)
{
    for (int i = 0; p->kernel && i < p->kernels; i++) {
        jit_unload(p->kernel[i].kernel);
        jit_cubin_free(&p->kernel[i].cubin);
    }
    for (int i = 0; p->program && i < p->plan.programs; i++) jit_lt_free(p->program[i].lt);
}
