/*
 * kernels.c -- emit, compile, load: a plan's programs become what a run can launch.
 *
 * Programs with the same text share a kernel. Empty domains have none, nor has what another runner runs.
 */
#include "emit.h"
#include "kernel_table.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Emit ---- */

/* The programs that were emitted, by their identity, and the kernels, by their text. */
struct emission {
    struct memo memo;
    struct names texts; /* without those of the table */
    struct arena scratch;
    struct kernel_table *table;
    const struct template_ids *ids;
};

/* The kernel of an equal text. Texts of the table are equal only if they are the same one. */
static int find_text(const struct coda_plan *p, const struct emission *e, const char *text, bool known)
{
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        bool same = k->spec->text == text;
        if (!same && k->words && !known) same = !strcmp(k->spec->text, text);
        if (same) return i;
    }
    return e->texts.count ? names_find(&e->texts, text, -1) : -1;
}

static int find_kernel(struct coda_plan *p, struct emission *e, struct kernel *spec,
                       struct table_words *words)
{
    int found = find_text(p, e, spec->text, words);
    if (found >= 0) return found;
    found = p->kernels++;
    p->kernel[found].spec = spec;
    p->kernel[found].words = words;
    p->kernel[found].info = (struct coda_kernel_info){.size = sizeof(struct coda_kernel_info),
                                                      .name = spec->symbol,
                                                      .source = spec->text,
                                                      .shared_bytes = spec->launch.shared_bytes};
    if (debug_shows(DEBUG_SOURCE))
        debug_stage(DEBUG_SOURCE, arena_format(&p->arena, "%s.cu", spec->symbol), spec->text);
    if (!words) names_add(&e->texts, &p->arena, spec->text, found);
    return found;
}

/* The identity of a program, of its schedule, and of how many its launch has. */
static bool identify(struct identity *id, struct arena *a, const struct plan *p, int index)
{
    int members = plan_together(p, index);
    return identity_decided(id, a, p->buffer, &p->program[index]) &&
           tile_identify(id, a, &p->schedule[index].tile) && identity_add(id, a, &members, sizeof members);
}

/* The key by which a product's text is found before its schedule is complete: for a plan that was written
 * down from a template, the product's number in that and its traits. */
static bool find_place(struct identity *id, struct emission *e, const struct program *q, int index,
                       const struct schedule *s)
{
    const struct template_ids *ids = e->ids;
    return ids && ids->product[index] && emit_traits(id, &e->scratch, q, s) &&
           identity_add(id, &e->scratch, &ids, sizeof ids) &&
           identity_add(id, &e->scratch, &ids->first[index], sizeof *ids->first);
}

static coda_status complete(struct coda_plan *p, int index, const struct table_program *known)
{
    const struct program *q = &p->plan.program[index];
    struct schedule *s = &p->plan.schedule[index];
    const struct schedule *other = known ? known->schedule : NULL;
    if (other && schedule_complete_like(s, other, q, &p->plan.target)) return CODA_OK;
    return schedule_complete(s, &p->plan.arena, q, &p->plan.target);
}

static coda_status emit_new(struct coda_plan *p, int index, struct emission *e)
{
    struct program *q = &p->plan.program[index];
    struct schedule *s = &p->plan.schedule[index];
    struct compiled_program *c = &p->program[index];
    struct identity key;
    bool early = e->table && find_place(&key, e, q, index, s), keyed = early;
    const struct table_program *known = early ? kernel_table_find(e->table, &key) : NULL;
    coda_status status = complete(p, index, known);
    if (!status && !early && e->table) {
        keyed = emit_key(&key, &e->scratch, &p->plan, q, s);
        known = keyed ? kernel_table_find(e->table, &key) : NULL;
    }
    if (!status) status = emit_program(&p->plan, q, s, &c->emitted, known ? &known->words->words : NULL);
    if (!status && keyed && !known) {
        const struct wording own = {c->emitted.symbol, c->emitted.text};
        known = kernel_table_keep(e->table, &key, &own, early ? s : NULL, q->steps);
        if (known) c->emitted.symbol = known->words->words.symbol, c->emitted.text = known->words->words.text;
    }
    if (!status && s->grid) c->kernel = find_kernel(p, e, &c->emitted, known ? known->words : NULL);
    return status;
}

/* A program like one that came before, as layers of a model are, takes over its kernel. */
static coda_status emit_one(struct coda_plan *p, int index, struct emission *e)
{
    struct program *q = &p->plan.program[index];
    struct compiled_program *c = &p->program[index];
    struct identity id;
    const int *theirs;
    if (e->ids || p->plan.schedule[index].exchange) return emit_new(p, index, e);
    bool good = identify(&id, &e->scratch, &p->plan, index);
    struct program *first = good ? memo_first(&e->memo, &e->scratch, &id, q, &theirs) : NULL;
    if (!first) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->plan.programs);
    if (first == q) return emit_new(p, index, e);
    const struct compiled_program *like = &p->program[first - p->plan.program];
    c->kernel = like->kernel;
    if (emit_like(&p->plan, &c->emitted, &like->emitted, theirs, &id)) return CODA_OK;
    return fail(CODA_E_MEMORY, "out of memory for %d programs", p->plan.programs);
}

/* Where several programs are one launch, the first one runs all. */
static coda_status join_members(struct coda_plan *p)
{
    for (int i = 0; i < p->plan.programs; i++) {
        int first = plan_leader(&p->plan, i);
        if (first == i) continue;
        if (p->program[i].kernel != p->program[first].kernel)
            return fail(CODA_E_INVALID, "plan: @%d and @%d are one launch of two kernels", first, i);
        p->program[i].runner = NULL;
    }
    return CODA_OK;
}

coda_status kernels_emit(struct coda_plan *p, struct kernel_table *table, const struct template_ids *ids)
{
    p->kernel = ARENA_NEW(&p->arena, struct compiled_kernel, p->plan.programs);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->plan.programs);
    struct emission e = {.table = table, .ids = ids};
    coda_status status = runners_choose(p);
    if (!status) status = peers_join_rows(p);
    if (!status) status = aside_find(p);
    for (int i = 0; i < p->plan.programs && !status; i++) {
        struct compiled_program *c = &p->program[i];
        if (!c->runner || !c->runner->kernel) continue;
        status = emit_one(p, i, &e);
        if (c->kernel == KERNEL_NONE) c->runner = NULL;
    }
    arena_free(&e.scratch);
    return status ? status : join_members(p);
}

/* ---- Compile ---- */

struct compilation {
    struct coda_plan *p;
    const struct jit_options *opt;
    const atomic_bool *stops;
    int *order;
};

coda_status kernels_threads(int *out)
{
    const char *s = jit_environment("CODA_COMPILE_THREADS");
    char *end = NULL;
    *out = parallel_threads();
    if (!s) return CODA_OK;
    long n = strtol(s, &end, 10);
    if (*end || n < 1 || n > PARALLEL_MOST)
        return fail(CODA_E_INVALID, "CODA_COMPILE_THREADS is \"%.40s\"; must be 1..%d", s, PARALLEL_MOST);
    *out = (int)n;
    return CODA_OK;
}

/* Kernels with tensor maps, which take NVRTC longest, begin first. */
static bool order_kernels(struct coda_plan *p, int first, struct compilation *c)
{
    int n = 0;
    c->order = ARENA_NEW(&p->arena, int, p->kernels - first + 1);
    for (int i = first; i < p->kernels; i++)
        if (!p->kernel[i].kernel) p->kernel[i].error = ARENA_NEW(&p->arena, char, JIT_ERROR_SIZE);
    if (p->arena.failed) return false;
    for (int maps = 1; maps >= 0; maps--)
        for (int i = first; i < p->kernels; i++)
            if ((p->kernel[i].spec->maps > 0) == maps) c->order[n++] = i;
    return true;
}

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
    struct compiled_kernel *k = &c->p->kernel[c->order[i]];
    if (k->kernel) return;
    if (c->stops && atomic_load(c->stops)) {
        k->status = CODA_E_UNSUPPORTED;
        snprintf(k->error, JIT_ERROR_SIZE, "%s: the plan is freed while it is compiled", k->info.name);
        return;
    }
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

coda_status kernels_compile(struct coda_plan *p, int first, const struct jit_options *opt, int threads,
                            const atomic_bool *stops)
{
    struct compilation c = {.p = p, .opt = opt, .stops = stops};
    coda_status status = threads ? CODA_OK : kernels_threads(&threads);
    if (status) return status;
    if (!order_kernels(p, first, &c)) return fail(CODA_E_MEMORY, "out of memory for %d kernels", p->kernels);
    parallel_for_most(p->kernels - first, threads, compile_one, &c);
    for (int i = first; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        if (k->status) return fail(k->status, "%s", k->error);
        if (!k->kernel) explain_miss(p, k);
    }
    return CODA_OK;
}

/* ---- Load ---- */

/* A driver may refuse what came from the cache: then it is made anew, once. What it refuses of that is the
 * kernel's own fault. */
static coda_status load_kernel(struct coda_plan *p, struct compiled_kernel *k, const struct jit_options *opt)
{
    char err[JIT_ERROR_SIZE] = "";
    bool refused;
    int shared = early_most_shared(&k->spec->launch, &p->gpu);
    coda_status status = jit_load(&k->kernel, &k->cubin, k->info.name, shared, &p->gpu, &refused, err);
    if (refused && !k->cubin.fresh) {
        status = jit_recompile(&k->cubin, k->info.name, k->info.source, opt, err);
        read_cubin(k);
        if (!status) explain_miss(p, k);
        if (!status) status = jit_load(&k->kernel, &k->cubin, k->info.name, shared, &p->gpu, NULL, err);
    }
    const struct launch_spec *l = &k->spec->launch;
    bool beside = l->guest || shared > k->info.shared_bytes || (l->early && shared); /* another's blocks */
    if (!status && beside) jit_prefer_shared(k->kernel);
    return status ? fail(status, "%s", err) : CODA_OK;
}

static coda_status load_all(struct coda_plan *p, const struct jit_options *opt)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < p->kernels && !status; i++)
        if (!p->kernel[i].kernel) status = load_kernel(p, &p->kernel[i], opt);
    for (int i = 0; i < p->plan.programs && !status; i++) {
        const struct runner *r = p->program[i].runner;
        if (r && r->load) status = r->load(p, i);
    }
    if (!status) early_starts(p);
    return status;
}

/* Tensor maps and libraries want a context, which the thread may not have. */
coda_status kernels_load(struct coda_plan *p, const struct jit_options *opt)
{
    char err[JIT_ERROR_SIZE] = "";
    coda_status status = jit_device_enter(&p->gpu, err);
    if (status) return fail(status, "%s", err);
    status = load_all(p, opt);
    jit_device_leave();
    return status;
}

void kernels_free(struct coda_plan *p)
{
    for (int i = 0; p->kernel && i < p->kernels; i++) {
        jit_unload(p->kernel[i].kernel);
        jit_cubin_free(&p->kernel[i].cubin);
    }
    for (int i = 0; p->program && i < p->plan.programs; i++) {
        const struct compiled_program *c = &p->program[i];
        if (c->own) c->runner->free(c->own);
    }
}

/* ---- Those of several plans ---- */

/* The kernels of several plans, each text once, as those of a plan without programs. */
static bool gather(struct coda_plan *all, struct kernel_table *t, struct coda_plan *const *plan, int plans)
{
    struct names texts = {0};
    int most = 0;
    for (int i = 0; i < plans; i++) most += plan[i]->kernels;
    all->kernel = ARENA_NEW(&all->arena, struct compiled_kernel, most + 1);
    bool good = all->kernel;
    for (int i = 0; i < plans; i++)
        for (int k = 0; good && k < plan[i]->kernels; k++) {
            const struct compiled_kernel *one = &plan[i]->kernel[k];
            if (names_find(&texts, one->info.source, -1) >= 0) continue;
            good = names_add(&texts, &all->arena, one->info.source, all->kernels);
            all->kernel[all->kernels++] = (struct compiled_kernel){.info = one->info, .spec = one->spec};
        }
    if (good) kernel_table_take(t, all);
    return good;
}

coda_status kernels_load_into(struct kernel_table *t, struct coda_plan *const *plan, int plans,
                              const struct jit_options *opt)
{
    struct coda_plan all = {.gpu = plan[0]->gpu};
    coda_status status = gather(&all, t, plan, plans)
                             ? kernels_compile(&all, 0, opt, 0, NULL)
                             : fail(CODA_E_MEMORY, "out of memory for kernels of %d plans", plans);
    if (!status) status = kernels_load(&all, opt);
    if (!status) status = kernel_table_add(t, &all);
    kernels_free(&all);
    arena_free(&all.arena);
    return status;
}
