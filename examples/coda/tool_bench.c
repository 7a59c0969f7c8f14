/*
 * tool_bench.c -- coda bench: each launch of a plan under a clock, beside its floor, and their sum beside the
 * run; as a table, or as JSON, which bench.schema.json describes.
 */
#include <stdlib.h>
#include <string.h>

#include "tool_args.h"
#include "tool_cache.h" /* json_string */

struct bench {
    struct run run;
    coda_profile *profile;
    coda_profile_total all;
};

static coda_profile_launch launch_of(const struct bench *b, int i)
{
    coda_profile_launch l = CODA_PROFILE_LAUNCH_INIT;
    coda_profile_launch_get(b->profile, i, &l);
    return l;
}

/* ---- As a table ---- */

/* How much of its time a launch needs; 0 if that is not known. */
static double share(double floor_ms, double ms) { return ms > 0 ? 100 * floor_ms / ms : 0; }

static void print_launch(const struct bench *b, int i)
{
    const coda_profile_launch l = launch_of(b, i);
    char number[16];
    snprintf(number, sizeof number, "@%d", l.program);
    double s = l.ms > 0 ? 1e-3 * l.ms : 1;
    fprintf(output, "%-4s %-38.38s %9.4f %9.4f ", number, l.kernel, l.ms, l.floor_ms);
    paint(share(l.floor_ms, l.ms) >= 80 ? GREEN : share(l.floor_ms, l.ms) < 50 ? YELLOW : PLAIN);
    fprintf(output, "%5.0f %%", share(l.floor_ms, l.ms));
    paint(PLAIN);
    fprintf(output, " %9.1f %9.3g %5.0f %%\n", (double)l.bytes / s / 1e9, l.flops / s / 1e12,
            share(l.ms, b->all.sum_ms));
    paint(FAINT);
    fprintf(output, "     %s\n", l.work);
    if (*l.makes) fprintf(output, "     makes %s%s%s\n", l.makes, *l.scope ? " in " : "", l.scope);
    if (*l.tile) fprintf(output, "     tile %s\n", l.tile);
    paint(PLAIN);
}

/* Rates of products, each once. */
static void print_rates(const struct bench *b)
{
    double last = 0;
    if (b->all.copy_rate > 0)
        fprintf(output, "copy      %.1f GB/s, read and written\n", b->all.copy_rate / 1e9);
    else fprintf(output, "copy      not measured\n");
    for (int i = 0; i < b->all.launches; i++) {
        coda_profile_launch l = launch_of(b, i);
        if (l.product_rate > 0 && l.product_rate != last)
            fprintf(output, "product   %.3g TFLOP/s, as of @%d\n", l.product_rate / 1e12, l.program);
        if (l.product_rate > 0) last = l.product_rate;
    }
}

static void print_sums(const struct bench *b)
{
    const coda_profile_total *a = &b->all;
    double gap = a->sum_ms - a->run_ms;
    paint(BOLD);
    fprintf(output, "sum  %-38s %9.4f %9.4f %5.0f %%\n", "", a->sum_ms, a->floor_ms,
            share(a->floor_ms, a->sum_ms));
    fprintf(output, "run  %-38s %9.4f %9.4f %5.0f %%\n", "", a->run_ms, a->floor_ms,
            share(a->floor_ms, a->run_ms));
    paint(PLAIN);
    fprintf(output, "gap       %.4f ms, %.1f %% of the run, that it takes %s than the sum\n", fabs(gap),
            share(fabs(gap), a->run_ms), gap < 0 ? "more" : "less");
    fprintf(output, "least     %.4f ms of %d runs\n", a->run_least_ms, a->rounds);
}

static void print_table(const struct bench *b)
{
    fprintf(output, "device    %s\n", b->all.device);
    print_rates(b);
    paint(BOLD);
    fprintf(output, "\n%-43s %9s %9s %7s %9s %9s %7s\n", "", "ms", "floor", "of that", "GB/s", "TFLOP/s",
            "of all");
    paint(PLAIN);
    for (int i = 0; i < b->all.launches; i++) print_launch(b, i);
    fputc('\n', output);
    print_sums(b);
}

/* ---- As JSON ---- */

static void put_text(const char *name, const char *s)
{
    fprintf(output, "\"%s\": ", name);
    json_string(output, s);
    fputs(", ", output);
}

static void put_number(const char *name, double v, const char *end)
{
    fprintf(output, "\"%s\": %.9g%s", name, v, end);
}

static void put_launch(const struct bench *b, int i)
{
    const coda_profile_launch l = launch_of(b, i);
    fprintf(output, "%s\n  {\"program\": %d, ", i ? "," : "", l.program);
    put_text("kernel", l.kernel);
    put_text("work", l.work);
    put_text("makes", l.makes);
    put_text("scope", l.scope);
    put_text("tile", l.tile);
    put_number("ms", l.ms, ", ");
    put_number("least_ms", l.least_ms, ", ");
    put_number("floor_ms", l.floor_ms, ", ");
    fprintf(output, "\"bytes\": %lld, ", (long long)l.bytes);
    put_number("flops", l.flops, ", ");
    put_number("product_rate", l.product_rate, "}");
}

static void put_dims(const struct options *opt)
{
    fputs("\"dims\": {", output);
    for (int i = 0; i < opt->dims; i++) {
        fputs(i ? ", " : "", output);
        json_string(output, opt->dim[i].name);
        fprintf(output, ": %s", opt->dim[i].path); /* which graph_open_bound has found to be a number */
    }
    fputs("}, ", output);
}

static void print_json(const struct bench *b)
{
    const coda_profile_total *a = &b->all;
    fputs("{\"schema\": \"coda bench 1\", ", output);
    put_text("version", coda_version());
    put_text("file", b->run.opt->file);
    put_dims(b->run.opt);
    put_text("device", a->device);
    fprintf(output, "\"rounds\": %d,\n ", a->rounds);
    put_number("run_ms", a->run_ms, ", ");
    put_number("run_least_ms", a->run_least_ms, ", ");
    put_number("sum_ms", a->sum_ms, ", ");
    put_number("floor_ms", a->floor_ms, ", ");
    fprintf(output, "\"bytes\": %lld, ", (long long)a->bytes);
    put_number("flops", a->flops, ", ");
    put_number("copy_rate", a->copy_rate, ",\n \"launches\": [");
    for (int i = 0; i < a->launches; i++) put_launch(b, i);
    fputs("]}\n", output);
}

/* ---- The command ---- */

static int profile_on(struct bench *b, const struct memory *m)
{
    coda_profile_options o = CODA_PROFILE_OPTIONS_INIT;
    o.rounds = b->run.opt->rounds;
    show_work(&b->run, "profile");
    coda_status status = coda_plan_profile(&b->profile, b->run.p, m->args, m->prepared, m->work, NULL, &o);
    progress_end(&working);
    return status ? complain("%s", coda_error()) : 0;
}

static int profile(struct bench *b)
{
    struct gpu gpu;
    struct memory m = {0};
    int bad = 0;
    if (b->run.opt->compile.device != CODA_DEVICE_GPU) {
        bad = memory_host(&b->run, &m);
        if (!bad) bad = profile_on(b, &m);
        memory_free_host(&m);
        return bad;
    }
    bad = gpu_open(&gpu) ? complain("no GPU") : memory_gpu(&b->run, &m, &gpu);
    if (!bad) bad = profile_on(b, &m);
    free(m.args);
    return bad;
}

static int execute(struct bench *b)
{
    struct run *r = &b->run;
    if (!(r->g = graph_open_bound(r->opt))) return 1;
    if (compile_shown(&r->p, r->g, &r->opt->compile, r->opt->file) != CODA_OK)
        return complain("%s: %s", r->opt->file, coda_error());
    show_work(r, "inputs");
    int bad = make_inputs(r);
    if (!bad) bad = profile(b);
    progress_end(&working);
    if (bad) return bad;
    coda_profile_total_get(b->profile, &b->all);
    if (r->opt->json) print_json(b);
    else print_table(b);
    return 0;
}

int bench(const struct options *opt)
{
    struct bench b = {.run = {.opt = opt, .repeats = true}, .all = CODA_PROFILE_TOTAL_INIT};
    int bad = execute(&b);
    coda_profile_free(b.profile);
    tensors_free(&b.run.t);
    coda_plan_free(b.run.p);
    coda_graph_free(b.run.g);
    return bad;
}
