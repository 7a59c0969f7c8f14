/*
 * store.c -- a store of the user's own in the place of the directory, which fails, lies and forgets: the
 * same promises as for files.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torture.h"

enum { ITEMS = 64, SIZE = 3000, KEYS = 4 };

enum trick { HONEST, FAILS, GROWS, SHRINKS, FLIPS, CUTS, EMPTY, HUGE, TRICKS };
static const char *const trick_name[TRICKS] = {
    "honest", "fails",    "grows between two calls", "shrinks between two calls", "flips a bit",
    "cuts",   "is empty", "claims a huge size"};
struct memory {
    pthread_mutex_t mutex;
    struct {
        char name[65];
        void *data;
        size_t size;
        bool locked;
    } item[ITEMS];
    int items;
    long calls, at; /* the N-th call is tricked */
    bool sticky;
    enum trick trick;
    int lock_answer; /* 1: honest */
    long drops;
};

static int find(struct memory *m, const char *name, bool make)
{
    for (int i = 0; i < m->items; i++)
        if (!strcmp(m->item[i].name, name)) return i;
    if (!make || m->items == ITEMS) return -1;
    snprintf(m->item[m->items].name, sizeof m->item[0].name, "%s", name);
    return m->items++;
}

/* Counts a call; is it the one? */
static bool tricked(struct memory *m)
{
    m->calls++;
    return m->at && (m->calls == m->at || (m->sticky && m->calls > m->at));
}

static int64_t get(void *ctx, const char *name, void *buf, size_t size)
{
    struct memory *m = ctx;
    int64_t result = -1;
    pthread_mutex_lock(&m->mutex);
    bool trick = tricked(m);
    int i = find(m, name, false);
    if (i >= 0 && m->item[i].data && !(trick && m->trick == FAILS)) {
        size_t n = m->item[i].size;
        if (n <= size) memcpy(buf, m->item[i].data, n);
        result = (int64_t)n;
        if (trick && m->trick == GROWS) result += 100;
        if (trick && m->trick == SHRINKS) result -= 100;
        if (trick && m->trick == FLIPS && n <= size) ((char *)buf)[n / 2] ^= 4;
        if (trick && m->trick == CUTS && n <= size) memset((char *)buf + n / 2, 0, n - n / 2);
        if (trick && m->trick == EMPTY) result = 0;
        if (trick && m->trick == HUGE) result = INT64_MAX;
    }
    pthread_mutex_unlock(&m->mutex);
    return result;
}

static int put(void *ctx, const char *name, const void *data, size_t size)
{
    struct memory *m = ctx;
    int result = 0;
    pthread_mutex_lock(&m->mutex);
    int i = find(m, name, true);
    void *copy = malloc(size);
    if (i < 0 || !copy || (tricked(m) && m->trick != HONEST)) result = ENOSPC;
    else {
        memcpy(copy, data, size);
        free(m->item[i].data);
        m->item[i].data = copy;
        m->item[i].size = size;
        copy = NULL;
    }
    free(copy);
    pthread_mutex_unlock(&m->mutex);
    return result;
}

static void drop(void *ctx, const char *name)
{
    struct memory *m = ctx;
    pthread_mutex_lock(&m->mutex);
    int i = find(m, name, false);
    if (i >= 0) free(m->item[i].data), m->item[i].data = NULL;
    m->drops++;
    pthread_mutex_unlock(&m->mutex);
}

static int lock(void *ctx, const char *name)
{
    struct memory *m = ctx;
    int result = m->lock_answer;
    pthread_mutex_lock(&m->mutex);
    int i = find(m, name, true);
    if (tricked(m) && m->trick != HONEST) result = -1;
    else if (result == 1 && i >= 0) {
        result = !m->item[i].locked;
        m->item[i].locked = true;
    }
    pthread_mutex_unlock(&m->mutex);
    return result;
}

static void unlock(void *ctx, const char *name)
{
    struct memory *m = ctx;
    pthread_mutex_lock(&m->mutex);
    int i = find(m, name, false);
    if (i >= 0) m->item[i].locked = false;
    pthread_mutex_unlock(&m->mutex);
}

static void memory_init(struct memory *m)
{
    *m = (struct memory){.lock_answer = 1};
    pthread_mutex_init(&m->mutex, NULL);
}

static void memory_free(struct memory *m)
{
    for (int i = 0; i < m->items; i++) free(m->item[i].data);
}

static struct coda_cache *open_store(struct memory *m, bool bare, int wait_ms)
{
    struct cache_store s = {m, get, put, bare ? NULL : drop, bare ? NULL : lock, bare ? NULL : unlock};
    return cache_open(&(struct cache_options){.store = &s, .wait_ms = wait_ms});
}

/* Misses, then, in a process of its own, hits: whatever the N-th call does. */
static int attempt(enum trick trick, long n, bool sticky, bool bare, bool *acted)
{
    struct memory m;
    int bad = 0;
    memory_init(&m);
    m.trick = trick, m.at = n, m.sticky = sticky;
    for (int turn = 0; turn < 2; turn++) {
        struct coda_cache *c = open_store(&m, bare, 200);
        for (int i = 0; i < KEYS; i++)
            if (!obtain_thing(c, i, SIZE))
                bad += complain("a store that %s %s at call %ld", trick_name[trick],
                                sticky ? "for good" : "once", n);
        cache_close(c);
    }
    *acted = m.calls >= n;
    m.at = 0;
    struct coda_cache *c = open_store(&m, bare, 200); /* heals */
    for (int i = 0; i < KEYS; i++) bad += !obtain_thing(c, i, SIZE);
    cache_close(c);
    int before = atomic_load(&board->compiles);
    c = open_store(&m, bare, 200);
    for (int i = 0; i < KEYS; i++) bad += !obtain_thing(c, i, SIZE);
    if (atomic_load(&board->compiles) != before)
        bad += complain("a store that %s: not healed", trick_name[trick]);
    if (counted(c, COUNT_disk_hits) != KEYS)
        bad += complain("%d hits counted", (int)counted(c, COUNT_disk_hits));
    cache_close(c);
    memory_free(&m);
    return bad;
}

static void tricks(void)
{
    long cases = 0, bad = 0;
    for (int t = HONEST + 1; t < TRICKS; t++)
        for (int how = 0; how < 4; how++) {
            bool acted = true;
            for (long n = 1; acted; n++, cases++) bad += attempt((enum trick)t, n, how & 1, how & 2, &acted);
        }
    figure(cases, bad, "a store that fails, lies about sizes or bytes, at each call, once and for good");
}

static void *obtain(void *c) { return obtain_thing(c, 1, SIZE) ? NULL : c; }

static void crowd(void)
{
    enum { CROWD = 32 };
    pthread_t thread[CROWD];
    struct memory m;
    int bad = 0;
    memory_init(&m);
    board_reset();
    atomic_store(&board->compile_us, 50000);
    struct coda_cache *c[2] = {open_store(&m, false, 5000),
                               open_store(&m, false, 5000)}; /* as two processes */
    for (int i = 0; i < CROWD; i++) pthread_create(&thread[i], NULL, obtain, c[i % 2]);
    for (int i = 0; i < CROWD; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        bad += failed != NULL;
    }
    if (atomic_load(&board->compiles) != 1) bad += complain("%d compiles", atomic_load(&board->compiles));
    cache_close(c[0]), cache_close(c[1]);
    memory_free(&m);
    figure(1, bad, "two caches on one store, %d threads, one key: its lock gives one compile", CROWD);
}

/* A lock that is never to be had, and locks that there are not. */
static void locks(void)
{
    int bad = 0;
    for (int answer = -1; answer <= 0; answer++) {
        struct memory m;
        memory_init(&m);
        m.lock_answer = answer;
        board_reset();
        double start = now_ms();
        struct coda_cache *c = open_store(&m, false, 300);
        if (!obtain_thing(c, 1, SIZE)) bad += complain("lock answers %d", answer);
        double ms = now_ms() - start;
        if (answer && !counted(c, COUNT_lock_unavailable)) bad += complain("no lock is not counted");
        if (!answer && (ms < 250 || counted(c, COUNT_wait_timeouts) != 1))
            bad += complain("a lock that is never free: %.0f ms, %d deadlines", ms,
                            (int)counted(c, COUNT_wait_timeouts));
        cache_close(c);
        memory_free(&m);
    }
    figure(2, bad, "a store whose lock is never free, or that has none");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "store");
    tricks();
    crowd();
    locks();
    return torture_end();
}
