/*
 * limits.c -- a host with a limit on the size of files, of every size from nothing on: whatever the library
 * writes, the host is not ended by SIGXFSZ, its kernels are right, and what could not be written is
 * counted or said.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture.h"

enum { KERNEL = 7 };
static char folder[256], target[256];
static rlim_t most;

static int limited(void)
{
    struct rlimit limit = {most, most};
    signal(SIGXFSZ, SIG_DFL);
    return setrlimit(RLIMIT_FSIZE, &limit);
}

static int use_cache(void *named)
{
    if (named) shim_watch(folder), shim.all_named = true;
    if (limited()) return 9;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder});
    int bad = use_kernel(c, KERNEL) != CODA_OK;
    if (!counted(c, COUNT_stored) && !counted(c, COUNT_store_failed)) bad = 2;
    if (counted(c, COUNT_store_failed) != counted(c, COUNT_store_failed_space)) bad = 3;
    cache_close(c);
    return bad;
}

static int use_record(void *ctx)
{
    (void)ctx;
    if (limited()) return 9;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .record = target});
    int bad = use_kernel(c, KERNEL) != CODA_OK;
    cache_close(c);
    return bad;
}

static int use_child(void *ctx)
{
    (void)ctx;
    if (limited()) return 9;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .flags = CACHE_ISOLATE});
    int bad = use_kernel(c, KERNEL) != CODA_OK;
    if (counted(c, COUNT_isolate_crashes)) bad = 2; /* it is not the compiler that has a limit */
    cache_close(c);
    return bad;
}

static int export_to(const char *array)
{
    coda_export_options opt = CODA_EXPORT_OPTIONS_INIT;
    struct coda_cache *c = open_cache(folder);
    if (use_kernel(c, KERNEL) || limited()) return 9;
    opt.array = array;
    coda_status status = coda_cache_export(c, target, &opt, NULL);
    bool there = !access(target, F_OK);
    cache_close(c);
    if (status && status != CODA_E_IO) return 2;
    return !status == there ? 0 : 3;
}

static int use_export(void *ctx) { return (void)ctx, export_to(NULL); }
static int use_array(void *ctx) { return (void)ctx, export_to("kernels"); }

static int use_import(void *ctx)
{
    (void)ctx;
    struct coda_cache *c = open_cache(folder);
    if (use_kernel(c, KERNEL) || coda_cache_export(c, target, NULL, NULL)) return 9;
    cache_close(c);
    remove_tree(folder);
    if (limited()) return 9;
    c = open_cache(folder);
    coda_status status = coda_cache_import(c, target, NULL);
    cache_close(c);
    return status && status != CODA_E_IO;
}

static int use_dump(void *ctx)
{
    (void)ctx;
    setenv("CODA_DUMP", target, 1), setenv("CODA_DEBUG", "plan,cache", 1);
    if (mkdir(target, 0700) || !freopen(under("stderr"), "w", stderr) || limited()) return 9;
    struct coda_cache *c = open_cache(folder);
    int bad = use_kernel(c, KERNEL) != CODA_OK;
    cache_close(c);
    return bad;
}

static const struct way {
    const char *name;
    int (*body)(void *);
    void *ctx;
} ways[] = {
    {"the directory", use_cache, NULL}, {"the directory without nameless files", use_cache, target},
    {"a record", use_record, NULL},     {"a compile in a child", use_child, NULL},
    {"an export", use_export, NULL},    {"an export as C", use_array, NULL},
    {"an import", use_import, NULL},    {"dumps and what is said for debugging", use_dump, NULL},
};

int main(int argc, char **argv)
{
    static const rlim_t sizes[] = {0,   1,    15,   16,   17,    64,    79,    80,
                                   200, 1000, 4000, 4096, 10000, 20000, 65536, 1 << 20};
    torture_begin(argc, argv, "limits");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    snprintf(target, sizeof target, "%s", under("target"));
    int bad = 0, cases = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++, cases++) {
            remove_tree(folder), remove_tree(target);
            most = sizes[i];
            int end = reap(spawn(ways[w].body, ways[w].ctx));
            if (end)
                bad += complain("%s, files of %llu bytes: ended with %d", ways[w].name,
                                (unsigned long long)most, end);
        }
    figure(cases, bad, "files limited to 0 bytes and more, whatever is written: nobody is ended by a signal");
    return torture_end();
}
