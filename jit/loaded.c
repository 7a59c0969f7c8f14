/*
 * loaded.c -- the kernels that are loaded: each once a context, whoever wants it.
 *
 * A kernel is known by its image, its shared memory and its context's number, which, unlike an address, is
 * never used again. Those that nobody uses stay, the IDLE_MOST last ones, for a plan of the
 * same shape may come again; older ones are unloaded, so that a stream of new shapes does not fill the
 * device. Loading may block for long and is done outside of the lock: of two threads that load the same,
 * the second gives its own up.
 */
#include "compile.h"
#include "module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IDLE_MOST = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jit_kernel *newest, *oldest; /* all loaded kernels, by when they were last taken or given */
static int idle;

/* A child of fork() finds the list whole, and the lock free. */
static void hold(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }
static void watch_forks(void) { pthread_atfork(hold, let_go, let_go); }

void jit_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}

static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- The list; under the lock ---- */

static void unlink_kernel(struct jit_kernel *k)
{
    *(k->newer ? &k->newer->older : &newest) = k->older;
    *(k->older ? &k->older->newer : &oldest) = k->newer;
}

static void link_newest(struct jit_kernel *k)
{
    k->newer = NULL;
    k->older = newest;
    *(newest ? &newest->newer : &oldest) = k;
    newest = k;
}

/* The digest finds, the bytes decide. */
static bool same_image(const struct jit_kernel *a, const struct jit_kernel *b)
{
    return digest_equal(&a->id.image, &b->id.image) && a->image_size == b->image_size &&
           (a->image == b->image || !memcmp(a->image, b->image, a->image_size));
}

static bool same_id(const struct jit_kernel *a, const struct jit_kernel *b)
{
    return same_image(a, b) && a->id.context == b->id.context && a->id.shared_bytes == b->id.shared_bytes &&
           !strcmp(a->symbol, b->symbol);
}

/* The loaded kernel that is like k, taken; or NULL. */
static struct jit_kernel *take(const struct jit_kernel *like)
{
    struct jit_kernel *k = newest;
    while (k && !same_id(k, like)) k = k->older;
    if (!k) return NULL;
    if (!k->users++) idle--;
    unlink_kernel(k);
    link_newest(k);
    return k;
}

/* The oldest idle one of more than `most`, unlinked; or NULL. */
static struct jit_kernel *surplus(int most)
{
    struct jit_kernel *k = idle > most ? oldest : NULL;
    while (k && k->users) k = k->newer;
    if (!k) return NULL;
    unlink_kernel(k);
    idle--;
    return k;
}

/* ---- Load and unload ---- */

static coda_status identify(struct jit_kernel *k, const struct jit_cubin *c, const char *symbol,
                            int shared_bytes, const struct jit_device *dev, char *err)
{
    if (!(k->driver = driver_open(err))) return CODA_E_DEVICE;
    k->context = dev->context;
    if (snprintf(k->symbol, sizeof k->symbol, "%s", symbol) >= (int)sizeof k->symbol)
        return jit_fail(err, CODA_E_INVALID, "%s...: a kernel's name has at most %zu characters", k->symbol,
                        sizeof k->symbol - 1);
    CUresult r = k->driver->cuCtxGetId(k->context, &k->id.context);
    if (r) return driver_fail(k->driver, err, r, "the context's number");
    k->id.image = name_of(c->image, c->size, NULL, 0);
    k->value = c->value;
    k->image = c->image;
    k->image_size = c->size;
    k->id.shared_bytes = shared_bytes;
    return CODA_OK;
}

static void count(enum cache_counter which, uint64_t n) { stats_add(&stats_of_process, which, n); }

/* Puts a kernel into the list, unless another thread was faster: then the other's. */
static struct jit_kernel *settle(struct jit_kernel *fresh)
{
    process_keeps();
    pthread_mutex_lock(&lock);
    struct jit_kernel *k = take(fresh);
    if (!k) link_newest(fresh), fresh->users = 1;
    pthread_mutex_unlock(&lock);
    if (k) module_unload(fresh);
    return k ? k : fresh;
}

static coda_status load_new(struct jit_kernel **out, const struct jit_kernel *like, const struct jit_cubin *c,
                            const struct jit_device *dev, bool *refused, char *err)
{
    struct jit_kernel *k = malloc(sizeof *k);
    if (!k) return jit_fail(err, CODA_E_MEMORY, "out of memory for kernel %s", like->symbol);
    *k = *like;
    cache_value_retain(k->value);
    int64_t start = nanoseconds();
    coda_status status = module_load(k, c, like->id.shared_bytes, dev, refused, err);
    count(COUNT_load_ns, (uint64_t)(nanoseconds() - start));
    if (status) {
        module_unload(k);
        return status;
    }
    count(COUNT_loads, 1);
    jit_tell(CODA_EVENT_LOAD, k->symbol, "", 1e-6 * (double)(nanoseconds() - start));
    *out = settle(k);
    return CODA_OK;
}

coda_status jit_load(struct jit_kernel **out, const struct jit_cubin *c, const char *symbol, int shared_bytes,
                     const struct jit_device *dev, bool *refused, char *err)
{
    bool ignored;
    struct jit_kernel like = {0};
    if (!refused) refused = &ignored;
    *out = NULL;
    *refused = false;
    coda_status status = identify(&like, c, symbol, shared_bytes, dev, err);
    if (status) return status;
    pthread_mutex_lock(&lock);
    *out = take(&like);
    pthread_mutex_unlock(&lock);
    if (!*out) return load_new(out, &like, c, dev, refused, err);
    count(COUNT_load_hits, 1);
    return CODA_OK;
}

void jit_share(struct jit_kernel *k)
{
    pthread_mutex_lock(&lock);
    k->users++;
    pthread_mutex_unlock(&lock);
}

static void unload_surplus(int most)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        struct jit_kernel *k = surplus(most);
        pthread_mutex_unlock(&lock);
        if (!k) return;
        module_unload(k);
        count(COUNT_unloads, 1);
    }
}

void jit_unload(struct jit_kernel *k)
{
    if (!k) return;
    pthread_mutex_lock(&lock);
    if (!--k->users) idle++;
    unlink_kernel(k);
    link_newest(k);
    pthread_mutex_unlock(&lock);
    unload_surplus(IDLE_MOST);
}

void jit_unload_idle(void) { unload_surplus(0); }
