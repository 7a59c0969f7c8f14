/*
 * parallel.c -- a loop over independent items on all cores that this process may use: on threads that stay
 * (workers.c) for the CPU device and the host's evaluators, on new ones to compile kernels.
 *
 * Those are the cores of its affinity mask, and no more than its control group's quota of processor time
 * pays for: a container that is given two of 64 cores starts two threads.
 */
#include "base.h"
#include "jit.h"
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Cores ---- */

enum { MANY_CORES = 8192 }; /* of a mask */

static int affinity(void)
{
    cpu_set_t *set = CPU_ALLOC(MANY_CORES);
    size_t size = CPU_ALLOC_SIZE(MANY_CORES);
    int cores = 0;
    if (set && sched_getaffinity(0, size, set) == 0) cores = CPU_COUNT_S(size, set);
    if (set) CPU_FREE(set);
    return cores > 0 ? cores : (int)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

/* The first line of folder/file. */
static bool read_line(const char *folder, const char *file, char *line, int size)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "re");
    bool good = f && fgets(line, size, f);
    if (f) fclose(f);
    return good;
}

/* Cores' worth of time that a group may use, rounded up; 0: any. "max 100000" or "150000 100000" in
 * cpu.max; in version 1 two files, and -1 without a limit. */
static int quota_of(const char *folder)
{
    char line[64];
    long long quota = 0, period = 0;
    if (read_line(folder, "cpu.max", line, sizeof line)) sscanf(line, "%lld %lld", &quota, &period);
    else {
        if (read_line(folder, "cpu.cfs_quota_us", line, sizeof line)) sscanf(line, "%lld", &quota);
        if (read_line(folder, "cpu.cfs_period_us", line, sizeof line)) sscanf(line, "%lld", &period);
    }
    return quota > 0 && period > 0 ? (int)MIN(CEIL_DIV(quota, period), MANY_CORES) : 0;
}

static int least;

static void heed(const char *folder)
{
    int quota = quota_of(folder);
    if (quota) least = least ? MIN(least, quota) : quota;
}

/* The least quota of the process's own group and of those above it, as far as they are to be seen. */
static void find_quota(void)
{
    char line[4096], folder[4160];
    heed("/sys/fs/cgroup");
    heed("/sys/fs/cgroup/cpu");
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        bool unified = !strncmp(line, "0::/", 4);
        const char *path = strstr(line, ":/"), *cpu = strstr(line, "cpu");
        if (!path || strstr(path, "/..") || (!unified && (!cpu || cpu > path))) continue;
        snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", unified ? "" : "/cpu", path + 1);
        for (char *end; (end = strrchr(folder, '/')) > folder + strlen("/sys/fs/"); *end = 0) heed(folder);
    }
    if (f) fclose(f);
}

static _Thread_local int limit;

int parallel_limit(int threads)
{
    int before = limit;
    limit = threads;
    return before;
}

int parallel_threads(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (limit) return MIN(limit, PARALLEL_MOST);
    pthread_once(&once, find_quota);
    int cores = affinity();
    return MIN(least ? MIN(cores, least) : cores, PARALLEL_MOST);
}

int parallel_worth(double operations)
{
    enum { WORTH_A_THREAD = 400000 }; /* to wake one takes as long as a tenth of them */
    return operations < WORTH_A_THREAD ? 1 : parallel_threads();
}

/* ---- The loop ---- */

void parallel_for(int64_t n, void (*fn)(void *ctx, int64_t i), void *ctx)
{
    workers_run(n, n > 1 ? parallel_threads() : 1, fn, ctx);
}

void parallel_work(int64_t n, double operations, void (*fn)(void *ctx, int64_t i), void *ctx)
{
    workers_run(n, n > 1 ? parallel_worth(operations) : 1, fn, ctx);
}

/* ---- The loop on threads of its own ---- */

struct job {
    int64_t n;
    void (*fn)(void *, int64_t);
    void *ctx;
    atomic_llong next;
};

static void *work(void *arg)
{
    struct job *j = arg;
    for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->n;) j->fn(j->ctx, i);
    return NULL;
}

void parallel_for_most(int64_t n, int most, void (*fn)(void *ctx, int64_t i), void *ctx)
{
    struct job j = {.n = n, .fn = fn, .ctx = ctx};
    pthread_t thread[PARALLEL_MOST];
    int threads = (int)MIN(n, MIN(most, PARALLEL_MOST)) - 1, started = 0;
    while (started < threads && jit_start_thread(&thread[started], work, &j)) started++;
    work(&j);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
}
