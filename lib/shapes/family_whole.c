/*
 * family_whole.c -- the plan of the largest shape, and what is found out ahead for all others: how much
 * workspace they want, and which kernels they have besides.
 */
#include "family.h"

#include "corners.h"
#include "kernel_table.h"
#include "pipeline.h"

_Static_assert(MOST_EXTREMES == 2 * MOST_CORNERS, "of the base or not");

static coda_status add_extreme(struct family *f, coda_plan *whole, const struct plan_request *w,
                               unsigned flags)
{
    coda_plan *p;
    coda_status status = family_compile(f, &p, whole, w, flags);
    if (status) return status;
    whole->plan.workspace = MAX(whole->plan.workspace, p->plan.workspace);
    f->extreme[f->extremes++] = p;
    f->larger[f->largers++] = &p->plan;
    return CODA_OK;
}

/* Dims that are 1 let more rules apply, odd ones want copies, and what is put together with an empty tensor
 * is all there is: such shapes have other buffers than the largest one. The workspace is that of the
 * hungriest of those that are largest among their like. */
static coda_status add_extremes(struct family *f, coda_plan *whole, bool base, unsigned flags)
{
    int64_t dims[MOST_SYMBOLS];
    const struct plan_request w = {.call = "compile", .dims = dims, .base = base, .unloaded = base};
    coda_status status = CODA_OK;
    for (int k = 0; !status && k < MOST_CORNERS; k++)
        if (corner_shape(f->graph->dims, k, dims)) status = add_extreme(f, whole, &w, flags);
    return status;
}

/* ---- Probes ----
 *
 * A kernel of the base is for any number of rows; but attention has others for few queries, and for few
 * sequences, and what is 1 is left out of a walk. Which there are is found by planning shapes: around the
 * powers of two of each symbol, the others at their largest, then small. Some texts have a number of the
 * shape, as a mean over rows has their number: then every probe wants others, and none of it is loaded. */

struct search_of_base {
    struct family *f;
    coda_plan *whole;
    struct arena arena;
    struct names texts;
    bool endless; /* texts follow the shapes, and there is no base of them */
};

/* Has it a text that no plan before it has? */
static bool has_news(struct search_of_base *s, const coda_plan *p)
{
    bool news = false;
    for (int i = 0; i < p->kernels; i++) {
        const char *text = p->kernel[i].info.source;
        if (names_find(&s->texts, text, -1) >= 0) continue;
        news = true;
        names_add(&s->texts, &s->arena, text, i);
    }
    return news;
}

/* Draws the best plan, too: its products look for tiles of so many rows, which takes longer than a run may.
 * Planning errors are ignored here; the run of that shape will report them. */
static void probe(struct search_of_base *s, const int64_t *dims)
{
    struct family *f = s->f;
    const struct plan_request w = {.call = "compile", .dims = dims, .base = true, .unloaded = true};
    const struct plan_request best = {.call = "compile", .dims = dims, .dry_run = true};
    coda_plan *p;
    if (s->endless) return;
    if (!family_plan(f, &p, s->whole, &best)) executable_free(p);
    if (family_plan(f, &p, s->whole, &w)) return;
    bool news = has_news(s, p);
    s->endless = news && f->probes == MOST_PROBES;
    if (news && !s->endless) f->probe[f->probes++] = p;
    else executable_free(p);
}

static void probe_symbol(struct search_of_base *s, int symbol, bool small)
{
    const struct dims *t = s->f->graph->dims;
    const struct symbol *of = &t->symbol[symbol];
    int64_t dims[MOST_SYMBOLS];
    corner_shape(t, small ? CORNER_SMALL : CORNER_LARGE, dims);
    for (int64_t power = 1; power <= of->most; power *= 2)
        for (int64_t past = 0; past < 2; past++) {
            int64_t steps = CEIL_DIV(power + past, of->multiple);
            dims[symbol] = steps * of->multiple;
            if (dims[symbol] >= of->least && dims[symbol] <= of->most) probe(s, dims);
        }
}

static void add_probes(struct family *f, coda_plan *whole)
{
    struct search_of_base s = {.f = f, .whole = whole};
    has_news(&s, whole);
    for (int i = 0; i < f->extremes; i++) has_news(&s, f->extreme[i]);
    for (int i = 0; i < f->graph->dims->symbols; i++)
        for (int small = 0; small < MIN(f->graph->dims->symbols, 2); small++) probe_symbol(&s, i, small);
    while (s.endless && f->probes) executable_free(f->probe[--f->probes]);
    arena_free(&s.arena);
}

/* All kernels of the base, compiled at one time. */
static coda_status load_base(struct family *f, coda_plan *whole)
{
    coda_plan *all[1 + MOST_EXTREMES + MOST_PROBES] = {whole};
    int n = 1;
    if (!f->table || f->opt.flags & CODA_PLAN_ONLY) return CODA_OK;
    for (int i = 0; i < f->extremes; i++) all[n++] = f->extreme[i];
    for (int i = 0; i < f->probes; i++) all[n++] = f->probe[i];
    return compile_load(all, n, &f->opt, f->table);
}

static coda_status add_base(struct family *f, coda_plan *whole)
{
    coda_status status = add_extremes(f, whole, true, 0);
    if (status) return status;
    add_probes(f, whole);
    return load_base(f, whole);
}

coda_status family_whole(struct family *f, coda_plan **out, bool base)
{
    const struct compile_context context = {
        .variants = f->variants, .base = base, .table = f->table, .unloaded = base};
    int64_t dims[MOST_SYMBOLS];
    corner_shape(f->graph->dims, CORNER_LARGE, dims);
    graph *large = graph_bind(f->graph, "compile", dims);
    if (!large) return fail_status();
    coda_status status = compile_graph(out, large, &f->opt, &context);
    graph_free(large);
    if (status) return status;
    f->opt.arch = (*out)->arch;
    f->larger[f->largers++] = &(*out)->plan;
    if (base) status = add_base(f, *out);
    if (!status) status = add_extremes(f, *out, false, CODA_PLAN_ONLY);
    if (!status) return CODA_OK;
    executable_free(*out);
    *out = NULL;
    return status;
}
