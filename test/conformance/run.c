/*
 * run.c -- the ONNX operator suite on the CPU device, or on a GPU.
 *
 *     run SET [--only NAME] [--verbose] [--worst] [--gpu]
 *
 * Every case runs in fp32, bf16 and fp16: by the fp64 evaluator, and as plans, fused and not, with each fold,
 * its leaves inputs, all but the first weights, and all weights. A plan runs twice, each time in fresh memory
 * with another poison; what it leaves must be ONNX's result, twice the same bits, and nothing beside it.
 */
#include "case.h"
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 2, FOLDS = 3, MOST_ARGS = 512 };

static struct {
    const char *set, *only;
    bool verbose, worst, gpu;
} options;

/* ---- Numbers ---- */

static uint16_t bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double bf16_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static size_t dtype_bytes(coda_dtype t)
{
    return t == CODA_BF16 || t == CODA_F16 ? 2 : t == CODA_I64 ? 8 : 4;
}

/* The data have 32 bits an element. */
static void store(coda_dtype t, void *to, int64_t i, const void *from)
{
    float x = ((const float *)from)[i];
    switch (t) {
    case CODA_F32: ((float *)to)[i] = x; break;
    case CODA_BF16: ((uint16_t *)to)[i] = bf16_of(x); break;
    case CODA_F16: ((_Float16 *)to)[i] = (_Float16)x; break;
    case CODA_I32: ((int32_t *)to)[i] = ((const int32_t *)from)[i]; break;
    case CODA_I64: ((int64_t *)to)[i] = ((const int32_t *)from)[i]; break;
    case CODA_F8E4M3: /* no case has these */
    case CODA_F8E5M2:
    case CODA_I8:
    case CODA_U8: break;
    }
}

static double load(coda_dtype t, const void *from, int64_t i)
{
    switch (t) {
    case CODA_F32: return ((const float *)from)[i];
    case CODA_BF16: return bf16_value(((const uint16_t *)from)[i]);
    case CODA_F16: return (double)((const _Float16 *)from)[i];
    case CODA_I32: return ((const int32_t *)from)[i];
    case CODA_I64: return (double)((const int64_t *)from)[i];
    case CODA_F8E4M3:
    case CODA_F8E5M2:
    case CODA_I8:
    case CODA_U8: break;
    }
    return 0;
}

/* ---- Arguments ---- */

struct args {
    void *at[MOST_ARGS]; /* the device's */
    void *host[MOST_ARGS];
    size_t bytes[MOST_ARGS];
    coda_arg_info info[MOST_ARGS];
    int n, leaves;
};

/* Leaves with the case's data, outputs poisoned; with `evaluate`, outputs have room for doubles. */
static void args_new(struct args *a, const struct conformance_case *c, const coda_graph *g,
                     unsigned char poison, bool evaluate)
{
    *a = (struct args){.n = coda_graph_args(g), .leaves = c->leaves};
    if (a->n > MOST_ARGS) exit(2);
    for (int i = 0, call = 0; i < a->n; i++) {
        a->info[i] = (coda_arg_info)CODA_ARG_INFO_INIT;
        coda_graph_arg(g, i, &a->info[i]);
        int64_t n = count_elements(a->info[i].rank, a->info[i].dims);
        a->bytes[i] = (size_t)n * (i >= a->leaves && evaluate ? 8 : dtype_bytes(a->info[i].dtype));
        a->at[i] = memory_new(a->bytes[i], poison);
        a->host[i] = calloc(1, a->bytes[i] + 1);
        if (!a->host[i]) exit(2);
        if (i >= a->leaves) continue;
        while (!c->call[call].data) call++;
        for (int64_t k = 0; k < n; k++) store(a->info[i].dtype, a->host[i], k, c->call[call].data);
        memory_put(a->at[i], a->host[i], a->bytes[i]);
        call++;
    }
}

static void args_free(struct args *a)
{
    for (int i = 0; i < a->n; i++) {
        memory_free(a->at[i]);
        free(a->host[i]);
    }
}

/* ---- Judgement ---- */

static double worst_ratio;

static double unit(coda_dtype t) { return t == CODA_BF16 ? 0x1p-8 : t == CODA_F16 ? 0x1p-11 : 0x1p-24; }

static double size_of(const float *want, int64_t n)
{
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(want[i])) sum += (double)want[i] * want[i], finite++;
    return finite ? sqrt(sum / (double)finite) : 0;
}

/* How far off an element is, in units of what is allowed: one rounding of it, and `steps` of the result's
 * size. */
static double element_error(double got, double want, double size, double u, double steps, double largest)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (got == want || (isinf(got) && fabs(want) >= largest && (got > 0) == (want > 0))) return 0;
    if (isinf(got) || isinf(want)) return INFINITY;
    return fabs(got - want) / (u * fabs(want) + steps * u * size + 1e-30);
}

struct bar {
    double u, steps;
};

static double output_error(const struct conformance_case *c, int mode, int output, coda_dtype t,
                           const void *got, bool doubles, struct bar bar)
{
    int64_t n = count_elements(c->output[output].rank, c->output[output].dims);
    const float *want = c->want[mode][output];
    double size = size_of(want, n), worst = 0, largest = mode == MODE_F16 ? 65504 : 3.3e38;
    for (int64_t i = 0; i < n; i++) {
        double x = doubles ? ((const double *)got)[i] : load(t, got, i);
        worst = fmax(worst, element_error(x, (double)want[i], size, bar.u, bar.steps, largest));
    }
    return worst;
}

/* ---- Runs ---- */

struct plan_kind {
    unsigned flags;
    coda_fold fold;
    enum role role;
};

static const char *failure(const char *what)
{
    static char text[600];
    snprintf(text, sizeof text, "%s: %s", what, coda_error());
    return text;
}

/* Views move nothing, and leaves are not computed. */
static int count_steps(const struct conformance_case *c)
{
    static const char *const views[] = {"input", "weight", "constant", "reshape", "transpose", "slice"};
    int steps = 0;
    for (int i = 0; i < c->calls; i++) {
        bool view = false;
        for (int v = 0; v < 6; v++) view = view || strcmp(c->call[i].word, views[v]) == 0;
        steps += !view;
    }
    return steps ? steps : 1;
}

/* The unit of rounding: of the mode, or of the narrowest dtype that the case itself names. ONNX's own figures
 * are in fp32; a GPU's functions are good to a few of its units. */
static double unit_of(const struct conformance_case *c, double u)
{
    for (int i = 0; i < c->calls; i++)
        if (c->call[i].dtype == CODA_BF16 || c->call[i].dtype == CODA_F16)
            u = fmax(u, unit(c->call[i].dtype));
    return fmax(u, options.gpu ? 0x1p-18 : 0x1p-20);
}

static const char *check_outputs(const struct conformance_case *c, int mode, const struct args *a,
                                 bool doubles, struct bar bar)
{
    static char text[200];
    for (int i = 0; i < c->outputs; i++) {
        int k = a->leaves + i;
        const coda_arg_info *o = &a->info[k];
        if (o->rank != c->output[i].rank ||
            memcmp(o->dims, c->output[i].dims, sizeof o->dims[0] * (size_t)o->rank) != 0)
            return "the shape of an output";
        if (!doubles) memory_get(a->host[k], a->at[k], a->bytes[k]);
        double error = output_error(c, mode, i, o->dtype, a->host[k], doubles, bar);
        if (isfinite(error)) worst_ratio = fmax(worst_ratio, error);
        if (error <= 1) continue;
        snprintf(text, sizeof text, "output %d is off by %.3g of what is allowed", i, error);
        return text;
    }
    return NULL;
}

static const char *evaluate(const struct conformance_case *c, int mode)
{
    coda_graph *g = case_graph(c, mode, ROLE_INPUTS);
    struct args a;
    const char *wrong = NULL;
    if (coda_graph_status(g) != CODA_OK) return coda_graph_free(g), failure("graph");
    args_new(&a, c, g, 0x7f, true);
    struct bar bar = {unit_of(c, 0), c->growth[mode] * sqrt(count_steps(c))};
    if (coda_evaluate(g, a.host) != CODA_OK) wrong = failure("evaluate");
    else wrong = check_outputs(c, mode, &a, true, bar);
    args_free(&a);
    coda_graph_free(g);
    return wrong;
}

static bool has_changed(const struct args *a, int leaf)
{
    void *now = malloc(a->bytes[leaf] + 1);
    if (!now) exit(2);
    memory_get(now, a->at[leaf], a->bytes[leaf]);
    bool changed = memcmp(now, a->host[leaf], a->bytes[leaf]) != 0;
    free(now);
    return changed;
}

/* Nothing beside the outputs was written. */
static const char *check_memory(const struct conformance_case *c, const struct args *a, coda_fold fold)
{
    for (int i = 0; i < a->n; i++) {
        if (!memory_is_intact(a->at[i], a->bytes[i])) return "written past the end of an argument";
        bool may_change =
            i >= c->leaves || (fold == CODA_FOLD_IN_PLACE && a->info[i].kind == CODA_ARG_WEIGHT);
        if (!may_change && has_changed(a, i)) return "an input has changed";
    }
    return NULL;
}

/* One run in memory of its own; weights are those that were prepared. */
static const char *run_once(const coda_plan *p, struct args *a, const struct args *weights, void *prepared,
                            unsigned char poison)
{
    void *at[MOST_ARGS];
    size_t bytes = coda_plan_workspace(p);
    void *work = memory_new(bytes, poison);
    for (int i = 0; i < a->n; i++) at[i] = a->info[i].kind == CODA_ARG_WEIGHT ? weights->at[i] : a->at[i];
    const char *wrong = coda_run(p, at, prepared, work, NULL) == CODA_OK ? NULL : failure("run");
    if (!wrong && !memory_is_intact(work, bytes)) wrong = "written past the end of the workspace";
    memory_free(work);
    return wrong;
}

/* Into memory of its own, of which the workspace is gone afterwards. */
static const char *prepare(const coda_plan *p, const struct args *weights, void *prepared)
{
    size_t bytes = coda_plan_workspace(p);
    void *work = memory_new(bytes, 0xff);
    const char *wrong = NULL;
    if (coda_prepare(p, weights->at, prepared, work, NULL) != CODA_OK) wrong = failure("prepare");
    if (!wrong && (!memory_is_intact(work, bytes) || !memory_is_intact(prepared, coda_plan_prepared(p))))
        wrong = "prepare has written past the end of its memory";
    memory_fill(work, 0x33, bytes);
    memory_free(work);
    return wrong;
}

static const char *run_plan(const struct conformance_case *c, int mode, const coda_graph *g,
                            const coda_plan *p, coda_fold fold)
{
    static const unsigned char poison[RUNS] = {0xff, 0x7f};
    struct args weights, a[RUNS];
    struct bar bar = {unit_of(c, unit(mode_dtype(mode))), c->growth[mode] * sqrt(count_steps(c))};
    args_new(&weights, c, g, 0xff, false);
    void *prepared = memory_new(coda_plan_prepared(p), 0xff);
    const char *wrong = prepare(p, &weights, prepared);
    for (int r = 0; r < RUNS; r++) {
        args_new(&a[r], c, g, poison[r], false);
        if (!wrong) wrong = run_once(p, &a[r], &weights, prepared, poison[r]);
        if (!wrong) wrong = check_outputs(c, mode, &a[r], false, bar);
        if (!wrong) wrong = check_memory(c, &a[r], CODA_FOLD_NONE);
        if (!wrong) wrong = check_memory(c, &weights, fold);
    }
    for (int i = c->leaves; i < a[0].n && !wrong; i++)
        if (memcmp(a[0].host[i], a[1].host[i], a[0].bytes[i]) != 0) wrong = "two runs differ";
    for (int r = 0; r < RUNS; r++) args_free(&a[r]);
    args_free(&weights);
    memory_free(prepared);
    coda_prepare_forget(NULL, 0); /* memory that is freed may come back as another plan's */
    return wrong;
}

static const char *compile_and_run(const struct conformance_case *c, int mode, struct plan_kind k)
{
    coda_graph *g = case_graph(c, mode, k.role);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = options.gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    opt.flags = k.flags;
    opt.fold = k.fold;
    const char *wrong;
    if (coda_compile(&p, g, &opt) != CODA_OK) wrong = failure("compile");
    else wrong = run_plan(c, mode, g, p, k.fold);
    coda_plan_free(p);
    coda_graph_free(g);
    return wrong;
}

/* ---- The report ---- */

enum { ROWS = 1 + 2 * FOLDS };
static const char *const row_name[ROWS] = {
    "fp64 evaluator",          "fused",   "fused, folded into copies",
    "fused, folded in place",  "unfused", "unfused, folded into copies",
    "unfused, folded in place"};
static const char *const role_name[ROLES] = {"inputs", "weights", "all weights"};
static struct {
    int run, passed;
} tally[ROWS][MODES];

static void print_graph(const struct conformance_case *c, int mode, enum role role)
{
    static char text[1 << 18];
    coda_graph *g = case_graph(c, mode, role);
    if (coda_graph_print(g, text, sizeof text) > 0) fputs(text, stdout);
    coda_graph_free(g);
}

static bool judge(const struct conformance_case *c, int row, int mode, enum role role, const char *wrong)
{
    if (!wrong) return true;
    printf("FAILED %s, %s, %s, leaves %s: %s\n", c->name, mode_name[mode], row_name[row], role_name[role],
           wrong);
    if (options.verbose) print_graph(c, mode, role);
    return false;
}

static bool run_row(const struct conformance_case *c, int row, int mode)
{
    if (row == 0) return judge(c, 0, mode, ROLE_INPUTS, evaluate(c, mode));
    struct plan_kind k = {row > FOLDS ? CODA_NO_FUSION : 0, (coda_fold)((row - 1) % FOLDS), ROLE_INPUTS};
    for (; k.role < ROLES; k.role++)
        if (!judge(c, row, mode, k.role, compile_and_run(c, mode, k))) return false;
    return true;
}

static bool run_case(const struct conformance_case *c)
{
    bool good = true;
    worst_ratio = 0;
    for (int mode = 0; mode < MODES; mode++)
        for (int row = 0; row < ROWS && c->growth[mode] > 0; row++) {
            bool passed = run_row(c, row, mode);
            tally[row][mode].run++;
            tally[row][mode].passed += passed;
            good = good && passed;
        }
    if (options.worst) printf("%.3g %s\n", worst_ratio, c->name);
    return good;
}

static void report(int cases, int passed)
{
    printf("%-28s %14s %14s %14s\n", "passed of run", mode_name[0], mode_name[1], mode_name[2]);
    for (int row = 0; row < ROWS; row++) {
        printf("%-28s", row_name[row]);
        for (int m = 0; m < MODES; m++) printf("   %5d / %4d", tally[row][m].passed, tally[row][m].run);
        printf("\n");
    }
    printf("%d cases, %d passed in every mode, %d failed\n", cases, passed, cases - passed);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) options.verbose = true;
        else if (strcmp(argv[i], "--worst") == 0) options.worst = true;
        else if (strcmp(argv[i], "--gpu") == 0) options.gpu = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) options.only = argv[++i];
        else options.set = argv[i];
    }
}

int main(int argc, char **argv)
{
    struct case_reader r;
    struct conformance_case c;
    int cases = 0, passed = 0;
    read_options(argc, argv);
    if (options.gpu && !memory_use_gpu()) return printf("conformance: no GPU\n"), 2;
    if (!options.set || !case_open(&r, options.set)) return printf("conformance: no such set\n"), 2;
    while (case_read(&r, &c)) {
        if (options.only && !strstr(c.name, options.only)) continue;
        cases++;
        passed += run_case(&c);
        fflush(stdout);
    }
    report(cases, passed);
    case_close(&r);
    return passed < cases || !cases;
}
