/* tool_run.c -- coda run: inputs, a run on either device, outputs, and their error against fp64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool_args.h"

/* A state for the evaluator to write to. */
static void *copy_of(const coda_arg_info *a, const void *from)
{
    void *copy = malloc(a->bytes + 1);
    if (copy) memcpy(copy, from, a->bytes);
    return copy;
}

/* Before the run, which may fold constants into the weights. */
static int make_exact(struct run *r)
{
    void **args = calloc((size_t)r->t.n + 1, sizeof *args);
    r->exact = calloc((size_t)r->t.n + 1, sizeof *r->exact);
    int bad = !args || !r->exact ? complain("out of memory") : 0;
    for (int i = 0; !bad && i < r->t.n; i++) {
        args[i] = r->t.host[i];
        if (!is_result(r, i)) continue;
        const coda_arg_info *a = &r->t.info[i];
        bool state = a->kind == CODA_ARG_STATE;
        int64_t n = a->kind == CODA_ARG_SUM ? element_count(a) : 0;
        args[i] = r->exact[i] = calloc((size_t)element_count(a) + 1, sizeof(double));
        if (args[i] && state) args[i] = copy_of(a, r->t.host[i]);
        if (!args[i]) bad = complain("out of memory");
        for (int64_t e = 0; !bad && e < n; e++)
            r->exact[i][e] = element_get(a->dtype, r->t.host[i], element_at(a, e));
    }
    if (!bad && coda_evaluate(r->g, args) != CODA_OK) bad = complain("%s", coda_error());
    for (int i = 0; args && i < r->t.n; i++) {
        const coda_arg_info *a = &r->t.info[i];
        if (a->kind != CODA_ARG_STATE || !args[i] || args[i] == r->t.host[i]) continue;
        for (int64_t e = 0; e < element_count(a); e++)
            r->exact[i][e] = element_get(a->dtype, args[i], element_at(a, e));
        free(args[i]);
    }
    free(args);
    return bad;
}

/* ---- The run ---- */

static int run_cpu(struct run *r)
{
    struct memory m;
    int bad = memory_host(r, &m);
    if (!bad && coda_run(r->p, m.args, m.prepared, m.work, NULL) != CODA_OK)
        bad = complain("%s", coda_error());
    memory_free_host(&m);
    return bad;
}

static int run_on(struct run *r, const struct gpu *gpu, struct memory *m)
{
    int bad = memory_gpu(r, m, gpu);
    if (bad) return bad;
    if (coda_run(r->p, m->args, m->prepared, m->work, NULL) != CODA_OK) return complain("%s", coda_error());
    if (gpu->stream_wait(NULL)) return complain("the GPU stopped with an error");
    for (int i = 0; i < r->t.n; i++)
        if (is_result(r, i) && gpu->download(r->t.host[i], (gpu_address)m->args[i], r->t.info[i].bytes))
            return complain("the outputs cannot be read back");
    return 0;
}

static int run_gpu(struct run *r)
{
    struct gpu gpu;
    struct memory m = {0};
    int bad = gpu_open(&gpu) ? complain("no GPU") : run_on(r, &gpu, &m);
    free(m.args);
    return bad;
}

/* ---- Outputs ---- */

/* What the coarsest type among the arguments allows. */
static double tolerance(const struct run *r)
{
    double most = 1e-5;
    for (int i = 0; i < r->t.n; i++) {
        coda_dtype t = r->t.info[i].dtype;
        most = fmax(most, t == CODA_F8E4M3 ? 3e-2 : t == CODA_BF16 ? 1e-2 : t == CODA_F16 ? 2e-3 : 0);
    }
    return r->opt->tolerance > 0 ? r->opt->tolerance : most;
}

static double root_mean_square(const coda_arg_info *a, const void *host)
{
    double sum = 0;
    int64_t n = element_count(a);
    for (int64_t i = 0; i < n; i++) {
        double v = element_get(a->dtype, host, element_at(a, i));
        sum += v * v;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

static int64_t count_nan(const double *x, int64_t n)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) found += isnan(x[i]) != 0;
    return found;
}

static int report(const struct run *r, int i)
{
    const coda_arg_info *a = &r->t.info[i];
    char shape[160] = "";
    for (int d = 0, at = 0; d < a->rank; d++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%lld", d ? "," : "", (long long)a->dims[d]);
    fprintf(output, "%-12s %s[%s]  rms %.4e", a->name, dtype_text(a->dtype), shape,
            root_mean_square(a, r->t.host[i]));
    if (!r->exact) return fprintf(output, "\n"), 0;
    double error = tensor_error(a, r->t.host[i], r->exact[i]), most = tolerance(r);
    int64_t undefined = count_nan(r->exact[i], element_count(a));
    bool good = error <= most && !undefined;
    fprintf(output, "  error %.2e, allowed %.0e: ", error, most);
    color_span(good ? GREEN : RED, good ? "pass" : "FAIL", 4);
    fprintf(output, "\n");
    if (undefined)
        complain("%s: %lld of %lld values are NaN in fp64 too, which shows nothing", a->name,
                 (long long)undefined, (long long)element_count(a));
    return !good;
}

static int write_outputs(const struct run *r)
{
    for (int i = 0; i < r->opt->outputs; i++) {
        int at = find_arg(r, r->opt->output[i].name, true);
        const char *error = npy_write(r->opt->output[i].path, &r->t.info[at], r->t.host[at]);
        if (error) return complain("%s %s", r->opt->output[i].path, error);
    }
    return 0;
}

void show_work(const struct run *r, const char *what)
{
    progress_end(&working);
    progress_begin(&working, "%s of %s", what, r->opt->file);
}

static int execute(struct run *r)
{
    bool gpu = r->opt->compile.device == CODA_DEVICE_GPU;
    if (!(r->g = graph_open_bound(r->opt))) return 1;
    if (compile_shown(&r->p, r->g, &r->opt->compile, r->opt->file) != CODA_OK)
        return complain("%s: %s", r->opt->file, coda_error());
    show_work(r, "inputs");
    if (make_inputs(r)) return 1;
    show_work(r, "fp64 results");
    if (r->opt->check && make_exact(r)) return 1;
    show_work(r, "run");
    if (gpu ? run_gpu(r) : run_cpu(r)) return 1;
    progress_end(&working);
    int bad = 0;
    for (int i = 0; i < r->t.n; i++)
        if (is_result(r, i)) bad |= report(r, i);
    if (bad) complain("%s: the result differs from fp64 by more than is allowed", r->opt->file);
    return write_outputs(r) | bad;
}

int run(const struct options *opt)
{
    struct run r = {.opt = opt};
    int bad = execute(&r);
    for (int i = 0; r.exact && i < r.t.n; i++) free(r.exact[i]);
    free(r.exact);
    tensors_free(&r.t);
    coda_plan_free(r.p);
    coda_graph_free(r.g);
    return bad;
}
