/* tool_explain.c -- coda info, explain and compile: everything that needs no data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "tool.h"

int info(const struct options *opt)
{
    (void)opt;
    int64_t length = coda_info_print(NULL, 0);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (!text) return complain("%s", length < 0 ? coda_error() : "out of memory");
    coda_info_print(text, (size_t)length + 1);
    fputs(text, output);
    free(text);
    return 0;
}

/* A plan of the file's graph, for the GPU if that is asked for; NULL after a complaint. Over ranges it is one
 * of all shapes, by any policy. */
static coda_plan *plan_open(const struct options *opt, unsigned flags)
{
    coda_compile_options c = opt->compile;
    coda_plan *p = NULL;
    coda_graph *g = graph_open(opt);
    if (c.device == CODA_DEVICE_CPU) c.device = CODA_DEVICE_NONE;
    c.flags |= flags;
    c.policy = CODA_POLICY_BACKGROUND;
    if (g && compile_shown(&p, g, &c, opt->file) != CODA_OK) complain("%s: %s", opt->file, coda_error());
    coda_graph_free(g);
    return p;
}

static void print(const char *title, const coda_plan *p, coda_text what)
{
    char *text = plan_text(p, what);
    color_span(BOLD, title, strlen(title));
    if (text) color_text(text, what);
    if (*title) fputc('\n', output);
    free(text);
}

static void print_stats(const coda_plan *p)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(p, &s);
    fprintf(output, "launches  %d, one for each operation: %d\n", s.launches, s.launches_unfused);
    fprintf(output, "bytes     %.3f MB, one kernel for each operation: %.3f MB\n", (double)s.bytes / 1e6,
            (double)s.bytes_unfused / 1e6);
    fprintf(output, "flops     %.3f G\n", s.flops / 1e9);
    fprintf(output, "memory    workspace %zu, prepared %zu bytes\n", coda_plan_workspace(p),
            coda_plan_prepared(p));
}

/* ---- All shapes ---- */

struct listing {
    const coda_plan *p; /* of the largest, which has compiled its kernels already */
    int kernels;
};

static int show_kernels(void *listing, int done, int all)
{
    (void)listing;
    progress_count(&working, done, all, "kernels");
    return 0;
}

/* Calls `each` for every kernel that some shape wants, as it is made; 0, or 1 after a complaint. */
static int visit_kernels(struct listing *l, const char *file,
                         void (*each)(void *listing, const coda_kernel_info *k))
{
    coda_warm_options w = CODA_WARM_OPTIONS_INIT;
    w.bindings = CODA_WARM_ALL;
    w.context = l;
    w.progress = show_kernels;
    w.kernel = each;
    progress_begin(&working, "all shapes of %s", file);
    coda_status status = coda_warm(l->p, &w);
    progress_end(&working);
    return status ? complain("%s", coda_error()) : 0;
}

static void count_kernel(void *listing, const coda_kernel_info *k)
{
    (void)k;
    ((struct listing *)listing)->kernels++;
}

static int explain_shapes(const coda_plan *p, const char *file)
{
    struct listing l = {.p = p};
    int bad = visit_kernels(&l, file, count_kernel);
    print("\n# shapes\n", p, CODA_TEXT_SHAPES);
    if (!bad) fprintf(output, "kernels   %d for all shapes, with those for any rows\n", l.kernels);
    return bad;
}

/* ---- Commands ---- */

int explain(const struct options *opt)
{
    coda_plan *p = plan_open(opt, CODA_PLAN_ONLY);
    int bad = 0;
    if (!p) return 1;
    if (opt->html) bad = explain_html(opt, p);
    else if (opt->dot) print("", p, CODA_TEXT_DOT);
    else {
        print("# derivation\n", p, CODA_TEXT_DERIVATION);
        print("# rewritten graph\n", p, CODA_TEXT_REWRITTEN);
        print("# plan\n", p, CODA_TEXT_PLAN);
        print("# reasons\n", p, CODA_TEXT_REASONS);
        print_stats(p);
        if (has_ranges(opt)) bad = explain_shapes(p, opt->file);
    }
    coda_plan_free(p);
    return bad;
}

static void print_kernel(const coda_kernel_info *k)
{
    char ms[32] = "cached";
    if (!k->cached) snprintf(ms, sizeof ms, "%.1f", k->compile_ms);
    fprintf(output, "%-48s ", k->name);
    if (k->cached) paint(FAINT);
    fprintf(output, "%9s", ms);
    if (k->cached) paint(PLAIN);
    fprintf(output, " %9d ", k->registers);
    if (k->spill_bytes > 0) paint(YELLOW);
    fprintf(output, "%6d", k->spill_bytes);
    if (k->spill_bytes > 0) paint(PLAIN);
    fprintf(output, " %7d\n", k->shared_bytes);
}

/* What the plan itself has compiled is in the cache by now. */
static void list_kernel(void *listing, const coda_kernel_info *k)
{
    struct listing *l = listing;
    coda_kernel_info own = CODA_KERNEL_INFO_INIT;
    const coda_kernel_info *shown = k;
    for (int i = 0; i < coda_plan_kernels(l->p) && shown == k; i++)
        if (!coda_plan_kernel(l->p, i, &own) && !strcmp(own.source, k->source)) shown = &own;
    progress_hold(&working);
    print_kernel(shown);
    progress_go_on(&working);
    l->kernels++;
}

/* The command is there to fill the cache. Nobody fails where that could not be, but it is told. */
static void tell_unkept(const struct options *opt)
{
    coda_cache *c = opt->compile.cache;
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    if (opt->compile.flags & CODA_NO_CACHE || coda_cache_stats_get(c, &s)) return;
    unsigned long long kernels = s.store_failed + s.too_large;
    if (s.compiles && !*coda_cache_dir(c)) complain("no kernel is kept: %s", coda_cache_problem(c));
    else if (kernels)
        complain("%llu kernel%s kept in %s: %s", kernels, kernels == 1 ? " is not" : "s are not",
                 coda_cache_dir(c),
                 s.too_large             ? "there is no room below the limit"
                 : s.store_failed_space  ? "the disk or the quota is full"
                 : s.store_failed_denied ? "it is read-only, or writing is not permitted"
                                         : "they could not be written; see coda cache stat");
}

int compile(const struct options *opt)
{
    coda_plan *p = plan_open(opt, 0);
    struct listing l = {.p = p};
    int bad = 0;
    if (!p) return 1;
    paint(BOLD);
    fprintf(output, "%-48s %9s %9s %6s %7s\n", "kernel", "ms", "registers", "spills", "shared");
    paint(PLAIN);
    if (has_ranges(opt)) {
        bad = visit_kernels(&l, opt->file, list_kernel);
        if (!bad) fprintf(output, "%d kernels for all shapes\n", l.kernels);
    }
    for (int i = 0; i < coda_plan_kernels(p) && !has_ranges(opt); i++) {
        coda_kernel_info k = CODA_KERNEL_INFO_INIT;
        coda_plan_kernel(p, i, &k);
        print_kernel(&k);
    }
    coda_plan_free(p);
    tell_unkept(opt);
    return bad;
}
