/*
 * hot.c -- what this process has had, be it a failure, is found without a system call, a lock or an
 * allocation.
 *
 * Linked with --wrap, so that the library's allocations and mutexes pass through here and are counted; a
 * system call would end the process.
 */
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "torture.h"

/* ---- The counters ---- */

static atomic_long allocations, locks;

#define WRAP(counter, result, name, types, names)                                                            \
    result __real_##name types;                                                                              \
    result __wrap_##name types;                                                                              \
    result __wrap_##name types { return atomic_fetch_add(&counter, 1), __real_##name names; }
WRAP(allocations, void *, malloc, (size_t n), (n))
WRAP(allocations, void *, calloc, (size_t n, size_t size), (n, size))
WRAP(allocations, void *, realloc, (void *p, size_t n), (p, n))
WRAP(allocations, void *, aligned_alloc, (size_t a, size_t n), (a, n))
WRAP(allocations, char *, strdup, (const char *s), (s))
WRAP(allocations, char *, strndup, (const char *s, size_t n), (s, n))
WRAP(locks, int, pthread_mutex_lock, (pthread_mutex_t * m), (m))

/* ---- The lookups ---- */

enum { LOOKUPS = 1000000 };

static int fail_to_make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    (void)ctx, (void)data, (void)size;
    *passing = false;
    snprintf(err, CACHE_ERROR, "cannot be made");
    atomic_fetch_add(&board->compiles, 1);
    return 1;
}

/* How many of the lookups found what they should. */
static long look_up(struct coda_cache *c, const struct cache_key *good, const struct cache_key *bad)
{
    long right = 0;
    for (int i = 0; i < LOOKUPS; i++) {
        const struct cache_value *v = cache_find(c, i % 2 ? bad : good);
        right += v && (v->status != 0) == i % 2;
        cache_value_free(v);
    }
    return right;
}

struct seen {
    double ns;               /* a lookup */
    long allocations, locks; /* of the lookups */
    bool counts;             /* there were some before them, and they were seen */
};

static int look_up_strictly(void *ctx)
{
    struct seen *seen = ctx;
    struct coda_cache *c = open_cache(under("cache"));
    struct cache_key good = thing_key(1), bad = thing_key(2);
    obtain_thing(c, 1, 100000);
    cache_value_free(cache_obtain(c, &bad, &(struct cache_maker){fail_to_make, NULL}));
    seen->counts = atomic_exchange(&allocations, 0) && atomic_exchange(&locks, 0);
    double start = now_ms();
    long right = look_up(c, &good, &bad);
    seen->ns = (now_ms() - start) * 1e6 / LOOKUPS;
    seen->allocations = atomic_load(&allocations);
    seen->locks = atomic_load(&locks);
    if (right != LOOKUPS) return 1;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 77;
    right = look_up(c, &good, &bad);
    syscall(SYS_exit, right == LOOKUPS ? 0 : 1); /* all that is allowed now, beside read and write */
    return 1;
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "hot");
    struct seen *seen = shared_memory(sizeof *seen);
    int end = reap(spawn(look_up_strictly, seen)), bad = 0;
    if (end == 77) skipped("lookups without system calls: this machine has no seccomp");
    else if (end) bad += complain("the process ended with %d", end);
    if (atomic_load(&board->compiles) != 2) bad += complain("%d compiles", atomic_load(&board->compiles));
    if (!seen->counts) bad += complain("what is made without an allocation or a lock?");
    if (seen->allocations) bad += complain("%ld allocations", seen->allocations);
    if (seen->locks) bad += complain("%ld locks", seen->locks);
    figure(2L * LOOKUPS, bad,
           "lookups in memory, good and failing, %.0f ns each: no system call, no lock, no allocation",
           seen->ns);
    return torture_end();
}
