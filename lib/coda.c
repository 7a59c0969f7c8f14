/*
 * coda.c -- coda_compile: the stages in order, and for which target and with which options they go.
 *
 *     graph --rewrite--> graph --plan--> programs --schedule--> tiles --emit--> CUDA text --compile--> cubin
 *     --load--> kernel
 *
 * Each stage is one call below; what it made can be seen with CODA_DEBUG and CODA_DUMP. Where a GPU is
 * there the plan is made again, with what is known of its products better than by price (tune.c).
 */
#include "pipeline.h"

#include "exchange.h"
#include "fuse.h"
#include "kernel_table.h"
#include "launches.h"
#include "rewrite.h"
#include "runner.h"
#include "schedule.h"
#include "skeleton.h"
#include "tune.h"

#include <stdlib.h>
#include <string.h>

struct job { /* one call of coda_compile */
    struct coda_plan *p;
    struct compile_context context;
    struct coda_compile_options opt;
    struct target target;
    const char *arch;
    enum exchange_wish exchange;
    coda_status status;
};

/* ---- Device ---- */

enum { OLDEST_ARCH = 80 };

static bool has_gpu(const struct job *j) { return j->p->gpu.context; }

/* A plan that is only to be looked at does without a GPU, but asks the one that there is. A plan with a
 * parent has its parent's target. */
static coda_status choose_target(struct job *j)
{
    const struct coda_plan *parent = j->context.parent;
    if (parent) {
        j->p->gpu = parent->gpu;
        j->arch = parent->arch;
        j->target = parent->plan.target;
        return CODA_OK;
    }
    char err[JIT_ERROR_SIZE] = "";
    j->arch = j->opt.arch ? j->opt.arch : "sm_90a";
    coda_status status = CODA_OK;
    if (j->opt.device == CODA_DEVICE_GPU) status = jit_device_open(&j->p->gpu, err);
    bool needed = !(j->opt.flags & CODA_PLAN_ONLY) || j->opt.flags & CODA_AUTOTUNE;
    if (status && needed) return fail(status, "%s", err);
    if (has_gpu(j) && !j->opt.arch) j->arch = j->p->gpu.arch;
    if (strncmp(j->arch, "sm_", 3))
        return fail(CODA_E_INVALID, "compile: arch \"%s\" does not begin with sm_, as sm_90a does", j->arch);
    if (atoi(j->arch + 3) < OLDEST_ARCH)
        return fail(CODA_E_UNSUPPORTED, "compile: arch %s is older than sm_%d, the first with bf16", j->arch,
                    OLDEST_ARCH);
    const struct jit_device *gpu = &j->p->gpu;
    const struct target_card card = {.name = gpu->name,
                                     .sms = gpu->sms,
                                     .shared_bytes = gpu->shared_bytes,
                                     .boost_mhz = gpu->boost_mhz,
                                     .l2_size = gpu->l2_size,
                                     .memory_rate = gpu->memory_rate};
    j->target = target_of(j->arch, has_gpu(j) ? &card : NULL);
    return CODA_OK;
}

/* $CODA_EXCHANGE, of which all but the first two are for tests and measurements. */
static coda_status choose_exchange(struct job *j)
{
    static const char *const words[] = {"nccl", "own", "push", "two_shot", "copies"};
    const char *said = j->context.parent ? NULL : jit_environment("CODA_EXCHANGE");
    int i = 0;
    if (j->context.parent) j->exchange = j->context.parent->options.exchange;
    while (said && i < ARRAY_SIZE(words) && strcmp(said, words[i])) i++;
    if (i == ARRAY_SIZE(words))
        return fail(CODA_E_INVALID, "CODA_EXCHANGE is \"%.40s\"; must be nccl or own", said);
    if (said) j->exchange = (enum exchange_wish)i;
    return CODA_OK;
}

/* ---- From a rewritten graph to a plan ---- */

coda_status plan_build(struct plan *p, const graph *g, const struct plan_options *opt)
{
    struct grouper groups;
    memset(p, 0, sizeof *p);
    guards_take_back(opt->noted);
    p->target = opt->target;
    p->accumulates = opt->fuse && !opt->one_of_many;
    p->by_size = p->accumulates && !opt->plain;
    p->overlaps = opt->overlap, p->steady = opt->steady;
    coda_status status = graph_check_packed(g);
    if (status) return status;
    p->graph = insert_copies(g, opt->fold, opt->fuse); /* rewrite: layouts that kernels can take */
    if (!p->graph) return fail_status();
    p->values = p->graph->nodes;
    status = fuse_graph(&groups, p, opt);           /* fuse: nodes -> groups */
    if (!status) status = fuse_lower(&groups);      /* fuse: groups -> programs, their steps */
    if (!status) status = plan_arrange(p);          /* plan: programs in launch order */
    struct guards *notes = guards_note(NULL);       /* what follows is done anew for each shape */
    if (!status) status = schedule_parts(p, opt);   /* schedule: what two ranks share */
    if (!status) status = schedule(p, opt);         /* schedule: how each runs on the target */
    if (!status) status = plan_find_beside(p);      /* plan: exchanges that others run beside */
    if (!status) schedule_exchanges_beside(p, opt); /* schedule: forms of these, for few SMs */
    if (!status) status = plan_place(p, opt);       /* plan: memory of a run */
    if (!status) status = plan_place_folds(p);      /* plan: what coda_prepare leaves */
    if (!status) status = plan_find_waits(p);       /* plan: which launch waits for which */
    if (!status) status = plan_verify(p);
    guards_note(notes);
    if (status) plan_free(p);
    return status;
}

/* ---- Rewrite and plan ---- */

static struct jit_options jit_options(const struct job *j)
{
    return (struct jit_options){
        .arch = j->arch, .cache = j->opt.cache, .no_cache = j->opt.flags & CODA_NO_CACHE};
}

/* The options that decide which programs there are, without what only the planning at hand may write to. */
static void keep_options(struct coda_plan *p, const struct plan_options *po)
{
    p->options = *po;
    p->options.variants = NULL;
    p->options.product = NULL, p->options.larger = NULL, p->options.largers = 0;
}

/* What tuning measures is what a product computes, wherever its results lie. */
static coda_status tune(struct tuner *t, const struct plan *plan, struct plan_options *po,
                        struct decision **decision)
{
    struct plan plain;
    t->options.plain = true;
    if (!plan->rearranged) return tune_plan(t, plan, decision, &po->decisions);
    coda_status status = plan_build(&plain, t->graph, &t->options);
    if (status) return status;
    status = tune_plan(t, &plain, decision, &po->decisions);
    plan_free(&plain);
    return status;
}

/* The plan again, with what is known better than by price. */
static coda_status improve(struct job *j, struct plan *plan, const graph *r, struct plan_options po)
{
    struct tuner t = {.build = plan_build,
                      .graph = r,
                      .options = po,
                      .arg = j->p->arg,
                      .gpu = &j->p->gpu,
                      .jit = jit_options(j),
                      .by_price = j->context.variants,
                      .measure = j->opt.flags & CODA_AUTOTUNE,
                      .thorough = j->opt.flags & CODA_MAX_AUTOTUNE,
                      .arena = &j->p->arena};
    struct decision *decision;
    struct plan better;
    struct failure before;
    coda_status status = tune(&t, plan, &po, &decision);
    j->p->measured = t.measured;
    j->p->tuned = t.tuned;
    j->p->tuneds = t.tuneds;
    if (status || !po.decisions) return status;
    po.decision = decision;
    fail_save(&before);
    if (plan_build(&better, r, &po)) return fail_restore(&before), CODA_OK;
    plan_free(plan);
    *plan = better;
    keep_options(j->p, &po);
    return CODA_OK;
}

static struct rewrite_options rewrite_options(const struct job *j, bool fuse)
{
    bool wanted = fuse && !(j->opt.flags & CODA_NO_FUSION);
    return (struct rewrite_options){.fuse = wanted,
                                    .fast_f16 = j->opt.flags & CODA_FAST_FP16,
                                    .no_deferral = j->opt.flags & CODA_NO_DEFERRAL,
                                    .fold = wanted ? j->opt.fold : CODA_FOLD_NONE,
                                    .target = &j->target};
}

graph *compile_rewritten(const graph *g, const coda_compile_options *opt)
{
    struct coda_plan none = {0};
    struct job j = {.p = &none, .opt = *opt};
    if (choose_target(&j)) return NULL;
    const struct rewrite_options ro = rewrite_options(&j, true);
    struct rewrite_log ignored = {0};
    graph *r = rewrite(g, &ro, &ignored);
    rewrite_log_free(&ignored);
    return r;
}

graph *split_ready(const graph *joint, int *value, int n) { return rewrite_joint(joint, value, n); }

static struct plan_options plan_options(const struct job *j, bool fuse)
{
    const struct rewrite_options ro = rewrite_options(j, fuse);
    return (struct plan_options){.fuse = ro.fuse,
                                 .cublaslt = j->opt.flags & CODA_CUBLASLT && j->opt.device == CODA_DEVICE_GPU,
                                 .fold = ro.fold,
                                 .target = j->target,
                                 .exchange = j->opt.device == CODA_DEVICE_CPU ? EXCHANGE_NCCL : j->exchange,
                                 .invariant = j->opt.flags & CODA_BATCH_INVARIANT,
                                 .overlap = j->opt.flags & CODA_OVERLAP,
                                 .steady = j->opt.flags & CODA_STEADY,
                                 .variants = j->context.variants,
                                 .one_of_many = j->context.variants || j->context.parent,
                                 .base = j->context.base,
                                 .frugal = j->context.frugal,
                                 .larger = j->context.larger,
                                 .largers = j->context.largers,
                                 .noted = guards_noted()};
}

static coda_status plan_rewritten(struct job *j, struct plan *plan, const graph *r, bool fuse)
{
    const struct plan_options po = plan_options(j, fuse);
    j->status = plan_build(plan, r, &po);
    if (fuse) keep_options(j->p, &po);
    if (!j->status && fuse && has_gpu(j)) j->status = improve(j, plan, r, po);
    return j->status;
}

static coda_status plan_graph(struct job *j, struct plan *plan, const graph *g, bool fuse,
                              struct rewrite_log *log)
{
    const struct rewrite_options ro = rewrite_options(j, fuse);
    graph *r = rewrite(g, &ro, log);
    if (!r) return j->status = fail_status();
    if (fuse && !j->context.parent) j->status = keep_graph(j->p, r, CODA_TEXT_REWRITTEN);
    if (!j->status) plan_rewritten(j, plan, r, fuse);
    graph_free(r);
    return j->status;
}

static void count(const struct plan *plan, int *launches, int64_t *bytes, double *flops)
{
    for (int i = 0; i < plan->programs; i++) {
        const struct program *q = &plan->program[i];
        if (q->prepare) continue;
        *launches += plan_leader(plan, i) == i;
        *bytes = add_counts(*bytes, program_bytes(q));
        *flops += program_flops(q);
    }
}

/* The unfused plan is made too, to say what fusion saved. */
static coda_status make_plan_and_texts(struct job *j, const graph *g)
{
    struct coda_plan_stats *s = &j->p->stats;
    struct rewrite_log log = {0}, ignored = {0};
    struct plan unfused = {0};
    double flops = 0;
    j->status = keep_graph(j->p, g, CODA_TEXT_GRAPH);
    if (!j->status && !plan_graph(j, &unfused, g, false, &ignored)) {
        count(&unfused, &s->launches_unfused, &s->bytes_unfused, &flops);
        if (!plan_graph(j, &j->p->plan, g, true, &log)) {
            count(&j->p->plan, &s->launches, &s->bytes, &s->flops);
            fuse_explain(&j->p->plan, &log);
            j->status = keep_derivation(j->p, &log);
            if (!j->status) j->status = keep_plan(j->p);
        }
    }
    plan_free(&unfused);
    rewrite_log_free(&ignored);
    rewrite_log_free(&log);
    return j->status;
}

static coda_status make_plan(struct job *j, const graph *g)
{
    struct rewrite_log ignored = {0};
    if (!j->context.parent) return make_plan_and_texts(j, g);
    if (g->rewritten) return plan_rewritten(j, &j->p->plan, g, true);
    plan_graph(j, &j->p->plan, g, true, &ignored);
    rewrite_log_free(&ignored);
    return j->status;
}

/* A plan that differs from known ones in numbers alone is written down, scheduled and placed. */
static coda_status make_like(struct job *j)
{
    struct coda_plan *p = j->p;
    const struct coda_plan *parent = j->context.parent;
    struct plan_options po = plan_options(j, true);
    po.product = j->context.plan_template->ids.product;
    p->args = parent->args;
    p->states = parent->states;
    p->place = ARENA_NEW(&p->arena, struct place, p->args + 1);
    if (!p->place || !skeleton_plan(j->context.plan_template->skeleton, j->context.at, &p->plan, p->place))
        return fail(CODA_E_MEMORY, "out of memory for a plan of %d arguments", p->args);
    for (int i = 0; i < p->args; i++) p->place[i].name = parent->place[i].name;
    p->plan.overlaps = po.overlap;
    coda_status status = schedule(&p->plan, &po);
    if (!status) status = plan_find_beside(&p->plan);
    if (!status) schedule_exchanges_beside(&p->plan, &po);
    return status ? status : plan_place(&p->plan, &po);
}

/* ---- The pipeline ---- */

/* Notes what is asked of extents, if somebody wants to know. */
static coda_status make_in_full(struct job *j, const graph *g)
{
    struct guards *before = guards_note(j->context.guards);
    coda_status status = args_copy(j->p, g, j->opt.device == CODA_DEVICE_CPU);
    if (!status) status = make_plan(j, g);
    guards_note(before);
    return status;
}

/* Compiles and loads the kernels that the table lacks. */
static coda_status load(struct job *j)
{
    struct coda_plan *p = j->p;
    const struct compile_context *context = &j->context;
    struct jit_options jit = jit_options(j);
    int missing = context->table ? kernel_table_take(context->table, p) : p->kernels;
    if (missing && context->loaded_only) {
        p->runnable = false;
        return CODA_OK;
    }
    coda_status status = missing ? kernels_compile(p, 0, &jit, context->threads, context->stops) : CODA_OK;
    if (j->opt.device != CODA_DEVICE_GPU) return status;
    if (!status) status = kernels_load(p, &jit);
    if (!status && missing && context->table) status = kernel_table_add(context->table, p);
    return status;
}

/* The CPU device has no kernels, but needs to know who runs each program. */
static coda_status choose_runners(struct coda_plan *p)
{
    coda_status status = runners_choose(p);
    if (status) return status;
    launches_name(p);
    return vectors_check();
}

static coda_status compile(struct job *j, const graph *g)
{
    struct coda_plan *p = j->p;
    coda_status status = choose_target(j);
    if (!status) status = choose_exchange(j);
    if (!status && j->context.plan_template) status = make_like(j);
    else if (!status) status = make_in_full(j, g);
    if (status) return status;
    const char *given = p->text[CODA_TEXT_GRAPH];
    p->graph_digest = j->context.parent ? j->context.parent->graph_digest : hash_of(given, strlen(given));
    args_mark_folds(p);
    if (!j->context.variants && !j->context.parent) args_mark_unread(p);
    if (!j->context.parent) debug_stage(DEBUG_GRAPH, "graph.txt", p->text[CODA_TEXT_GRAPH]);
    if (!j->context.parent) debug_stage(DEBUG_PLAN, "plan.txt", p->text[CODA_TEXT_PLAN]);
    p->device = j->opt.device;
    p->arch = arena_string(&p->arena, j->arch);
    if (!p->arch) return fail(CODA_E_MEMORY, "out of memory for an arch");
    p->runnable = j->opt.device != CODA_DEVICE_NONE && !(j->opt.flags & CODA_PLAN_ONLY);
    if (j->opt.device == CODA_DEVICE_CPU) return choose_runners(p);
    if (j->context.dry_run) return CODA_OK;
    status =
        kernels_emit(p, j->context.table, j->context.plan_template ? &j->context.plan_template->ids : NULL);
    if (status || j->opt.flags & CODA_PLAN_ONLY) return status;
    launches_name(p);
    return j->context.unloaded ? CODA_OK : load(j);
}

coda_status compile_graph(coda_plan **out, const graph *g, const coda_compile_options *opt,
                          const struct compile_context *context)
{
    struct job j = {.opt = *opt, .p = calloc(1, sizeof *j.p)};
    if (!j.p) return fail(CODA_E_MEMORY, "out of memory for a plan");
    j.p->fast_fp16 = opt->flags & CODA_FAST_FP16;
    j.p->no_deferral = opt->flags & CODA_NO_DEFERRAL;
    if (context) j.context = *context;
    coda_status status = compile(&j, g);
    if (status) executable_free(j.p);
    else *out = j.p;
    return status;
}

coda_status compile_load(coda_plan *const *plan, int plans, const coda_compile_options *opt,
                         struct kernel_table *table)
{
    coda_plan *p = plan[0];
    const struct jit_options jit = {
        .arch = p->arch, .cache = opt->cache, .no_cache = opt->flags & CODA_NO_CACHE};
    coda_status status = kernels_load_into(table, plan, plans, &jit);
    if (!status) kernel_table_take(table, p);
    return status ? status : kernels_load(p, &jit);
}
