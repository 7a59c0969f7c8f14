/*
 * family.c -- the plans of all shapes of one graph.
 *
 * The graph is rewritten once, with its symbols; but for values that make extents equal which may differ it
 * is rewritten anew, as there more rules apply. Products have tiles for many shapes (variants.h), and a shape
 * lies in the workspace as a larger one of its kind does, so that the largest one's workspace is enough
 * (family_whole.c).
 */
#include "family.h"

#include "corners.h"
#include "kernel_table.h"
#include "pipeline.h"
#include "variants.h"

#include <inttypes.h>
#include <stdio.h>

coda_status family_open(struct family *f, const graph *g, const coda_compile_options *opt)
{
    *f = (struct family){.opt = *opt};
    f->opt.flags &= ~(unsigned)(CODA_AUTOTUNE | CODA_MAX_AUTOTUNE); /* takes seconds, and the device */
    f->graph = graph_copy(g, "compile");
    f->variants = f->graph ? variants_new() : NULL;
    bool good = f->variants;
    if (good && opt->device != CODA_DEVICE_CPU) good = (f->table = kernel_table_new()) != NULL;
    if (good) f->rewritten = compile_rewritten(g, opt);
    if (good) good = (f->templates = templates_new(f->graph)) != NULL;
    return good ? CODA_OK : fail_status();
}

void family_close(struct family *f)
{
    for (int i = 0; i < f->extremes; i++) executable_free(f->extreme[i]);
    for (int i = 0; i < f->probes; i++) executable_free(f->probe[i]);
    templates_free(f->templates);
    kernel_table_free(f->table);
    variants_free(f->variants);
    graph_free(f->rewritten);
    graph_free(f->graph);
}

void family_hold(struct family *f)
{
    templates_hold(f->templates);
    variants_hold(f->variants);
    if (f->table) kernel_table_hold(f->table);
}

void family_let_go(struct family *f)
{
    if (f->table) kernel_table_let_go(f->table);
    variants_let_go(f->variants);
    templates_let_go(f->templates);
}

void family_say(const struct family *f, const int64_t *dims, char *out, size_t size)
{
    const struct dims *t = f->graph->dims;
    struct text text = {0};
    for (int i = 0; i < t->symbols; i++)
        text_printf(&text, "%s%s=%" PRId64, i ? ", " : "", t->symbol[i].name, dims[i]);
    snprintf(out, size, "%s", text_str(&text));
    text_free(&text);
}

/* ---- One plan ---- */

/* Is the shape's graph the rewritten one, with these values? Where rows keep their bits, no number of them
 * may let other rules apply. */
static bool has_rewritten(const struct family *f, const int64_t *dims)
{
    bool always = f->opt.flags & CODA_BATCH_INVARIANT;
    return f->rewritten && (always || graph_binds_apart(f->rewritten, dims));
}

static struct compile_context context_of(const struct family *f, const coda_plan *whole,
                                         const struct plan_request *w)
{
    return (struct compile_context){.parent = whole,
                                    .variants = f->variants,
                                    .base = w->base,
                                    .frugal = w->frugal,
                                    .larger = f->larger,
                                    .largers = f->largers,
                                    .table = f->table,
                                    .loaded_only = w->loaded,
                                    .unloaded = w->unloaded,
                                    .threads = w->threads,
                                    .stops = w->stops,
                                    .dry_run = w->dry_run,
                                    .guards = w->guards};
}

static coda_status compile_bound(struct family *f, coda_plan **out, const coda_plan *whole,
                                 const struct plan_request *w, const graph *from, unsigned flags)
{
    graph *g = graph_bind(from, w->call, w->dims);
    if (!g) return fail_status();
    coda_compile_options opt = f->opt;
    const struct compile_context context = context_of(f, whole, w);
    opt.flags |= flags;
    coda_status status = compile_graph(out, g, &opt, &context);
    graph_free(g);
    return status;
}

coda_status family_compile(struct family *f, coda_plan **out, const coda_plan *whole,
                           const struct plan_request *w, unsigned flags)
{
    return compile_bound(f, out, whole, w, has_rewritten(f, w->dims) ? f->rewritten : f->graph, flags);
}

/* Every shape must fit the workspace and the prepared memory that the caller was told. */
static coda_status check_promises(const struct family *f, const coda_plan *whole, const coda_plan *p,
                                  const struct plan_request *w)
{
    char shape[200];
    bool same = p->plan.prepared_id == whole->plan.prepared_id && p->plan.prepared == whole->plan.prepared;
    if (same && p->plan.workspace <= whole->plan.workspace) return CODA_OK;
    family_say(f, w->dims, shape, sizeof shape);
    if (p->plan.workspace > whole->plan.workspace)
        return fail(CODA_E_UNSUPPORTED,
                    "%s: %s wants a workspace of %" PRId64 " bytes; the largest dims want %" PRId64, w->call,
                    shape, p->plan.workspace, whole->plan.workspace);
    return fail(CODA_E_UNSUPPORTED, "%s: %s folds other weights than the largest dims do", w->call, shape);
}

static unsigned plan_flags(const struct plan_request *w)
{
    return w->dry_run || w->text_only ? CODA_PLAN_ONLY : 0;
}

/* Keeps the plan only if it needs what callers were told, and, where it has to be, is ready to run. */
static coda_status judge(const struct family *f, coda_plan **out, const coda_plan *whole,
                         const struct plan_request *w)
{
    coda_status status = check_promises(f, whole, *out, w);
    bool absent = w->loaded && !(*out)->runnable;
    if (!status && !absent) return CODA_OK;
    executable_free(*out);
    *out = NULL;
    return status;
}

static coda_status plan_from(struct family *f, coda_plan **out, const coda_plan *whole,
                             const struct plan_request *w, const graph *from)
{
    coda_status status = compile_bound(f, out, whole, w, from, plan_flags(w));
    return status ? status : judge(f, out, whole, w);
}

/* Plans the shape as if extents that differ in a shape near it, and are equal in this one by chance, were not
 * equal. */
static coda_status plan_like(struct family *f, coda_plan **out, const coda_plan *whole,
                             const struct plan_request *w, const int64_t *near, const graph *from)
{
    struct guards asked = {0}, own = {0};
    struct plan_request other = {.call = w->call, .dims = near, .base = w->base, .dry_run = true};
    struct plan_request noted = *w;
    coda_plan *p = NULL;
    other.guards = &asked, noted.guards = &own;
    coda_status status = plan_from(f, &p, whole, &other, from);
    executable_free(p);
    guards_follow(&asked);
    if (!status) status = plan_from(f, out, whole, &noted, from);
    guards_follow(NULL);
    guards_free(&asked);
    guards_free(&own);
    return status;
}

/* Where extents happen to be equal, programs may be joined that no larger shape joins: a buffer lives longer,
 * or they want more memory than its own. */
static coda_status plan_as_neighbor(struct family *f, coda_plan **out, const coda_plan *whole,
                                    const struct plan_request *w, const graph *from)
{
    const struct dims *t = f->graph->dims;
    int64_t near[MOST_SYMBOLS];
    struct failure failure;
    fail_save(&failure);
    for (int k = 0; k < neighbors(t); k++)
        if (neighbor_shape(t, w->dims, k, near) && !plan_like(f, out, whole, w, near, from)) return CODA_OK;
    fail_restore(&failure);
    return CODA_E_UNSUPPORTED;
}

static coda_status plan_in_full(struct family *f, coda_plan **out, const coda_plan *whole,
                                const struct plan_request *w)
{
    bool apart = has_rewritten(f, w->dims);
    struct guards *before = guards_note(w->guards);
    extents_equal(apart, true);
    guards_note(before);
    coda_status status = plan_from(f, out, whole, w, apart ? f->rewritten : f->graph);
    if (status != CODA_E_UNSUPPORTED) return status;
    /* What its rules or its joins won may want too much memory. Without them, it takes no notes: this depends
     * on the schedule. */
    if (w->guards) w->guards->failed = true;
    if (!apart && f->rewritten) status = plan_from(f, out, whole, w, f->rewritten);
    if (status != CODA_E_UNSUPPORTED) return status;
    struct plan_request frugal = *w;
    frugal.frugal = true;
    status = plan_from(f, out, whole, &frugal, apart || f->rewritten ? f->rewritten : f->graph);
    if (status != CODA_E_UNSUPPORTED) return status;
    return plan_as_neighbor(f, out, whole, w, f->rewritten ? f->rewritten : f->graph);
}

/* The plan of a shape whose template is known; false: it has to be planned in full. */
static bool plan_from_template(struct family *f, coda_plan **out, const coda_plan *whole,
                               const struct plan_request *w)
{
    int64_t at[SKELETON_VARIABLES] = {0};
    struct compile_context context = context_of(f, whole, w);
    coda_compile_options opt = f->opt;
    struct failure before;
    context.at = at;
    if (w->fully) return false;
    context.plan_template =
        templates_find(f->templates, w->dims, has_rewritten(f, w->dims), w->approximate, at);
    if (!context.plan_template) return false;
    opt.flags |= plan_flags(w);
    fail_save(&before);
    bool good = !compile_graph(out, NULL, &opt, &context) && !judge(f, out, whole, w);
    if (!good) fail_restore(&before);
    return good;
}

struct sampler_context {
    struct family *family;
    const coda_plan *whole;
};

static bool is_rewritten(const void *context, const int64_t *dims)
{
    const struct sampler_context *a = context;
    return has_rewritten(a->family, dims);
}

static coda_plan *sample_plan(const void *context, const int64_t *dims, struct guards *guards)
{
    const struct sampler_context *a = context;
    const struct plan_request w = {.call = "compile", .dims = dims, .dry_run = true, .guards = guards};
    coda_plan *p = NULL;
    return plan_in_full(a->family, &p, a->whole, &w) ? NULL : p;
}

static void learn(struct family *f, const coda_plan *whole, const struct plan_request *w,
                  const struct guards *asked)
{
    struct sampler_context a = {f, whole};
    const struct sampler how = {.plan = sample_plan,
                                .context = &a,
                                .variants = f->variants,
                                .rewritten = is_rewritten,
                                .approximate = w->approximate,
                                .settles = whole->gpu.context};
    templates_learn(f->templates, w->dims, asked, &how);
}

coda_status family_plan(struct family *f, coda_plan **out, const coda_plan *whole,
                        const struct plan_request *w)
{
    struct guards asked = {0};
    struct plan_request noted = *w;
    bool learns = !w->fully && !(f->opt.flags & CODA_CUBLASLT);
    if (plan_from_template(f, out, whole, w)) return CODA_OK;
    if (learns) noted.guards = &asked;
    coda_status status = plan_in_full(f, out, whole, &noted);
    if (learns && !status) learn(f, whole, w, &asked);
    guards_free(&asked);
    return status;
}
