/*
 * progress.h -- one line on standard error, where that is a terminal, while something takes long.
 *
 *     struct progress p;
 *     progress_begin(&p, "loading %s", path);
 *     progress_count(&p, done, all, "layers"); // from any thread, as often as it likes; may be left out
 *     progress_end(&p);                        // before anything else is printed; or hold, go_on
 *
 * A thread of its own draws "loading NAME: 3 of 8 layers, 4 s": not before half a second has passed, so that
 * what is quick shows nothing, and then five times a second, so that what counts nothing shows its seconds.
 * The end erases it. Where standard error is no terminal nothing is written, and there is no thread.
 */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "coda.h"
#include "plain.h"

struct progress {
    bool on, over, drawn; /* over and the counts: under the lock */
    char what[256];
    int64_t done, all;                     /* all: 0 if it is not known */
    const char *unit;                      /* NULL: nothing is counted */
    int64_t (*brought)(coda_cache *cache); /* kernels so far; NULL: they are not counted */
    coda_cache *cache;
    int64_t before, kernels; /* brought before the beginning; that there will be, or 0 */
    struct timespec began;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* ---- The line ---- */

/* Kernels that the cache has found or made so far. */
static inline int64_t progress_brought(coda_cache *cache)
{
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    if (coda_cache_stats_get(cache, &s) != CODA_OK) return 0;
    return (int64_t)(s.memory_hits + s.bundle_hits + s.disk_hits + s.overlay_hits + s.wait_hits + s.compiles);
}

/* Columns of the terminal, but for the last one: a character there would begin a new line. */
static inline int progress_columns(void)
{
    struct winsize size;
    int n = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) ? 80 : size.ws_col;
    return n > 1 ? n : 80;
}

static inline void progress_write(const char *line, size_t size)
{
    for (ssize_t n; size; line += n, size -= (size_t)n)
        if ((n = write(STDERR_FILENO, line, size)) <= 0) break; /* it is only shown */
}

/* "3 of 8 layers, ", "3 layers, " or nothing. */
static inline void progress_part(char *out, size_t size, int64_t done, int64_t all, const char *unit)
{
    out[0] = 0;
    if (all && done > all) done = all; /* others may use the cache, too */
    if (all) snprintf(out, size, "%" PRId64 " of %" PRId64 " %s, ", done, all, unit);
    else if (done) snprintf(out, size, "%" PRId64 " %s, ", done, unit);
}

/* Under the lock. */
static inline void progress_draw(struct progress *p)
{
    char counted[96] = "", kernels[64] = "", text[448], line[464] = "\r\033[K";
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long seconds = now.tv_sec - p->began.tv_sec - (now.tv_nsec < p->began.tv_nsec);
    if (p->unit) progress_part(counted, sizeof counted, p->done, p->all, p->unit);
    if (p->brought)
        progress_part(kernels, sizeof kernels, p->brought(p->cache) - p->before, p->kernels, "kernels");
    snprintf(text, sizeof text, "%s: %s%s%lld s", p->what, counted, kernels, seconds);
    size_t most = (size_t)progress_columns() - 1, n = strlen(text), begin = strlen(line);
    if (n > most) n = most;
    while (n && text[n] && ((unsigned char)text[n] & 0xc0) == 0x80) n--; /* no part of a character */
    memcpy(line + begin, text, n);
    progress_write(line, begin + n);
    p->drawn = true;
}

static inline void *progress_run(void *context)
{
    enum { FIRST_NS = 500000000, NEXT_NS = 200000000 };
    struct progress *p = context;
    struct timespec at = p->began;
    pthread_mutex_lock(&p->lock);
    for (long wait = FIRST_NS; !p->over; wait = NEXT_NS) {
        at.tv_nsec += wait;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        while (!p->over && pthread_cond_timedwait(&p->changed, &p->lock, &at) != ETIMEDOUT) {}
        if (!p->over) progress_draw(p);
    }
    if (p->drawn) progress_write("\r\033[K", 4);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- From the beginning to the end ---- */

static inline bool progress_wanted(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && (!terminal || strcmp(terminal, "dumb"));
}

__attribute__((format(printf, 2, 3))) static inline void progress_begin(struct progress *p,
                                                                        const char *format, ...)
{
    char what[sizeof p->what];
    pthread_condattr_t clock;
    va_list args;
    *p = (struct progress){.on = progress_wanted()};
    if (!p->on) return;
    va_start(args, format);
    plain_vline(what, sizeof what, format, args);
    va_end(args);
    plain_escape(p->what, sizeof p->what, what);
    clock_gettime(CLOCK_MONOTONIC, &p->began);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&p->thread, NULL, progress_run, p)) p->on = false;
}

/* What is counted, and how far it is; all: 0 if that is not known. `unit` must stay. p: NULL is fine. */
static inline void progress_count(struct progress *p, int64_t done, int64_t all, const char *unit)
{
    if (!p || !p->on) return;
    pthread_mutex_lock(&p->lock);
    p->done = done, p->all = all, p->unit = unit;
    pthread_mutex_unlock(&p->lock);
}

/* Counts kernels, too, that this cache (NULL: the environment's) finds or makes from now on. */
static inline void progress_kernels(struct progress *p, coda_cache *cache, int64_t all)
{
    if (!p->on) return;
    int64_t before = progress_brought(cache);
    pthread_mutex_lock(&p->lock);
    p->brought = progress_brought, p->cache = cache, p->before = before, p->kernels = all;
    pthread_mutex_unlock(&p->lock);
}

/* Around what else is printed meanwhile: the line is away, and not drawn. */
static inline void progress_hold(struct progress *p)
{
    if (!p->on) return;
    pthread_mutex_lock(&p->lock);
    if (p->drawn) progress_write("\r\033[K", 4);
    p->drawn = false;
}
static inline void progress_go_on(struct progress *p)
{
    if (p->on) pthread_mutex_unlock(&p->lock);
}

static inline void progress_end(struct progress *p)
{
    if (!p->on) return;
    pthread_mutex_lock(&p->lock);
    p->over = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    p->on = false;
}

#endif
