/*
 * times.c -- parts of a program's time, by clock_gettime.
 */
#include <string.h>
#include <time.h>

#include "coda.h"
#include "times.h"
#include "plain.h"

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double times_now(void) { return read_clock(CLOCK_MONOTONIC); }
void times_begin(struct times *t) { t->last = times_now(); }

static void add(struct times *t, const char *name, double seconds)
{
    int i = 0;
    while (i < t->count && strcmp(t->name[i], name)) i++;
    if (i == MOST_TIMES) return;
    if (i == t->count) t->name[t->count++] = name;
    t->seconds[i] += seconds;
}

void times_end(struct times *t, const char *name)
{
    double now = times_now();
    add(t, name, now - t->last);
    t->last = now;
}

void times_start(struct times *t)
{
    *t = (struct times){.last = times_now()};
    add(t, "start", read_clock(CLOCK_PROCESS_CPUTIME_ID));
}

void times_add(struct times *t, const struct times *from)
{
    for (int i = 0; i < from->count; i++) add(t, from->name[i], from->seconds[i]);
    t->last = from->last;
    t->loading += from->loading;
}

static void print_kernels(FILE *to, const char *what)
{
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    if (coda_cache_stats_get(NULL, &s) != CODA_OK) return;
    plain_print(to, "%s: kernels %llu from bundles, %llu from the directory, read in %.1f ms; ", what,
                (unsigned long long)s.bundle_hits, (unsigned long long)(s.disk_hits + s.overlay_hits),
                (double)s.read_ns / 1e6);
    plain_print(to, "%llu compiled, in %.1f ms of all threads; %llu loaded, in %.1f ms\n",
                (unsigned long long)s.compiles, (double)s.compile_ns / 1e6, (unsigned long long)s.loads,
                (double)s.load_ns / 1e6);
}

void times_print(FILE *to, const char *what, const struct times *t)
{
    double all = 0;
    for (int i = 0; i < t->count; i++) all += t->seconds[i];
    plain_print(to, "%s: %.1f ms, %.1f more than the weights took to load:", what, 1e3 * all,
                1e3 * (all - t->loading));
    for (int i = 0; i < t->count; i++)
        plain_print(to, "%s %s %.1f", i ? "," : "", t->name[i], 1e3 * t->seconds[i]);
    fputs("\n", to);
    print_kernels(to, what);
}
