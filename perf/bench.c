/*
 * bench.c -- compiles, checks and times figures, and reports them.
 *
 *     NAME [--quick] [--plan | --check] [--autotune | --max-autotune] [--sustained] [--arch ARCH]
 *          [--out FILE] [PATTERN...]
 *
 * Only figures whose name contains a pattern are measured; they are printed, and stored only with --out.
 * All of them go to perf/results/CARD/NAME.json, as does a choice with --out NAME. --quick takes fewer
 * rounds. --plan prints the plans and needs no GPU; --check, where a program has small shapes for it, checks
 * the CPU device's results and times nothing. --autotune and --max-autotune tune libcoda's, and then time
 * whole runs everywhere; such a case's name begins with tuned/, and it says how long the tile chosen by price
 * takes beside the best.
 *
 * Sides that take turns of a few milliseconds share one clock, which the power of all of them decides.
 * --sustained lets each run alone for a while, half of it untimed, at the clock that its own power leaves;
 * such a case's name begins with sustained/. --arch compiles for another one that the device can run:
 * sm_90 on an H200 has no wgmma, so that its products go by mma.sync.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"
#include "tensor.h"
#include "usage.h"

static const struct way usual[SIDES] = {{"coda", 0, CODA_FOLD_NONE},
                                        {"cublaslt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE}};

enum { MOST_SETS = 64 };
static const double L2_BYTES = 180e6; /* what must pass between two uses of a set */

struct bench {
    struct machine machine;
    struct report report;
    address memory, next, end;
    struct timer timer;
    bool plan, check, sustained;
    const char *arch; /* NULL: the device's */
    unsigned tune;    /* flags of coda_compile */
    const char *out;
    char **pattern;
    int patterns, bad;
};

/* ---- Compile ---- */

enum { PLANS = SIDES + 1 }; /* the last makes inputs of the others */

struct compilation {
    struct figure *f;
    const struct bench *b;
    atomic_int failed;
};

static void compile_side(void *ctx, int64_t i)
{
    struct compilation *c = ctx;
    static const struct way before = {"before", 0, CODA_FOLD_NONE};
    struct figure *f = &c->f[i / PLANS];
    bool first = i % PLANS == SIDES;
    struct side *s = first ? &f->first : &f->side[i % PLANS];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = first ? f->before ? f->before(f) : NULL : f->build(f, (int)(i % PLANS));
    if (!g) return;
    const struct way *way = first ? &before : (f->way ? f->way : usual) + i % PLANS;
    opt.flags = way->flags | (c->b->plan ? CODA_PLAN_ONLY : 0) | c->b->tune;
    if (c->b->check) opt.flags &= ~(unsigned)CODA_CUBLASLT;
    opt.fold = way->fold;
    opt.arch = c->b->arch;
    opt.device = c->b->plan ? CODA_DEVICE_NONE : c->b->check ? CODA_DEVICE_CPU : CODA_DEVICE_GPU;
    s->name = way->name;
    if (coda_compile(&s->plan, g, &opt) != CODA_OK) {
        fprintf(stderr, "perf: %s, %s: %s\n", f->name, s->name, coda_error());
        atomic_fetch_add(&c->failed, 1);
    }
    coda_graph_free(g);
}

static int compile_all(const struct bench *b, struct figure *f, int n)
{
    struct compilation c = {.f = f, .b = b};
    in_parallel((int64_t)n * PLANS, compile_side, &c);
    for (int i = 0; i < n; i++)
        while (f[i].sides < SIDES && f[i].side[f[i].sides].plan) f[i].sides++;
    return c.failed;
}

/* ---- Load: tensors with equal names are one, outputs are each side's own ---- */

/* Without the number of a copy. */
static size_t name_length(const struct figure *f, const char *name)
{
    return f->before ? strlen(name) : strcspn(name, ".");
}

static int add_tensor(struct figure *f, const coda_arg_info *a, int copy)
{
    size_t length = name_length(f, a->name);
    for (int i = 0; i < f->tensors && a->kind != CODA_ARG_OUTPUT; i++)
        if (strlen(f->tensor[i].name) == length && !strncmp(f->tensor[i].name, a->name, length)) {
            if (f->tensor[i].copies <= copy) f->tensor[i].copies = copy + 1;
            return i;
        }
    must(f->tensors == TENSORS, "a place for a tensor");
    struct tensor *t = &f->tensor[f->tensors];
    tensor_make(t, a, f->tensors, f->n);
    t->name[name_length(f, t->name)] = 0;
    t->copies = copy + 1;
    for (int64_t i = 0; f->number && t->values && i < t->period; i++)
        if (!f->number(f, t->name, i, &t->values[i])) break;
    if (t->values && t->dtype == CODA_U8 && f->bytes) {
        int64_t period;
        const uint8_t *bytes = f->bytes(f, &period);
        tensor_repeat(t, bytes, period);
    }
    if (t->scalar) element_set(t->dtype, &t->number, 0, t->values[0]);
    return f->tensors++;
}

/* The tensor of that name which sides read; -1: none does. */
static int input_of(const struct figure *f, const char *name)
{
    for (int i = 0; i < f->tensors; i++)
        if (f->tensor[i].values && !strcmp(f->tensor[i].name, name)) return i;
    return -1;
}

static address take(struct bench *b, size_t bytes)
{
    address at = b->next;
    b->next += (bytes + 255) / 256 * 256;
    must(b->next > b->end, "room in the GPU's memory");
    return at;
}

static void describe_side(struct figure *f, struct side *side)
{
    side->args = coda_plan_args(side->plan);
    for (int i = 0; i < side->args; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_plan_arg(side->plan, i, &a);
        const char *dot = f->before ? NULL : strchr(a.name, '.');
        side->copy[i] = dot ? atoi(dot + 1) : 0;
        side->arg[i] = side == &f->first ? input_of(f, a.name) : -1;
        if (side->arg[i] < 0) side->arg[i] = add_tensor(f, &a, side->copy[i]);
    }
}

static void describe(struct figure *f)
{
    for (int s = 0; s < f->sides; s++) describe_side(f, &f->side[s]);
    if (f->before) describe_side(f, &f->first);
}

/* Seconds that the work must take, from what such a GPU does at best. */
static double floor_time(const struct figure *f, double bytes)
{
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(f->side[0].plan, &stats);
    return fmax(stats.flops / 800e12, bytes / 4.5e12) + 2e-6;
}

/* Bytes of a run of the side that touches least. */
static double bytes_of_run(const struct figure *f)
{
    double least = INFINITY;
    for (int s = 0; s < f->sides; s++) {
        double bytes = 0;
        for (int i = 0; i < f->side[s].args; i++) bytes += (double)f->tensor[f->side[s].arg[i]].step;
        least = fmin(least, bytes);
    }
    return least;
}

/* Every set has its own folded weights. */
static void fold(const struct bench *b, const struct figure *f, const struct side *s)
{
    void *args[ARGS];
    for (int set = 0; set < f->sets && side_prepared_step(s); set++) {
        void *prepared = (void *)(s->prepared + (size_t)set * side_prepared_step(s));
        side_args(f, s, set, args);
        if (coda_prepare(s->plan, args, prepared, (void *)s->work, b->machine.stream)) side_fail(f, s);
    }
}

static void load(struct bench *b, struct figure *f)
{
    f->machine = &b->machine;
    b->next = b->memory;
    describe(f);
    double bytes = bytes_of_run(f);
    f->sets = clamp(ceil(L2_BYTES / bytes), 1, MOST_SETS);
    f->runs = f->sets * clamp(400e-6 / floor_time(f, bytes) / f->sets, 1, MOST_RUNS / f->sets);
    for (int i = 0; i < f->tensors; i++) {
        struct tensor *t = &f->tensor[i];
        int copies = t->copies * f->sets;
        t->at = take(b, t->step * (size_t)copies);
        if (t->values) tensor_fill(t, &b->machine, copies);
        else must(b->machine.set(t->at, 0xff, t->step * (size_t)copies), "cuMemsetD8");
    }
    must(b->machine.stream_wait(NULL), "filling the buffers");
    for (int s = 0; s < f->sides; s++) {
        f->side[s].work = take(b, coda_plan_workspace(f->side[s].plan));
        f->side[s].prepared = take(b, side_prepared_step(&f->side[s]) * (size_t)f->sets);
        fold(b, f, &f->side[s]);
    }
    if (!f->before) return;
    f->first.work = take(b, coda_plan_workspace(f->first.plan));
    f->first.prepared = take(b, side_prepared_step(&f->first) * (size_t)f->sets);
    fold(b, f, &f->first);
    for (int set = 0; set < f->sets; set++) side_run(f, &f->first, set);
}

static void unload(struct bench *b, struct figure *f)
{
    for (int i = 0; i < f->tensors; i++) free(f->tensor[i].values);
    for (int s = 0; s < f->sides; s++) {
        if (f->side[s].replay) must(b->machine.replay_free(f->side[s].replay), "cuGraphExecDestroy");
        coda_plan_free(f->side[s].plan);
    }
    coda_plan_free(f->first.plan);
}

/* ---- Check ---- */

bool figure_has(const struct figure *f, const char *name)
{
    for (int i = 0; i < f->tensors; i++)
        if (!strcmp(f->tensor[i].name, name)) return true;
    return false;
}

struct tensor *figure_tensor(struct figure *f, const char *name)
{
    for (int i = 0; i < f->tensors; i++)
        if (!strcmp(f->tensor[i].name, name)) return &f->tensor[i];
    fprintf(stderr, "perf: %s has no tensor %s\n", f->name, name);
    exit(1);
}

static const struct tensor *output_of(const struct figure *f, int s, const char *name)
{
    for (int i = 0; i < f->side[s].args; i++)
        if (!strcmp(f->tensor[f->side[s].arg[i]].name, name)) return &f->tensor[f->side[s].arg[i]];
    fprintf(stderr, "perf: %s, %s has no output %s\n", f->name, f->side[s].name, name);
    exit(1);
}

int64_t figure_columns(const struct figure *f, int s, const char *output)
{
    return output_of(f, s, output)->columns;
}

void figure_row(const struct figure *f, int s, const char *output, int64_t row, double *out)
{
    const struct tensor *t = output_of(f, s, output);
    size_t bytes = (size_t)t->columns * dtype_bytes(t->dtype);
    void *host = malloc(bytes);
    must(!host || f->machine->download(host, t->at + (size_t)row * bytes, bytes), "cuMemcpyDtoH");
    for (int64_t i = 0; i < t->columns; i++) out[i] = element_get(t->dtype, host, i);
    free(host);
}

/* 16-bit results may be off by half a unit in the last place, and their sums by as much of the row's
 * root mean square; fp32 statistics come from fp32 sums. */
void figure_judge(struct figure *f, const char *output, int64_t row, const double *want)
{
    const struct tensor *t = output_of(f, 0, output);
    double *got = malloc(sizeof *got * (size_t)t->columns);
    must(!got, "malloc");
    figure_row(f, 0, output, row, got);
    double unit = (f->tuned ? 4 : 1) * (t->dtype == CODA_F32 ? 0x1p-16 : 0x1p-8);
    double difference = 0, norm = 1e-300;
    for (int64_t i = 0; i < t->columns; i++) norm += want[i] * want[i];
    double rms = sqrt(norm / (double)t->columns);
    for (int64_t i = 0; i < t->columns; i++) {
        double e = fabs(got[i] - want[i]);
        double excess = e / (unit * (fabs(want[i]) + rms));
        difference += e * e;
        f->excess = excess <= f->excess ? f->excess : excess; /* NaN stays */
    }
    double error = sqrt(difference / norm);
    f->error = error <= f->error ? f->error : error;
    free(got);
}

/* The first row, the last, and others between. */
static int64_t sample(const struct figure *f, int i, int rows)
{
    return rows < 2 ? 0 : i == rows - 1 ? f->m - 1 : i * ((f->m - 1) / (rows - 1)) + (i > 0 && f->m > 64);
}

static void check_rows(struct figure *f)
{
    const struct tensor *x = figure_tensor(f, "x"), *w = figure_tensor(f, "w");
    int rows = f->m < ROWS ? (int)f->m : ROWS;
    double *in = malloc(sizeof *in * (size_t)(rows * x->columns));
    double *out = malloc(sizeof *out * (size_t)(rows * f->n));
    must(!in || !out, "malloc");
    for (int i = 0; i < rows; i++) tensor_row(x, sample(f, i, rows), in + i * x->columns);
    product(w, rows, in, out);
    for (int i = 0; i < rows; i++) f->expect(f, sample(f, i, rows), out + i * f->n);
    free(in);
    free(out);
}

static void check(const struct bench *b, struct figure *f)
{
    for (int s = 0; s < (f->check ? f->sides : 1); s++) side_run(f, &f->side[s], 0);
    must(b->machine.stream_wait(b->machine.stream), "a run");
    if (f->check) f->check(f);
    else check_rows(f);
}

/* ---- The program ---- */

static bool chosen(const struct bench *b, const struct figure *f)
{
    for (int i = 0; i < b->patterns; i++)
        if (strstr(f->name, b->pattern[i])) return true;
    return b->patterns == 0;
}

static int choose(const struct bench *b, struct figure *f, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (chosen(b, &f[i])) f[kept++] = f[i];
    return kept;
}

static int print_plans(struct figure *f, int n)
{
    for (int i = 0; i < n; i++)
        for (int s = 0; s < f[i].sides; s++) {
            char *text = plan_text(f[i].side[s].plan, CODA_TEXT_PLAN);
            printf("---- %s, %s\n%s", f[i].name, f[i].side[s].name, text ? text : "");
            free(text);
            coda_plan_free(f[i].side[s].plan);
        }
    return 0;
}

/* Figures by their names, of which a PATTERN is a part. */
static int print_usage(const char *name, const struct figure *f, int n)
{
    printf("usage: %s [OPTION]... [PATTERN]...\n"
           "Measures figures on the GPU beside a peer; with PATTERNs those whose names have one of them, "
           "which are\n"
           "not stored.\n"
           "  --quick              fewer rounds\n"
           "  --plan               prints the plans instead; needs no GPU\n"
           "  --check              checks the CPU device's results of small shapes, where there are some\n"
           "  --autotune, --max-autotune\n"
           "                       times tiles first\n"
           "  --sustained          under sustained load\n"
           "  --arch ARCH          of the plans, as sm_90a\n"
           "  --out FILE           instead of perf/results/CARD/%s.json; a word without dots names a file "
           "there\n"
           "Figures:",
           name, name);
    for (int i = 0; i < n; i++) printf(" %s", f[i].name);
    puts("");
    return fflush(stdout) ? perror("standard output"), 1 : 0;
}

/* 0, or the exit status of a usage error. */
static int parse(struct bench *b, const char *name, int argc, char **argv)
{
    b->pattern = argv; /* in place: there are never more patterns than arguments read */
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--quick")) b->timer.quick = true;
        else if (!strcmp(argv[i], "--plan")) b->plan = true;
        else if (!strcmp(argv[i], "--check")) b->check = true;
        else if (!strcmp(argv[i], "--autotune")) b->tune = CODA_AUTOTUNE;
        else if (!strcmp(argv[i], "--max-autotune")) b->tune = CODA_MAX_AUTOTUNE;
        else if (!strcmp(argv[i], "--sustained")) b->sustained = true;
        else if (!strcmp(argv[i], "--arch") && i + 1 < argc) b->arch = argv[++i];
        else if (!strcmp(argv[i], "--out") && i + 1 < argc) b->out = argv[++i];
        else if (argv[i][0] == '-')
            return fprintf(stderr, "%s: there is no option %s; see --help\n", name, argv[i]), 2;
        else b->pattern[b->patterns++] = argv[i];
    return 0;
}

static void open_machine(struct bench *b)
{
    size_t memory = (size_t)(b->check ? 4 : 40) << 30;
    if (b->check) machine_of_host(&b->machine);
    else machine_open(&b->machine);
    must(b->machine.alloc(&b->memory, memory), b->check ? "memory of 4 GiB" : "cuMemAlloc of 40 GiB");
    b->end = b->memory + memory;
    if (b->check) return;
    timer_open(&b->timer, &b->machine);
    if (b->sustained && !power_open(&b->machine))
        fputs("perf: no NVML: power and clocks are not known\n", stderr);
}

static void measure(struct bench *b, struct figure *f)
{
    time_in_turns(&b->timer, f);
    if (b->sustained) time_sustained(&b->timer, f);
    b->bad += !report_figure(&b->report, f, b->sustained);
}

static bool say_checked(const struct figure *f)
{
    printf("%-28s %8.1e %5.2f %s\n", f->name, f->error, f->excess, f->excess <= 1 ? "good" : "WRONG");
    return f->excess <= 1;
}

int bench_main(int argc, char **argv, const char *name, struct figure *f, int n)
{
    static struct bench b;
    for (int i = 1; i < argc; i++)
        if (usage_word(argv[i])) return print_usage(name, f, n);
    int wrong = parse(&b, name, argc, argv);
    if (wrong) return wrong;
    n = choose(&b, f, n);
    if (n == 0) return 0;
    if (b.check && !f->small) return fprintf(stderr, "%s: it has no small shapes to check\n", name), 2;
    for (int i = 0; i < n; i++) {
        f[i].tuned = b.tune;
        f[i].first_kernel = f[i].first_kernel && !b.tune; /* which may be the product alone */
    }
    if (!b.plan) open_machine(&b);
    if (compile_all(&b, f, n)) return 1;
    if (b.plan) return print_plans(f, n);
    report_begin(&b.report, name, b.out ? b.out : b.patterns || b.check ? "/dev/null" : NULL);
    printf("%-28s %9s %7s  %8s excess      time of each side / coda\n", name, "coda ms", "TFLOP/s", "error");
    for (int i = 0; i < n; i++) {
        load(&b, &f[i]);
        check(&b, &f[i]);
        if (b.check) b.bad += !say_checked(&f[i]);
        else measure(&b, &f[i]);
        unload(&b, &f[i]);
    }
    return report_end(&b.report) || b.bad;
}
