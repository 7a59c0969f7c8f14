/*
 * coda.c -- coda_compile: the stages in order, nothing else.
 *
 *     graph --rewrite--> graph --plan--> programs --emit--> CUDA text --compile--> cubin --load--> kernel
 *
 * Each stage is one call below; what it made can be seen with CODA_DEBUG and CODA_DUMP.
 */
#include "build.h"
#include "compiled.h"

#include <stdlib.h>
#include <string.h>

struct job { /* one call of coda_compile */
    struct coda_plan *p;
    struct coda_compile_options opt;
    struct machine machine;
    const char *arch;
    coda_status status;
};

/* ---- Options and device ---- */

static coda_status read_options(struct coda_compile_options *out, const coda_compile_options *opt)
{
    *out = (coda_compile_options)CODA_COMPILE_OPTIONS_INIT;
    if (!opt) return CODA_OK;
    coda_status status = build_options("compile", out, sizeof *out, opt);
    if (status) return status;
    if ((int)out->device < 0 || out->device > CODA_DEVICE_NONE)
        return fail(CODA_E_INVALID, "compile: device %d is none of 0..%d", (int)out->device,
                    CODA_DEVICE_NONE);
    if ((int)out->fold < 0 || out->fold > CODA_FOLD_IN_PLACE)
        return fail(CODA_E_INVALID, "compile: fold %d is none of 0..%d", (int)out->fold, CODA_FOLD_IN_PLACE);
    if (out->flags > 15) return fail(CODA_E_INVALID, "compile: flags 0x%x has unknown bits", out->flags);
    return CODA_OK;
}

enum { H200_SMS = 132, H200_SHARED = 232448, OLDEST_ARCH = 80 };

static coda_status choose_machine(struct job *j)
{
    char err[JIT_ERROR_SIZE] = "";
    j->arch = j->opt.arch ? j->opt.arch : "sm_90a";
    j->machine = (struct machine){.sms = H200_SMS, .shared_bytes = H200_SHARED};
    if (j->opt.device == CODA_DEVICE_GPU && !(j->opt.flags & CODA_PLAN_ONLY)) {
        coda_status status = jit_device_open(&j->p->gpu, err);
        if (status) return fail(status, "%s", err);
        if (!j->opt.arch) j->arch = j->p->gpu.arch;
        j->machine.sms = j->p->gpu.sms;
        j->machine.shared_bytes = j->p->gpu.shared_bytes;
    }
    if (strncmp(j->arch, "sm_", 3))
        return fail(CODA_E_INVALID, "compile: arch \"%s\" does not begin with sm_", j->arch);
    if (atoi(j->arch + 3) < OLDEST_ARCH)
        return fail(CODA_E_UNSUPPORTED, "compile: arch %s is older than sm_%d, the first with bf16", j->arch,
                    OLDEST_ARCH);
    j->machine.sm90 = !strcmp(j->arch, "sm_90a");
    return CODA_OK;
}

/* ---- Rewrite and plan ---- */

static char *keep(struct job *j, struct text *t)
{
    char *s = t->failed ? NULL : arena_string(&j->p->arena, text_str(t));
    text_free(t);
    if (!s) j->status = fail(CODA_E_MEMORY, "out of memory for the plan's text");
    return s;
}

static void keep_graph(struct job *j, const graph *g, coda_text what)
{
    struct text t = {0};
    graph_print(g, &t);
    j->p->text[what] = keep(j, &t);
}

static coda_status plan_graph(struct job *j, struct plan *plan, const graph *g, bool fuse,
                              struct rewrite_log *log)
{
    bool wanted = fuse && !(j->opt.flags & CODA_NO_FUSION);
    struct rewrite_options ro = {.fuse = wanted, .fold = wanted ? j->opt.fold : CODA_FOLD_NONE};
    struct plan_options po = {.fuse = wanted, .fold = ro.fold, .machine = j->machine};
    po.cublaslt = j->opt.flags & CODA_CUBLASLT && j->opt.device == CODA_DEVICE_GPU;
    graph *r = rewrite(g, &ro, log);
    if (!r) return j->status = fail_status();
    if (fuse) keep_graph(j, r, CODA_TEXT_REWRITTEN);
    if (!j->status) j->status = plan_build(plan, r, &po);
    graph_free(r);
    return j->status;
}

static void count(const struct plan *plan, int *launches, int64_t *bytes, double *flops)
{
    for (int i = 0; i < plan->programs; i++) {
        const struct program *q = &plan->program[i];
        if (q->prepare) continue;
        *launches += 1;
        *bytes += program_bytes(q);
        *flops += program_flops(q);
    }
}

static void keep_derivation(struct job *j, const struct rewrite_log *log)
{
    const struct coda_plan_stats *s = &j->p->stats;
    struct text t = {0};
    for (int i = 0; i < log->events; i++) {
        const struct rewrite_event *e = &log->event[i];
        text_printf(&t, "%-18s %-8s %s\n", e->rule, e->exact ? "exact" : "rounding", e->text);
    }
    text_printf(&t, "%-18s %-8s %d launches become %d; %.3f MB of traffic become %.3f MB\n", "total", "",
                s->launches_unfused, s->launches, (double)s->bytes_unfused * 1e-6, (double)s->bytes * 1e-6);
    j->p->text[CODA_TEXT_DERIVATION] = keep(j, &t);
}

static void keep_plan(struct job *j)
{
    struct text plan = {0}, dot = {0};
    plan_print(&j->p->plan, &plan);
    plan_dot(&j->p->plan, &dot);
    j->p->text[CODA_TEXT_PLAN] = keep(j, &plan);
    j->p->text[CODA_TEXT_DOT] = keep(j, &dot);
}

/* The unfused plan is made too, to say what fusion saved. */
static coda_status make_plan(struct job *j, const graph *g)
{
    struct coda_plan_stats *s = &j->p->stats;
    struct rewrite_log log = {0}, ignored = {0};
    struct plan unfused = {0};
    double flops = 0;
    keep_graph(j, g, CODA_TEXT_GRAPH);
    if (!j->status && !plan_graph(j, &unfused, g, false, &ignored)) {
        count(&unfused, &s->launches_unfused, &s->bytes_unfused, &flops);
        if (!plan_graph(j, &j->p->plan, g, true, &log)) {
            count(&j->p->plan, &s->launches, &s->bytes, &s->flops);
            plan_note(&j->p->plan, &log);
            keep_derivation(j, &log);
            keep_plan(j);
        }
    }
    plan_free(&unfused);
    rewrite_log_free(&ignored);
    rewrite_log_free(&log);
    return j->status;
}

/* ---- Emit, compile, load ---- */

static int find_kernel(const struct coda_plan *p, const struct kernel_spec *spec)
{
    for (int i = 0; i < p->kernels; i++)
        if (!strcmp(p->kernel[i].spec->text, spec->text)) return i;
    return -1;
}

static coda_status emit_all(struct job *j)
{
    struct coda_plan *p = j->p;
    for (int i = 0; i < p->plan.programs; i++) {
        struct program *q = &p->plan.program[i];
        p->program[i].kernel = KERNEL_NONE;
        if (is_cublaslt(q)) continue;
        coda_status status = emit_program(&p->plan, q, &j->machine);
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

static void compile_one(void *ctx, int64_t i)
{
    struct job *j = ctx;
    struct compiled_kernel *k = &j->p->kernel[i];
    struct jit_options opt = {
        .arch = j->arch, .cache_dir = j->opt.cache_dir, .no_cache = j->opt.flags & CODA_NO_CACHE};
    k->status = jit_compile(&k->cubin, k->info.name, k->info.source, &opt, k->error);
    k->info.cached = k->cubin.cached;
    k->info.compile_ms = k->cubin.compile_ms;
    k->info.registers = k->cubin.registers;
    k->info.spill_bytes = k->cubin.spill_bytes;
}

static coda_status compile_all(struct job *j)
{
    parallel_for(j->p->kernels, compile_one, j);
    for (int i = 0; i < j->p->kernels; i++) {
        const struct compiled_kernel *k = &j->p->kernel[i];
        if (k->status) return fail(k->status, "%s", k->error);
    }
    return CODA_OK;
}

static coda_status load_maps(struct job *j, const struct kernel_spec *spec, struct compiled_program *c,
                             char *err)
{
    c->map = ARENA_NEW(&j->p->arena, struct jit_map, spec->maps + 1);
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

static coda_status load_all(struct job *j)
{
    struct coda_plan *p = j->p;
    char err[JIT_ERROR_SIZE] = "";
    for (int i = 0; i < p->kernels; i++) {
        struct compiled_kernel *k = &p->kernel[i];
        coda_status status =
            jit_load(&k->kernel, &k->cubin, k->info.name, k->info.shared_bytes, &p->gpu, err);
        if (status) return fail(status, "%s", err);
    }
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        struct compiled_program *c = &p->program[i];
        coda_status status = CODA_OK;
        if (is_cublaslt(q)) status = load_lt(q, c, err);
        else if (c->kernel >= 0) status = load_maps(j, &q->kernel, c, err);
        if (status) return status;
        if (c->kernel < 0) continue;
        int64_t grid = q->kernel.persistent ? MIN(q->kernel.grid, p->gpu.sms) : q->kernel.grid;
        if (grid > INT32_MAX)
            return fail(CODA_E_UNSUPPORTED, "%s: %lld blocks", q->kernel.symbol, (long long)grid);
        c->launch = (struct jit_launch){.grid = (unsigned)grid, .threads = (unsigned)q->kernel.threads,
                                        .shared_bytes = (unsigned)q->kernel.shared_bytes};
    }
    return CODA_OK;
}

/* ---- The pipeline ---- */

static coda_status copy_args(struct coda_plan *p, const graph *g)
{
    p->args = coda_graph_args(g);
    p->arg = ARENA_NEW(&p->arena, struct coda_arg_info, p->args);
    for (int i = 0; p->arg && i < p->args; i++) {
        coda_graph_arg(g, i, &p->arg[i]);
        p->arg[i].name = arena_string(&p->arena, p->arg[i].name);
    }
    return p->arena.failed ? fail(CODA_E_MEMORY, "out of memory for %d arguments", p->args) : CODA_OK;
}

static coda_status compile(struct job *j, const graph *g)
{
    struct coda_plan *p = j->p;
    coda_status status = choose_machine(j);
    if (!status) status = copy_args(p, g);
    if (!status) status = make_plan(j, g);
    if (status) return status;
    debug_stage(DEBUG_GRAPH, "graph.txt", p->text[CODA_TEXT_GRAPH]);
    debug_stage(DEBUG_PLAN, "plan.txt", p->text[CODA_TEXT_PLAN]);
    p->device = j->opt.device;
    p->kernel = ARENA_NEW(&p->arena, struct compiled_kernel, p->plan.programs);
    p->program = ARENA_NEW(&p->arena, struct compiled_program, p->plan.programs);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->plan.programs);
    p->runnable = j->opt.device != CODA_DEVICE_NONE && !(j->opt.flags & CODA_PLAN_ONLY);
    if (j->opt.device == CODA_DEVICE_CPU) return CODA_OK;
    status = emit_all(j);
    if (status || j->opt.flags & CODA_PLAN_ONLY) return status;
    status = compile_all(j);
    if (!status && j->opt.device == CODA_DEVICE_GPU) status = load_all(j);
    return status;
}

CODA_API coda_status coda_compile(coda_plan **out, const coda_graph *g, const coda_compile_options *opt)
{
    struct job j = {0};
    if (!out) return fail(CODA_E_INVALID, "compile: out is NULL");
    *out = NULL;
    if (!g) return fail(CODA_E_INVALID, "compile: graph is NULL");
    coda_status status = coda_graph_status(g);
    if (!status && !g->outputs)
        status = fail(CODA_E_INVALID, "compile: a graph of %d nodes has no output", g->nodes);
    if (!status) status = read_options(&j.opt, opt);
    if (status) return status;
    j.p = calloc(1, sizeof *j.p);
    if (!j.p) return fail(CODA_E_MEMORY, "out of memory for a plan");
    status = compile(&j, g);
    if (status) coda_plan_free(j.p);
    else *out = j.p;
    return status;
}

CODA_API void coda_plan_free(coda_plan *p)
{
    if (!p) return;
    for (int i = 0; i < p->kernels; i++) {
        jit_unload(p->kernel[i].kernel);
        jit_cubin_free(&p->kernel[i].cubin);
    }
    for (int i = 0; p->program && i < p->plan.programs; i++) jit_lt_free(p->program[i].lt);
    plan_free(&p->plan);
    arena_free(&p->arena);
    free(p);
}
