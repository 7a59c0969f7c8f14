/* tool_run.c -- coda run: inputs, a run on either device, outputs, and their error against fp64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "tensor.h"
#include "tool.h"

/* One run: the graph, its arguments in host memory, the exact outputs if they are asked for. */
struct run {
    const struct options *opt;
    coda_graph *g;
    coda_plan *p;
    struct tensors t;
    double **exact; /* for each argument; NULL where the run writes nothing */
};

static bool is_result(const struct run *r, int i)
{
    coda_arg_kind kind = r->t.info[i].kind;
    return kind == CODA_ARG_OUTPUT || kind == CODA_ARG_SUM || kind == CODA_ARG_STATE;
}

static int find_arg(const struct run *r, const char *name, bool is_output)
{
    for (int i = 0; i < r->t.n; i++)
        if (strcmp(r->t.info[i].name, name) == 0 &&
            (is_output ? is_result(r, i) : r->t.info[i].kind != CODA_ARG_OUTPUT))
            return i;
    return -1;
}

/* ---- Inputs ---- */

static bool same_shape(const struct npy *n, const coda_arg_info *a)
{
    if (n->rank != a->rank) return false;
    for (int d = 0; d < n->rank; d++)
        if (n->dim[d] != a->dims[d]) return false;
    return true;
}

static int refuse_name(const struct run *r, const char *kind, const char *name, bool of_outputs)
{
    struct nearest n = {.word = name};
    for (int i = 0; i < r->t.n; i++)
        if (of_outputs ? is_result(r, i) : r->t.info[i].kind != CODA_ARG_OUTPUT)
            nearest_try(&n, r->t.info[i].name);
    return complain("the graph has no %s \"%s\"%s", kind, name, nearest_text(&n));
}

/* "[2,3]" */
static const char *shape_text(char out[160], int rank, const int64_t *dim)
{
    int at = snprintf(out, 160, "[");
    for (int d = 0; d < rank && at < 140; d++)
        at += snprintf(out + at, (size_t)(160 - at), "%s%lld", d ? "," : "", (long long)dim[d]);
    snprintf(out + at, (size_t)(160 - at), "]");
    return out;
}

static int refuse_shape(const struct binding *b, const struct npy *n, const coda_arg_info *a)
{
    char is[160], wanted[160];
    return complain("%s has shape %s but %s is %s", b->path, shape_text(is, n->rank, n->dim), b->name,
                    shape_text(wanted, a->rank, a->dims));
}

static int load_input(struct run *r, const struct binding *b)
{
    struct npy n;
    int i = find_arg(r, b->name, false);
    if (i < 0) return refuse_name(r, "leaf", b->name, false);
    const char *error = npy_open(&n, b->path);
    if (error) return complain("%s %s", b->path, error);
    const coda_arg_info *a = &r->t.info[i];
    int bad = !same_shape(&n, a) ? refuse_shape(b, &n, a) : 0;
    if (!bad && (error = npy_load(&n))) bad = complain("%s %s", b->path, error);
    for (int64_t e = 0; !bad && e < n.elements; e++) {
        double v = npy_get(&n, e);
        if (a->dtype == CODA_I32 && !(v >= INT32_MIN && v <= INT32_MAX))
            bad = complain("%s: %g does not fit int32", b->path, v);
        else if (a->dtype == CODA_I64 && !(v >= -0x1p63 && v <= 0x1p63))
            bad = complain("%s: %g does not fit int64", b->path, v);
        else element_set(a->dtype, r->t.host[i], element_at(a, e), v);
    }
    npy_free(&n);
    return bad;
}

/* One element; the value stands where others have a path. */
static int set_scalar(struct run *r, const struct binding *b)
{
    char *end;
    int i = find_arg(r, b->name, false);
    double v = plain_number(b->path, &end);
    if (i < 0 || r->t.info[i].kind != CODA_ARG_SCALAR) return refuse_name(r, "scalar", b->name, false);
    if (!*b->path || *end) return complain("--scalar %s: \"%s\" is no number", b->name, b->path);
    if (r->t.info[i].dtype == CODA_I32 && !(v >= INT32_MIN && v <= INT32_MAX && v == floor(v)))
        return complain("--scalar %s: %g is no int32", b->name, v);
    element_set(r->t.info[i].dtype, r->t.host[i], 0, v);
    return 0;
}

/* Is the leaf the third operand of an append, "= append %STATE, %ROWS, %NAME"? */
static bool names_slots(const char *graph, const char *name)
{
    static const char append[] = "= append ";
    for (const char *at = graph; (at = strstr(at, append));) {
        at += sizeof append - 1;
        for (int comma = 0; comma < 2; comma++) at += strcspn(at, ",\n"), at += *at == ',';
        at += strspn(at, " %");
        size_t n = strcspn(at, ", \n");
        if (n == strlen(name) && !strncmp(at, name, n)) return true;
    }
    return false;
}

/* Rows of one slot would be in a race for it: each draws one that none before it has. */
static int draw_slots(const coda_arg_info *a, void *host, uint64_t *seed, int ints)
{
    int64_t n = element_count(a), slots = ints > n ? ints : n;
    bool *taken = calloc((size_t)slots + 1, sizeof *taken);
    for (int64_t i = 0; taken && i < n; i++) {
        int64_t slot = (int64_t)(uniform(seed) * (double)slots) % slots;
        while (taken[slot]) slot = (slot + 1) % slots;
        taken[slot] = true;
        element_set(a->dtype, host, element_at(a, i), (double)slot);
    }
    free(taken);
    return taken ? 0 : complain("out of memory");
}

static int draw_inputs(struct run *r, const char *graph)
{
    uint64_t seed = r->opt->seed;
    int bad = 0;
    for (int i = 0; !bad && i < r->t.n; i++) {
        const coda_arg_info *a = &r->t.info[i];
        if (a->kind == CODA_ARG_OUTPUT) continue;
        if (dtype_is_whole(a->dtype) && names_slots(graph, a->name))
            bad = draw_slots(a, r->t.host[i], &seed, r->opt->ints);
        else tensor_random(a, r->t.host[i], &seed, r->opt->ints);
    }
    return bad;
}

static int make_inputs(struct run *r)
{
    int64_t length = coda_graph_print(r->g, NULL, 0);
    char *graph = length < 0 ? NULL : malloc((size_t)length + 1);
    if (graph) coda_graph_print(r->g, graph, (size_t)length + 1);
    int bad = !graph || tensors_new(&r->t, r->g) ? complain("out of memory for the tensors") : 0;
    if (!bad) bad = draw_inputs(r, graph);
    free(graph);
    for (int i = 0; !bad && i < r->opt->inputs; i++) bad = load_input(r, &r->opt->input[i]);
    for (int i = 0; !bad && i < r->opt->scalars; i++) bad = set_scalar(r, &r->opt->scalar[i]);
    for (int i = 0; !bad && i < r->opt->outputs; i++)
        if (find_arg(r, r->opt->output[i].name, true) < 0)
            bad = refuse_name(r, "output", r->opt->output[i].name, true);
    return bad;
}

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
    void *work = host_scratch(coda_plan_workspace(r->p)), *prepared = host_scratch(coda_plan_prepared(r->p));
    int bad = !work || !prepared ? complain("out of memory") : 0;
    if (!bad && r->opt->compile.fold && coda_prepare(r->p, r->t.host, prepared, work, NULL) != CODA_OK)
        bad = complain("%s", coda_error());
    if (!bad && coda_run(r->p, r->t.host, prepared, work, NULL) != CODA_OK)
        bad = complain("%s", coda_error());
    free(work);
    free(prepared);
    return bad;
}

static int run_on(struct run *r, const struct gpu *gpu, void **args)
{
    void *work = (void *)gpu_alloc(gpu, coda_plan_workspace(r->p));
    void *prepared = (void *)gpu_alloc(gpu, coda_plan_prepared(r->p));
    if (!work || !prepared) return complain("the GPU has too little memory");
    for (int i = 0; i < r->t.n; i++) {
        args[i] = r->t.host[i];
        if (r->t.info[i].kind == CODA_ARG_SCALAR) continue;
        args[i] = (void *)gpu_alloc(gpu, r->t.info[i].bytes);
        if (!args[i] || gpu->upload((gpu_address)args[i], r->t.host[i], r->t.info[i].bytes))
            return complain("the GPU has too little memory");
    }
    if (r->opt->compile.fold && coda_prepare(r->p, args, prepared, work, NULL) != CODA_OK)
        return complain("%s", coda_error());
    if (coda_run(r->p, args, prepared, work, NULL) != CODA_OK) return complain("%s", coda_error());
    if (gpu->stream_wait(NULL)) return complain("the GPU stopped with an error");
    for (int i = 0; i < r->t.n; i++)
        if (is_result(r, i) && gpu->download(r->t.host[i], (gpu_address)args[i], r->t.info[i].bytes))
            return complain("the outputs cannot be read back");
    return 0;
}

static int run_gpu(struct run *r)
{
    struct gpu gpu;
    void **args = calloc((size_t)r->t.n + 1, sizeof *args);
    int bad = !args ? complain("out of memory") : gpu_open(&gpu) ? complain("no GPU") : run_on(r, &gpu, args);
    free(args); /* the GPU's memory goes back with the process */
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

static void show_work(const struct run *r, const char *what)
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
