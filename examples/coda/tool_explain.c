/* tool_explain.c -- coda info, explain and compile: everything that needs no data. */
#include <stdio.h>
#include <stdlib.h>

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

/* A plan of the file's graph, for the GPU if that is asked for; NULL after a complaint. */
static coda_plan *plan_open(const struct options *opt, unsigned flags)
{
    coda_compile_options c = opt->compile;
    coda_plan *p = NULL;
    coda_graph *g = graph_open(opt);
    if (c.device == CODA_DEVICE_CPU) c.device = CODA_DEVICE_NONE;
    c.flags |= flags;
    if (g && coda_compile(&p, g, &c) != CODA_OK) complain("%s: %s", opt->file, coda_error());
    coda_graph_free(g);
    return p;
}

static void print(const char *title, const coda_plan *p, coda_text what)
{
    char *text = plan_text(p, what);
    fprintf(output, "%s%s%s", title, text ? text : "", *title ? "\n" : "");
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

int explain(const struct options *opt)
{
    coda_plan *p = plan_open(opt, CODA_PLAN_ONLY);
    if (!p) return 1;
    if (opt->dot) print("", p, CODA_TEXT_DOT);
    else {
        print("# derivation\n", p, CODA_TEXT_DERIVATION);
        print("# rewritten graph\n", p, CODA_TEXT_REWRITTEN);
        print("# plan\n", p, CODA_TEXT_PLAN);
        print_stats(p);
    }
    coda_plan_free(p);
    return 0;
}

int compile(const struct options *opt)
{
    coda_plan *p = plan_open(opt, 0);
    if (!p) return 1;
    fprintf(output, "%-48s %9s %9s %6s %7s\n", "kernel", "ms", "registers", "spills", "shared");
    for (int i = 0; i < coda_plan_kernels(p); i++) {
        coda_kernel_info k = CODA_KERNEL_INFO_INIT;
        char ms[32] = "cached";
        coda_plan_kernel(p, i, &k);
        if (!k.cached) snprintf(ms, sizeof ms, "%.1f", k.compile_ms);
        fprintf(output, "%-48s %9s %9d %6d %7d\n", k.name, ms, k.registers, k.spill_bytes, k.shared_bytes);
    }
    coda_plan_free(p);
    return 0;
}
