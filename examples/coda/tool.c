/*
 * tool.c -- coda: looks into a graph, compiles it and runs it, from its text.
 *
 * Errors are one line, "coda: ...". Exit status: 0 good, 1 failed, 2 wrong usage.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tool.h"

enum { EXPLAIN = 1, COMPILE = 2, RUN = 4, BENCH = 8, ALL = EXPLAIN | COMPILE | RUN | BENCH };

/* ---- Files ---- */

enum { TEXT_MAX = 1 << 28 }; /* bytes of a graph or a record; a device may go on for ever */

/* NULL if memory ran out, or with *large if there is too much. */
static char *read_all(FILE *f, bool *large)
{
    struct stat st;
    size_t size = 0, room = 4096;
    *large = !fstat(fileno(f), &st) && S_ISREG(st.st_mode) && st.st_size > TEXT_MAX;
    char *text = *large ? NULL : malloc(room);
    while (text) {
        size += fread(text + size, 1, room - size - 1, f);
        if (size < room - 1) break;
        *large = room >= TEXT_MAX;
        char *more = *large ? NULL : realloc(text, room *= 2);
        if (!more) free(text);
        text = more;
    }
    if (text) text[size] = 0;
    return text;
}

char *text_read(const char *path)
{
    bool standard = strcmp(path, "-") == 0, large = false;
    FILE *f = standard ? stdin : fopen(path, "re");
    if (!f) return complain("%s: %s", path, strerror(errno)), NULL;
    char *text = read_all(f, &large);
    bool bad = ferror(f);
    if (!standard) fclose(f);
    if (text && !bad) return text;
    if (large) complain("%s: has more than %d MB", path, TEXT_MAX >> 20);
    else complain("%s: cannot be read", path);
    free(text);
    return NULL;
}

bool set_number(const char *v, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(v, &end, 10);
    return *v >= '0' && *v <= '9' && !*end && !errno && *out >= least && *out <= most;
}

/* ---- Options ---- */

static bool set_fold(struct options *o, char *v)
{
    static const char *const name[] = {"none", "copy", "in-place"};
    for (int i = 0; i < 3; i++)
        if (strcmp(v, name[i]) == 0) return o->compile.fold = (coda_fold)i, true;
    return false;
}

static bool set_device(struct options *o, char *v)
{
    o->compile.device = strcmp(v, "gpu") == 0 ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    return strcmp(v, "gpu") == 0 || strcmp(v, "cpu") == 0;
}

static bool set_tolerance(struct options *o, char *v)
{
    char *end;
    o->tolerance = plain_number(v, &end);
    return *v && !*end && o->tolerance > 0;
}

static bool set_seed(struct options *o, char *v) { return set_number(v, 0, UINT64_MAX, &o->seed); }

static bool set_ints(struct options *o, char *v)
{
    uint64_t n = 0;
    bool good = set_number(v, 1, 1 << 24, &n);
    o->ints = (int)n;
    return good;
}

/* Splits NAME=FILE, or NAME=N, in place. */
static bool bind(struct binding *list, int *n, char *v)
{
    char *equals = strchr(v, '=');
    if (!equals || equals == v || !equals[1] || *n == MOST_FILES) return false;
    *equals = 0;
    list[(*n)++] = (struct binding){v, equals + 1};
    return true;
}

static bool set_arch(struct options *o, char *v) { return o->compile.arch = v, *v; }
static bool set_cache(struct options *o, char *v) { return o->cache_dir = v, *v; }
static bool set_no_cache(struct options *o, char *v) { return o->compile.flags |= CODA_NO_CACHE, !v; }
static bool set_no_fusion(struct options *o, char *v) { return o->compile.flags |= CODA_NO_FUSION, !v; }
static bool set_fast_fp16(struct options *o, char *v) { return o->compile.flags |= CODA_FAST_FP16, !v; }
static bool set_no_deferral(struct options *o, char *v) { return o->compile.flags |= CODA_NO_DEFERRAL, !v; }
static bool set_overlap(struct options *o, char *v) { return o->compile.flags |= CODA_OVERLAP, !v; }
static bool set_invariant(struct options *o, char *v) { return o->compile.flags |= CODA_BATCH_INVARIANT, !v; }
static bool set_autotune(struct options *o, char *v)
{
    o->compile.flags |= CODA_AUTOTUNE;
    o->compile.device = CODA_DEVICE_GPU;
    return !v;
}
static bool set_max_autotune(struct options *o, char *v)
{
    o->compile.flags |= CODA_MAX_AUTOTUNE;
    return set_autotune(o, v);
}
static bool set_rounds(struct options *o, char *v)
{
    uint64_t n = 0;
    bool good = set_number(v, 1, 10000, &n);
    o->rounds = (int)n;
    return good;
}
static bool set_html(struct options *o, char *v) { return o->html = v, *v; }
static bool set_json(struct options *o, char *v) { return o->json = true, !v; }
static bool set_dot(struct options *o, char *v) { return o->dot = true, !v; }
static bool set_check(struct options *o, char *v) { return o->check = true, !v; }
static bool set_dim(struct options *o, char *v) { return bind(o->dim, &o->dims, v); }
static bool set_input(struct options *o, char *v) { return bind(o->input, &o->inputs, v); }
static bool set_scalar(struct options *o, char *v) { return bind(o->scalar, &o->scalars, v); }
static bool set_output(struct options *o, char *v) { return bind(o->output, &o->outputs, v); }

static const struct option {
    const char *name, *argument; /* argument: NULL, it takes none */
    unsigned commands;
    bool (*set)(struct options *, char *);
    const char *help;
} option[] = {
    {"--dim", "NAME=N", ALL, set_dim, "the value of a symbol; without any: of each its largest (not run)"},
    {"--dim", "NAME=LEAST..MOST", EXPLAIN | COMPILE, set_dim, "all these values (or 'LEAST..MOST step N')"},
    {"--fold", "none|copy|in-place", ALL, set_fold, "constants into the weights (none)"},
    {"--no-fusion", NULL, ALL, set_no_fusion, "one kernel for each operation"},
    {"--fast-fp16", NULL, ALL, set_fast_fp16, "values of fp16 may overflow on the way"},
    {"--no-deferral", NULL, ALL, set_no_deferral, "products multiply what norms have made, rounded"},
    {"--invariant", NULL, ALL, set_invariant, "a row's bits depend on no other row, nor on their number"},
    {"--overlap", NULL, ALL, set_overlap, "exchanges between ranks run beside what does not wait for them"},
    {"--arch", "sm_90a", EXPLAIN | COMPILE, set_arch, "kernels for this architecture"},
    {"--dot", NULL, EXPLAIN, set_dot, "the plan as a Graphviz picture, nothing else"},
    {"--html", "FILE.html", EXPLAIN, set_html,
     "writes a page with pictures, which loads nothing; -: to standard output"},
    {"--autotune", NULL, ALL, set_autotune, "times tilings and cuBLASLt on the GPU, and keeps what it finds"},
    {"--max-autotune", NULL, ALL, set_max_autotune,
     "the same with all tilings that might win, and for longer"},
    {"--cache-dir", "DIR", ALL, set_cache, "keep kernels, and what tuning finds, here"},
    {"--no-cache", NULL, ALL, set_no_cache, "keep none"},
    {"--device", "cpu|gpu", RUN | BENCH, set_device, "where (cpu)"},
    {"--device", "cpu|gpu", EXPLAIN, set_device, "gpu shows what tuning found on it"},
    {"--check", NULL, RUN, set_check, "compare with an evaluation in fp64; exit 1 if it differs"},
    {"--tolerance", "X", RUN, set_tolerance, "relative error allowed (bf16 1e-2, f16 2e-3, f32 1e-5)"},
    {"--rounds", "N", BENCH, set_rounds, "timed runs, 1 to 10000 (as many as take half a second, 5 to 100)"},
    {"--json", NULL, BENCH, set_json, "as JSON, which examples/coda/bench.schema.json describes"},
    {"--seed", "N", RUN | BENCH, set_seed, "of the random inputs (1)"},
    {"--ints", "N", RUN | BENCH, set_ints,
     "random int32 inputs are in 0..N-1 (8), slots of an append distinct"},
    {"--input", "NAME=FILE.npy", RUN, set_input, "values of a leaf, rounded to its type"},
    {"--scalar", "NAME=VALUE", RUN, set_scalar, "the value of a scalar"},
    {"--output", "NAME=FILE.npy", RUN, set_output, "writes an output as float32"},
};

static const struct option *find_option(const char *name, unsigned command)
{
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (strcmp(option[i].name, name) == 0 && option[i].commands & command) return &option[i];
    return NULL;
}

static int refuse_option(const char *name, const char *command, unsigned bit)
{
    struct nearest n = {.word = name};
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (option[i].commands & bit) nearest_try(&n, option[i].name);
    return misuse("%s has no option %s%s", command, name, nearest_text(&n));
}

/* 0, or the exit status of a usage error. */
static int parse(struct options *o, const char *command, unsigned bit, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            if (o->file) return misuse("%s takes one FILE, not also \"%s\"", command, argv[i]);
            o->file = argv[i];
            continue;
        }
        const struct option *p = find_option(argv[i], bit);
        if (!p) return refuse_option(argv[i], command, bit);
        if (p->argument && i + 1 == argc) return misuse("%s needs a value", argv[i]);
        char *value = p->argument ? argv[++i] : NULL;
        if (!p->set(o, value)) return misuse("%s cannot be \"%s\": it is %s", p->name, value, p->argument);
    }
    return o->file ? 0 : misuse("%s needs a FILE", command);
}

static const struct command {
    const char *name, *operands, *help;
    unsigned bit;
    int (*run)(const struct options *); /* NULL: has a way of its own */
} commands[] = {
    {"info", "", "library, driver, device, NVRTC, cuBLASLt, cache", 0, NULL},
    {"explain", "FILE [options]", "what the rewrites do to a graph, and its plan", EXPLAIN, explain},
    {"compile", "FILE [options]", "compiles its kernels into the cache; needs no GPU", COMPILE, compile},
    {"run", "FILE [options]", "runs it on random or given inputs", RUN, run},
    {"bench", "FILE [options]", "times each launch beside what a copy and a product take", BENCH, bench},
    {"ops", "[NAME] [--json]", "operations, maps, reductions and functions: formula, operands", 0, NULL},
    {"cache", "COMMAND [options]", "the cache itself: see coda cache --help", 0, NULL},
};

static int refuse_command(const char *name)
{
    struct nearest n = {.word = name};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) nearest_try(&n, commands[i].name);
    return misuse("there is no command \"%s\"%s", name, nearest_text(&n));
}

/* ---- Help ---- */

static void print_command(FILE *to, const char *before, const struct command *c)
{
    char line[64];
    snprintf(line, sizeof line, "coda %s %s", c->name, c->operands);
    fprintf(to, "%s %-31s %s\n", before, line, c->help);
}

/* For which commands an option is, where not for all of the list. */
static void print_option(FILE *to, const struct option *o, unsigned list)
{
    char line[64];
    snprintf(line, sizeof line, "%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    fprintf(to, "  %-27s ", line);
    const char *comma = "";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (!(commands[i].bit & o->commands & list) || !(list & ~o->commands)) continue;
        fprintf(to, "%s%s", comma, commands[i].name);
        comma = ", ";
    }
    fprintf(to, "%s%s\n", *comma ? ": " : "", o->help);
}

static void print_options(FILE *to, unsigned list)
{
    fputs("\nFILE holds a graph in the text form (- is standard input).\n\n", to);
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (option[i].commands & list) print_option(to, &option[i], list);
}

static void print_usage(FILE *to)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        print_command(to, i ? "      " : "usage:", &commands[i]);
    fputs("       coda COMMAND --help | --version | --help\n", to);
    fputs("       coda --color auto|always|never COMMAND ...   colours; auto: on a terminal, unless NO_COLOR "
          "is set\n",
          to);
    print_options(to, ALL);
}

static int print_help(const struct command *c)
{
    print_command(output, "usage:", c);
    if (c->bit) print_options(output, c->bit);
    return 0;
}

/* A command, with the cache that --cache-dir asks for. */
static int perform(struct options *o, int (*command)(const struct options *))
{
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    where.dir = o->cache_dir;
    if (where.dir && coda_cache_open(&o->compile.cache, &where) != CODA_OK)
        return complain("%s", coda_error());
    int status = command(o);
    coda_cache_free(o->compile.cache);
    return status;
}

static bool is_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help");
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

/* Takes --color WHEN, or --color=WHEN, out of the words, wherever it stands; 0, or the exit status of a usage
 * error. */
static int take_color(int *argc, char **argv)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        bool joined = strncmp(argv[i], "--color=", 8) == 0;
        if (!joined && strcmp(argv[i], "--color") != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        if (!joined && i + 1 == *argc) return misuse("--color needs a value");
        const char *word = joined ? argv[i] + 8 : argv[++i];
        if (!color_when(word)) return misuse("--color cannot be \"%s\"", word);
    }
    argv[ *argc = kept] = NULL;
    return 0;
}

static int dispatch(int argc, char **argv)
{
    struct options o = {.compile = CODA_COMPILE_OPTIONS_INIT, .seed = 1, .ints = 8};
    o.compile.device = CODA_DEVICE_CPU;
    int wrong = argc > 1 ? take_color(&argc, argv) : 0;
    if (wrong) return wrong;
    const char *name = argc > 1 ? argv[1] : "";
    const struct command *c = find_command(name);
    if (is_help(name)) return print_usage(output), 0;
    if (!strcmp(name, "--version")) return fprintf(output, "coda %s\n", coda_version()), 0;
    if (!strcmp(name, "cache")) return cache(argc - 2, argv + 2);
    if (!c && *name) return refuse_command(name);
    if (!c) return print_usage(stderr), 2;
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return print_help(c);
    if (!strcmp(name, "ops")) return ops(argc - 2, argv + 2);
    if (!c->run) return argc > 2 ? misuse("info takes nothing, also not %s", argv[2]) : info(&o);
    wrong = parse(&o, name, c->bit, argc - 2, argv + 2);
    return wrong ? wrong : perform(&o, c->run);
}

/* A file that the environment asks for and that gets nothing. */
static void say_unwritten(void *context, const coda_event *e)
{
    (void)context;
    fprintf(stderr, "coda: %s: %s\n", e->name, e->text);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "worker")) return coda_compile_worker(0, 1); /* for CODA_CACHE_ISOLATE */
    int wrong = output_open();
    coda_on_event(say_unwritten, NULL, CODA_EVENT_UNWRITTEN);
    return wrong ? wrong : output_close(dispatch(argc, argv));
}
