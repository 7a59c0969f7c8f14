/*
 * start.c -- what a kernel from the cache costs a process that starts.
 *
 *     cache/start  KERNELS kernels from the directory: all of coda_compile in a new process, NVRTC's own
 *                  loading included, without what the plan takes
 *     cache/read   of it, one entry: opened, copied, its digest and key compared
 *
 * Needs NVRTC to fill the cache, and no GPU: nothing is loaded into a driver. The new process is this
 * program again. What a kernel in memory costs is below what a call of coda.h can show:
 * test/unit/cache/bench_memo.c measures that.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "options.h"
#include "usage.h"

enum { KERNELS = 100, TRIES = 21 };

static double now(void) { return clock_us() * 1e-3; } /* milliseconds */

static void die(const char *what)
{
    fprintf(stderr, "perf: %s: %s\n", what, coda_error());
    exit(1);
}

/* Each output a kernel of its own: a map that no other has. */
static coda_graph *many(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){64, 4096});
    for (int i = 0; i < KERNELS; i++) {
        char name[32], source[96];
        coda_map_def map = CODA_MAP_DEF_INIT;
        snprintf(name, sizeof name, "times%d", i);
        snprintf(source, sizeof source, "DEV static float apply(float x) { return x * %d.0f; }", i + 2);
        map.name = name;
        map.source = source;
        if (coda_define_map(g, &map) != CODA_OK) die(name);
        coda_value y = coda_apply(g, name, &x, 1, NULL);
        snprintf(name, sizeof name, "y%d", i);
        coda_output(g, name, y);
    }
    return g;
}

/* ---- The new process ---- */

static double compile(const coda_graph *g, coda_cache *c, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.cache = c;
    opt.flags = flags;
    double from = now();
    if (coda_compile(&p, g, &opt) != CODA_OK) die("compile");
    double ms = now() - from;
    if (coda_plan_kernels(p) != KERNELS) die("kernels");
    coda_plan_free(p);
    return ms;
}

static coda_cache *open_cache(const char *dir)
{
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c;
    where.dir = dir;
    if (coda_cache_open(&c, &where) != CODA_OK) die(dir);
    return c;
}

/* Prints what compiling took, what the plan took alone, what one entry took, hits and bytes. */
static int start(const char *dir)
{
    coda_graph *g = many();
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    double plan = compile(g, NULL, CODA_PLAN_ONLY);
    double from = now();
    coda_cache *c = open_cache(dir);
    double all = now() - from + compile(g, c, 0);
    coda_cache_stats_get(c, &s);
    printf("%.6f %.6f %.6f %d %.1f\n", all, plan,
           s.disk_hits ? 1e-3 * (double)s.read_ns / (double)s.disk_hits : 0, (int)s.disk_hits,
           s.disk_hits ? (double)s.read_bytes / (double)s.disk_hits : 0);
    coda_cache_free(c);
    coda_graph_free(g);
    return 0;
}

/* ---- The measurement ---- */

static void say(struct report *r, const char *name, const char *unit, double *v, double bytes)
{
    double mid = median(v, TRIES);
    report_case(r, name);
    fprintf(r->json, ", \"%s\": %.6g, \"min\": %.6g, \"max\": %.6g, \"rounds\": %d, \"bytes\": %.0f", unit,
            mid, v[0], v[TRIES - 1], TRIES, bytes);
    report_end_case(r);
    printf("%-28s %9.3f %s   %.3f .. %.3f, entries of %.0f bytes\n", name, mid, unit, v[0], v[TRIES - 1],
           bytes);
}

static double start_once(const char *dir, double *ms, double *us)
{
    char command[512], self[256] = "";
    double all = 0, plan = 0, bytes = 0;
    int hits = 0;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) die("/proc/self/exe");
    snprintf(command, sizeof command, "%s --start %s", self, dir);
    FILE *f = popen(command, "r");
    if (!f || fscanf(f, "%lf %lf %lf %d %lf", &all, &plan, us, &hits, &bytes) != 5 || pclose(f)) die(command);
    if (hits != KERNELS) die("not every kernel was in the cache");
    *ms = all - plan;
    return bytes;
}

/* With patterns it measures nothing unless all are "cache". -1: it does; else the exit status. */
static int read_options(char **argv, const char **out)
{
    bool quick; /* `make perf` tells all programs; this one always is */
    const struct option option[] = {{"--out", .word = out}, {"--quick", .given = &quick}};
    int names = options_read("start", argv, option, sizeof option / sizeof *option);
    for (int i = 0; i < names; i++)
        if (strcmp(argv[i], "cache")) return 0;
    return names < 0 ? 2 : -1;
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/coda-perf-XXXXXX", remove[64];
    const char *out = NULL;
    struct report report;
    double ms[TRIES], us[TRIES], bytes = 0;
    if (usage_asked(argv, "usage: start [--quick] [--out FILE]\n"
                          "What kernels from the cache cost a process that starts."))
        return 0;
    if (argc == 3 && !strcmp(argv[1], "--start")) return start(argv[2]);
    int status = read_options(argv + (argc > 0), &out);
    if (status >= 0) return status;
    if (!mkdtemp(dir)) return perror(dir), 1;
    report_begin(&report, "start", out);
    coda_graph *g = many();
    coda_cache *c = open_cache(dir);
    compile(g, c, 0);
    for (int i = 0; i < TRIES; i++) bytes = start_once(dir, &ms[i], &us[i]);
    say(&report, "cache/start", "ms", ms, bytes);
    say(&report, "cache/read", "us", us, bytes);
    coda_cache_free(c);
    coda_graph_free(g);
    snprintf(remove, sizeof remove, "rm -rf %s", dir);
    if (system(remove) != 0) fprintf(stderr, "perf: %s is left behind\n", dir);
    return report_end(&report);
}
