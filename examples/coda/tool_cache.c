/*
 * tool_cache.c -- coda cache: looks into the kernel cache, tidies it, and packs it into bundles.
 *
 * Everything is safe beside running processes: entries are published and removed as whole files, and who
 * misses one compiles it again.
 */
#include "tool_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LIST = 1,
    STAT = 2,
    VERIFY = 4,
    PRUNE = 8,
    CLEAR = 16,
    EXPLAIN = 32,
    EXPORT = 64,
    IMPORT = 128,
    ALL = 255
};

/* ---- Values of options ---- */

/* A number and one letter of `units` at most, which stands for the factor at its place. */
static bool set_scaled(int64_t *out, const char *v, const char *units, const int64_t *factor)
{
    char *end;
    errno = 0;
    long long n = strtoll(v, &end, 10);
    if (*v < '0' || *v > '9' || errno) return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    int64_t f = unit ? factor[unit - units] : 1;
    if ((*end && (!unit || end[1])) || n > INT64_MAX / f) return false;
    *out = n * f;
    return true;
}

/* Down to nothing, or unused for no time at all, is everything. */
static bool set_max_size(struct request *r, const char *v)
{
    bool good = set_scaled(&r->prune.max_bytes, v, "KMG", (int64_t[]){1 << 10, 1 << 20, 1 << 30});
    r->prune.clear |= good && !r->prune.max_bytes;
    return good;
}

static bool set_older(struct request *r, const char *v)
{
    bool good = set_scaled(&r->prune.older_than_s, v, "hdw", (int64_t[]){3600, 86400, 604800});
    r->prune.clear |= good && !r->prune.older_than_s;
    return good;
}

static bool set_graph(struct request *r, const char *v)
{
    if (!*v || r->graphs == MOST_FILES) return false;
    return r->graph[r->graphs++] = v, true;
}

/* The name of something in C. */
static bool set_array(struct request *r, const char *v)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    r->export.array = v;
    return *v && !v[strspn(v, letters)] && (*v < '0' || *v > '9');
}

static bool set_dir(struct request *r, const char *v) { return r->cache.dir = v, *v; }
static bool set_json(struct request *r, const char *v) { return r->json = true, !v; }
static bool set_remove(struct request *r, const char *v) { return r->remove = true, !v; }
static bool set_damaged(struct request *r, const char *v) { return r->prune.faulty = 1, !v; }
static bool set_dry(struct request *r, const char *v) { return r->prune.dry_run = 1, !v; }
static bool set_keys(struct request *r, const char *v) { return r->keys = v, *v; }
static bool set_arch(struct request *r, const char *v) { return r->export.arch = v, *v; }

static const struct cache_option {
    const char *name, *argument; /* argument: NULL, it takes none */
    unsigned commands;
    bool (*set)(struct request *, const char *);
    const char *help;
} option[] = {
    {"--cache-dir", "DIR", ALL, set_dir, "this directory, instead of the default one"},
    {"--json", NULL, ALL & ~(EXPORT | IMPORT), set_json,
     "one JSON value instead of a table (not for export, import)"},
    {"--remove", NULL, VERIFY, set_remove, "remove damaged entries"},
    {"--max-size", "N[K|M|G]", PRUNE, set_max_size, "down to so many bytes, the least recently used first"},
    {"--older-than", "N[h|d|w]", PRUNE, set_older, "what was not used for so long"},
    {"--damaged", NULL, PRUNE, set_damaged, "what does not pass the check"},
    {"--dry-run", NULL, PRUNE | CLEAR, set_dry, "say what would be removed"},
    {"--keys", "FILE", EXPORT, set_keys, "only what the lines of a record name (- is standard input)"},
    {"--arch", "ARCH[,ARCH...]", EXPORT, set_arch,
     "only kernels for these; of --graph: kernels for these (sm_90a)"},
    {"--graph", "FILE", EXPORT, set_graph, "the kernels of this graph, compiled if need be; may be repeated"},
    {"--c-array", "NAME", EXPORT, set_array, "write C source that defines an array of this name"},
};

/* ---- prune, clear ---- */

static void print_removed(const struct request *r, const coda_cache_pruned *done)
{
    char removed[32], kept[32];
    print_bytes(removed, done->removed_bytes);
    print_bytes(kept, done->kept_bytes);
    fprintf(output, "%s %" PRId64 " entries, %s; %" PRId64 " stay, %s\n",
            r->prune.dry_run ? "would remove" : "removed", done->removed, removed, done->kept, kept);
}

static void print_removed_json(const struct request *r, const coda_cache_pruned *done)
{
    fprintf(output, "{\"dry_run\": %s, ", r->prune.dry_run ? "true" : "false");
    fprintf(output, "\"removed\": %" PRId64 ", \"removed_bytes\": %" PRId64 ", ", done->removed,
            done->removed_bytes);
    fprintf(output, "\"kept\": %" PRId64 ", \"kept_bytes\": %" PRId64 "}\n", done->kept, done->kept_bytes);
}

static int remove_entries(const struct request *r)
{
    coda_cache_pruned done = CODA_CACHE_PRUNED_INIT;
    progress_begin(&working, "looking at entries");
    coda_status status = coda_cache_prune(r->c, &r->prune, &done);
    progress_end(&working);
    if (status) return complain("%s", coda_error());
    (r->json ? print_removed_json : print_removed)(r, &done);
    return 0;
}

static int clear(const struct request *r)
{
    struct request all = *r;
    all.prune.clear = 1;
    return remove_entries(&all);
}

/* ---- export, import ---- */

struct plans {
    coda_plan *plan[MOST_FILES];
    int count;
};

/* 0, or 1 after a complaint. */
static int compile_graph(struct plans *to, const struct request *r, const char *path, const char *arch)
{
    struct options o = {.file = path, .compile = CODA_COMPILE_OPTIONS_INIT};
    int bad = 0;
    if (to->count == MOST_FILES) return complain("export makes at most %d plans", MOST_FILES);
    coda_graph *g = graph_open(&o);
    o.compile.device = CODA_DEVICE_NONE;
    o.compile.policy = CODA_POLICY_BACKGROUND; /* of a graph with symbols: what any policy wants */
    o.compile.arch = arch;
    o.compile.cache = r->c;
    if (g && compile_shown(&to->plan[to->count], g, &o.compile, path))
        bad = complain("%s: %s", path, coda_error());
    else if (g) to->count++;
    coda_graph_free(g);
    return bad || !g;
}

/* Every graph for every architecture. */
static int compile_graphs(struct plans *to, const struct request *r)
{
    char *archs = strdup(r->export.arch ? r->export.arch : "sm_90a"), *rest = archs;
    int bad = archs ? 0 : complain("out of memory for architectures");
    for (char *arch; !bad && (arch = strsep(&rest, ","));)
        for (int i = 0; !bad && i < r->graphs; i++) bad = compile_graph(to, r, r->graph[i], arch);
    free(archs);
    return bad;
}

/* Is it what we print to? */
static bool is_output(const char *path)
{
    struct stat a, b;
    return !stat(path, &a) && !fstat(1, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int write_bundle(const struct request *r, const coda_export_options *opt)
{
    coda_bundle_report done = CODA_BUNDLE_REPORT_INIT;
    char bytes[32];
    progress_begin(&working, "writing %s", r->place[0]);
    if (r->graphs) progress_kernels(&working, r->c, 0);
    coda_status status = coda_cache_export(r->c, r->place[0], opt, &done);
    progress_end(&working);
    if (status) return complain("%s", coda_error());
    print_bytes(bytes, done.bytes);
    fprintf(is_output(r->place[0]) ? stderr : output, "%" PRId64 " entries, %s\n", done.entries, bytes);
    if (done.missing) return complain("%" PRId64 " keys of the record are not in the bundle", done.missing);
    if (done.damaged) return complain("%" PRId64 " damaged entries are not in the bundle", done.damaged);
    return 0;
}

static int export(const struct request *r)
{
    struct plans plans = {{NULL}, 0};
    coda_export_options opt = r->export;
    char *keys = NULL;
    int bad = r->keys && !(keys = text_read(r->keys));
    if (!bad) bad = compile_graphs(&plans, r);
    if (r->graphs) opt.plans = (const coda_plan *const *)plans.plan;
    opt.plan_count = plans.count;
    opt.keys = keys;
    if (!bad) bad = write_bundle(r, &opt);
    for (int i = 0; i < plans.count; i++) coda_plan_free(plans.plan[i]);
    free(keys);
    return bad;
}

/* Another version prints other texts, and finds none of its kernels. */
static void compare_versions(const char *path)
{
    char manifest[4096], version[FIELD];
    if (coda_bundle_print(path, manifest, sizeof manifest) < 0) return;
    if (strcmp(field(version, manifest, "library"), coda_version()))
        fprintf(output, "%s: made by version %s, of little use to this one, %s\n", path, version,
                coda_version());
}

static int import(const struct request *r)
{
    int bad = 0;
    for (int i = 0; i < r->places; i++) {
        coda_bundle_report done = CODA_BUNDLE_REPORT_INIT;
        progress_begin(&working, "importing %s", r->place[i]);
        coda_status status = coda_cache_import(r->c, r->place[i], &done);
        progress_end(&working);
        if (status) {
            bad = complain("%s", coda_error());
            continue;
        }
        fprintf(output, "%s: %" PRId64 " of %" PRId64 " entries\n", r->place[i], done.taken, done.entries);
        compare_versions(r->place[i]);
        int64_t lost = done.entries - done.taken;
        if (lost) bad = complain("%s: %" PRId64 " entries could not be stored", r->place[i], lost);
    }
    return bad;
}

/* ---- Dispatch ---- */

static const struct cache_command {
    const char *name, *operands;
    unsigned bit;
    int least, most; /* places */
    int (*run)(const struct request *);
    const char *help;
} commands[] = {
    {"list", "[BUNDLE]", LIST, 0, 1, cache_list, "entries, the last used first"},
    {"stat", "[BUNDLE]", STAT, 0, 1, cache_stat, "where it is, how much is in it"},
    {"verify", "[BUNDLE]", VERIFY, 0, 1, cache_verify, "reads and checks all; exit 1 if entries are damaged"},
    {"prune", "", PRUNE, 0, 0, remove_entries, "removes what the options say"},
    {"clear", "", CLEAR, 0, 0, clear, "removes all"},
    {"explain", "NAME [NAME]", EXPLAIN, 1, 2, cache_explain, "what an entry is; why two are not one"},
    {"export", "BUNDLE", EXPORT, 1, 1, export, "packs entries into one read-only file"},
    {"import", "BUNDLE...", IMPORT, 1, MOST_FILES, import, "takes entries out of it"},
};

/* ---- Help: of the commands in `bits` ---- */

static void print_commands(FILE *to, unsigned bits)
{
    const char *before = "usage:";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const struct cache_command *c = &commands[i];
        if (!(c->bit & bits)) continue;
        char line[64];
        snprintf(line, sizeof line, "coda cache %s %s", c->name, c->operands);
        fprintf(to, "%s %-34s %s\n", before, line, c->help);
        before = "      ";
    }
    if (bits & EXPLAIN) fputs("\nNAME is the beginning of an entry's name, as list shows it.\n", to);
}

/* For which commands an option is, where not for all. */
static void print_option(FILE *to, const struct cache_option *o, unsigned bits)
{
    char line[64];
    const char *comma = "";
    snprintf(line, sizeof line, "%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    fprintf(to, "  %-21s ", line);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (bits != ALL || o->commands & LIST || !(commands[i].bit & o->commands)) continue;
        fprintf(to, "%s%s", comma, commands[i].name);
        comma = ", ";
    }
    fprintf(to, "%s%s\n", *comma ? ": " : "", o->help);
}

static void print_usage(FILE *to, unsigned bits)
{
    print_commands(to, bits);
    fputs("\n", to);
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (option[i].commands & bits) print_option(to, &option[i], bits);
}

static const struct cache_option *find_option(const char *name, unsigned command)
{
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (!strcmp(option[i].name, name) && option[i].commands & command) return &option[i];
    return NULL;
}

/* 0, or the exit status of a usage error. */
static int parse(struct request *r, const struct cache_command *c, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2)) {
            if (r->places == c->most) return misuse("cache %s does not take \"%s\"", c->name, argv[i]);
            r->place[r->places++] = argv[i];
            continue;
        }
        const struct cache_option *p = find_option(argv[i], c->bit);
        if (!p) return misuse("cache %s has no option %s", c->name, argv[i]);
        if (p->argument && i + 1 == argc) return misuse("%s needs a value", argv[i]);
        const char *value = p->argument ? argv[++i] : NULL;
        if (!p->set(r, value)) return misuse("%s cannot be \"%s\"", p->name, value);
    }
    if (r->places < c->least)
        return misuse("cache %s needs a %s", c->name, c->bit == EXPLAIN ? "NAME" : "BUNDLE");
    const coda_cache_prune_options *p = &r->prune;
    if (c->bit == PRUNE && !p->max_bytes && !p->older_than_s && !p->faulty && !p->clear)
        return misuse("cache prune needs --max-size, --older-than or --damaged");
    return 0;
}

/* Who only looks makes no directory. */
static bool looks(const struct request *r, const struct cache_command *c)
{
    if (c->bit & (PRUNE | CLEAR)) return r->prune.dry_run;
    return c->bit == EXPORT ? !r->graphs : c->bit != IMPORT && !r->remove;
}

/* The directory is needed by all but those that look into a bundle, or compile. */
static int run_command(struct request *r, const struct cache_command *c)
{
    if (looks(r, c)) r->cache.flags |= CODA_CACHE_READ_ONLY;
    if (coda_cache_open(&r->c, &r->cache)) return complain("%s", coda_error());
    bool bundle = c->bit & (LIST | STAT | VERIFY) && r->places;
    int status;
    if (!bundle && !r->graphs && !*coda_cache_dir(r->c)) status = complain("%s", coda_cache_problem(r->c));
    else status = c->run(r);
    coda_cache_free(r->c);
    return status;
}

int cache(int argc, char **argv)
{
    struct request r = {.cache = CODA_CACHE_OPTIONS_INIT,
                        .prune = CODA_CACHE_PRUNE_OPTIONS_INIT,
                        .export = CODA_EXPORT_OPTIONS_INIT};
    const char *name = argc ? argv[0] : "";
    const struct cache_command *c = NULL;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i].name, name)) c = &commands[i];
    if (!strcmp(name, "help")) return print_usage(output, ALL), 0;
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return print_usage(output, c ? c->bit : ALL), 0;
    if (!c && *name) return misuse("cache has no command \"%s\"", name);
    if (!c) return print_usage(stderr, ALL), 2;
    int wrong = parse(&r, c, argc - 1, argv + 1);
    return wrong ? wrong : run_command(&r, c);
}
