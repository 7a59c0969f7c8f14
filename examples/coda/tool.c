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

enum { EXPLAIN = 1, COMPILE = 2, RUN = 4, ALL = EXPLAIN | COMPILE | RUN };

static const char usage_text[] =
    "usage: coda info                       library, driver, device, NVRTC, cuBLASLt, cache\n"
    "       coda explain FILE [options]     what the rewrites do to a graph, and its plan\n"
    "       coda compile FILE [options]     compiles its kernels into the cache; needs no GPU\n"
    "       coda run FILE [options]         runs it on random or given inputs\n"
    "       coda cache COMMAND [options]    the cache itself: see coda cache --help\n"
    "       coda --version | --help\n"
    "\n"
    "FILE holds a graph in the text form (- is standard input).\n"
    "\n"
    "  --dim NAME=N                the value of a symbol; without any: of each its largest (not run)\n"
    "  --dim NAME=LEAST..MOST      explain, compile: all these values (or 'LEAST..MOST step N')\n"
    "  --fold none|copy|in-place   constants into the weights (none)\n"
    "  --no-fusion                 one kernel for each operation\n"
    "  --fast-fp16                 values of fp16 may overflow on the way\n"
    "  --invariant                 a row's bits depend on no other row, nor on their number\n"
    "  --arch sm_90a               explain, compile: kernels for this architecture\n"
    "  --dot                       explain: the plan as a Graphviz picture, nothing else\n"
    "  --autotune                  times tilings and cuBLASLt on the GPU, and keeps what it finds\n"
    "  --max-autotune              the same with all tilings that might win, and for longer\n"
    "  --cache-dir DIR             keep kernels, and what tuning finds, here\n"
    "  --no-cache                  keep none\n"
    "  --device cpu|gpu            run: where (cpu); explain: gpu shows what tuning found on it\n"
    "  --check                     run: compare with an evaluation in fp64; exit 1 if it differs\n"
    "  --tolerance X               run: relative error allowed (bf16 1e-2, f16 2e-3, f32 1e-5)\n"
    "  --seed N                    run: of the random inputs (1)\n"
    "  --ints N                    run: random int32 inputs are in 0..N-1 (8), slots of an append distinct\n"
    "  --input NAME=FILE.npy       run: values of a leaf, rounded to its type\n"
    "  --scalar NAME=VALUE         run: the value of a scalar\n"
    "  --output NAME=FILE.npy      run: writes an output as float32\n";

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
static bool set_dot(struct options *o, char *v) { return o->dot = true, !v; }
static bool set_check(struct options *o, char *v) { return o->check = true, !v; }
static bool set_dim(struct options *o, char *v) { return bind(o->dim, &o->dims, v); }
static bool set_input(struct options *o, char *v) { return bind(o->input, &o->inputs, v); }
static bool set_scalar(struct options *o, char *v) { return bind(o->scalar, &o->scalars, v); }
static bool set_output(struct options *o, char *v) { return bind(o->output, &o->outputs, v); }

static const struct option {
    const char *name;
    unsigned commands;
    bool value;
    bool (*set)(struct options *, char *);
} option[] = {
    {"--dim", ALL, true, set_dim},
    {"--fold", ALL, true, set_fold},
    {"--no-fusion", ALL, false, set_no_fusion},
    {"--fast-fp16", ALL, false, set_fast_fp16},
    {"--invariant", ALL, false, set_invariant},
    {"--arch", EXPLAIN | COMPILE, true, set_arch},
    {"--dot", EXPLAIN, false, set_dot},
    {"--autotune", ALL, false, set_autotune},
    {"--max-autotune", ALL, false, set_max_autotune},
    {"--cache-dir", ALL, true, set_cache},
    {"--no-cache", ALL, false, set_no_cache},
    {"--device", EXPLAIN | RUN, true, set_device},
    {"--check", RUN, false, set_check},
    {"--tolerance", RUN, true, set_tolerance},
    {"--seed", RUN, true, set_seed},
    {"--ints", RUN, true, set_ints},
    {"--input", RUN, true, set_input},
    {"--scalar", RUN, true, set_scalar},
    {"--output", RUN, true, set_output},
};

static const struct option *find_option(const char *name, unsigned command)
{
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (strcmp(option[i].name, name) == 0 && option[i].commands & command) return &option[i];
    return NULL;
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
        if (!p) return misuse("%s has no option %s", command, argv[i]);
        if (p->value && i + 1 == argc) return misuse("%s needs a value", argv[i]);
        char *value = p->value ? argv[++i] : NULL;
        if (!p->set(o, value)) return misuse("%s cannot be \"%s\"", p->name, value);
    }
    return o->file ? 0 : misuse("%s needs a FILE", command);
}

static const struct command {
    const char *name;
    unsigned bit;
    int (*run)(const struct options *);
} commands[] = {{"explain", EXPLAIN, explain}, {"compile", COMPILE, compile}, {"run", RUN, run}};

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

static int dispatch(int argc, char **argv)
{
    struct options o = {.compile = CODA_COMPILE_OPTIONS_INIT, .seed = 1, .ints = 8};
    o.compile.device = CODA_DEVICE_CPU;
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
        return fputs(usage_text, output), 0;
    if (!strcmp(name, "--version")) return fprintf(output, "coda %s\n", coda_version()), 0;
    if (!strcmp(name, "cache")) return cache(argc - 2, argv + 2);
    if (!strcmp(name, "info")) return argc > 2 ? misuse("info takes nothing") : info(&o);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) != 0) continue;
        int wrong = parse(&o, name, commands[i].bit, argc - 2, argv + 2);
        return wrong ? wrong : perform(&o, commands[i].run);
    }
    if (*name) return misuse("there is no command \"%s\"", name);
    fputs(usage_text, stderr);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "worker")) return coda_compile_worker(0, 1); /* for CODA_CACHE_ISOLATE */
    int wrong = output_open();
    return wrong ? wrong : output_close(dispatch(argc, argv));
}
