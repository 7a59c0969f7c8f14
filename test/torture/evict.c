/*
 * evict.c -- the bound on bytes holds while many write, nobody who reads is hurt, what is used stays, and
 * clocks that are wrong empty nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture.h"

enum { LIMIT = 1 << 20, LARGEST = 32 << 10, WRITERS = 64, READERS = 16, THINGS = 400 };
static char folder[256];

static size_t size_of(int number) { return 200 + (size_t)number * 7919 % (LARGEST - 2000); }

static struct coda_cache *open_limited(int64_t limit)
{
    return cache_open(&(struct cache_options){.dir = folder, .limit = limit});
}

static void put_thing(struct coda_cache *c, int number, size_t size)
{
    struct cache_key k = thing_key(number);
    unsigned char *p = malloc(size);
    thing_fill(p, number, size);
    cache_put(c, &k, p, size);
    free(p);
}

/* 1: a hit of the right bytes; 0: a miss; -1: wrong. */
static int get_thing(struct coda_cache *c, int number, size_t want)
{
    struct cache_key k = thing_key(number);
    void *data = NULL;
    size_t size = 0;
    if (!cache_get(c, &k, &data, &size)) return 0;
    int result = thing_right(data, size, number, want) ? 1 : -1;
    free(data);
    return result;
}

static void add_blocks(const char *path, void *ctx)
{
    struct stat st;
    if (is_entry(path) && !lstat(path, &st)) *(int64_t *)ctx += (int64_t)st.st_blocks * 512;
}

static int64_t bytes_on_disk(void)
{
    int64_t sum = 0;
    walk_files(folder, add_blocks, &sum);
    return sum;
}

/* ---- Many writers, many readers ---- */

struct tally {
    atomic_long puts, gets, hits, wrong, failed;
    atomic_int done, ended; /* the readers shall end; writers that did */
    int puts_each;
};
static struct tally *tally;

static int writer(void *ctx)
{
    uint64_t seed = (uint64_t)(uintptr_t)ctx;
    struct coda_cache *c = open_limited(LIMIT);
    for (int i = 0; i < tally->puts_each; i++) {
        int number = (int)(noise(&seed) % THINGS);
        put_thing(c, number, size_of(number));
        atomic_fetch_add(&tally->puts, 1);
    }
    atomic_fetch_add(&tally->failed, (long)counted(c, COUNT_store_failed));
    cache_close(c);
    atomic_fetch_add(&tally->ended, 1);
    return 0;
}

/* What is on disk while everybody stands still: a sum over names that come and go would be none. */
static int64_t bytes_at_rest(const pid_t *child, int n)
{
    int status;
    for (int i = 0; i < n; i++) kill(child[i], SIGSTOP);
    for (int i = 0; i < n; i++) {
        siginfo_t info = {0};
        waitid(P_PID, (id_t)child[i], &info, WSTOPPED | WEXITED | WNOWAIT);
        if (info.si_code == CLD_STOPPED) waitpid(child[i], &status, WUNTRACED);
    }
    int64_t bytes = bytes_on_disk();
    for (int i = 0; i < n; i++) kill(child[i], SIGCONT);
    return bytes;
}

static int reader(void *ctx)
{
    uint64_t seed = (uint64_t)(uintptr_t)ctx;
    struct coda_cache *c = open_limited(LIMIT);
    while (!atomic_load(&tally->done)) {
        int number = (int)(noise(&seed) % THINGS), got = get_thing(c, number, size_of(number));
        atomic_fetch_add(&tally->gets, 1);
        if (got > 0) atomic_fetch_add(&tally->hits, 1);
        if (got < 0) atomic_fetch_add(&tally->wrong, 1);
        usleep(100); /* readers that never rest would leave the writers no time */
    }
    bool rejected = false;
    for (int i = COUNT_rejected_short; i <= COUNT_rejected_key; i++) rejected = rejected || counted(c, i);
    cache_close(c);
    return rejected;
}

static void crowd(void)
{
    pid_t child[WRITERS + READERS];
    int64_t most = 0;
    long looks = 0, over = 0;
    memset(tally, 0, sizeof *tally);
    tally->puts_each = scaled(2000, 100000) / WRITERS;
    remove_tree(folder);
    for (int i = 0; i < WRITERS; i++) child[i] = spawn(writer, (void *)(uintptr_t)(1 + i));
    for (int i = WRITERS; i < WRITERS + READERS; i++) child[i] = spawn(reader, (void *)(uintptr_t)(1000 + i));
    for (; atomic_load(&tally->ended) < WRITERS; looks++, usleep(50000)) {
        int64_t bytes = bytes_at_rest(child, WRITERS);
        over += bytes > LIMIT;
        most = bytes > most ? bytes : most;
    }
    long bad = reap_all(child, WRITERS);
    /* A writer that waits too long for the others gives up: how many do depends on how busy the host is. */
    if (tally->failed >= tally->puts) bad += complain("none of %ld puts was stored", (long)tally->puts);
    atomic_store(&tally->done, 1);
    int rejected = reap_all(child + WRITERS, READERS);
    if (rejected) bad += complain("%d readers had to reject something", rejected);
    if (tally->wrong) bad += complain("%ld reads were wrong", (long)tally->wrong);
    if (over) bad += complain("%ld of %ld times too much was on disk", over, looks);
    if (leftovers(folder, NULL)) bad += complain("temporary files stay");
    if (!tally->hits) bad += complain("no reader ever hit");
    figure(tally->puts + tally->gets, bad,
           "%d writers, %ld puts under %d bytes, %ld not stored, %d readers, %ld gets, %ld hits, %.3f of the "
           "limit at "
           "most in %ld looks",
           WRITERS, (long)tally->puts, LIMIT, (long)tally->failed, READERS, (long)tally->gets,
           (long)tally->hits, (double)most / LIMIT, looks);
}

/* One writer: the bound holds after each single publish, and the counters agree with the disk. */
static void one_writer(void)
{
    int n = scaled(2000, 50000);
    long bad = 0;
    remove_tree(folder);
    struct coda_cache *c = open_limited(LIMIT);
    for (int i = 0; i < n; i++) {
        put_thing(c, i, size_of(i));
        int64_t bytes = bytes_on_disk();
        if (bytes > LIMIT) bad += complain("%lld bytes after put %d", (long long)bytes, i);
    }
    int entries;
    leftovers(folder, &entries);
    if (counted(c, COUNT_stored) != (uint64_t)n || counted(c, COUNT_evicted) != (uint64_t)(n - entries))
        bad += complain("stored %d, evicted %d, but %d are there", (int)counted(c, COUNT_stored),
                        (int)counted(c, COUNT_evicted), entries);
    put_thing(c, 1 << 20, LIMIT + 1);
    if (counted(c, COUNT_too_large) != 1) bad += complain("an entry larger than the limit is not counted");
    if (bytes_on_disk() > LIMIT) bad += complain("an entry larger than the limit was kept");
    cache_close(c);
    figure(n + 1, bad, "one writer: the bound holds after each publish, the counters agree with the disk");
}

/* ---- What is used stays ---- */

static void hot_key(void)
{
    int n = scaled(2000, 10000);
    long bad = 0;
    remove_tree(folder);
    struct coda_cache *c = open_limited(LIMIT);
    put_thing(c, -1, 4000);
    for (int i = 0; i < n; i++) {
        put_thing(c, i, size_of(i));
        int got = get_thing(c, -1, 4000);
        if (got <= 0) bad += complain("the hot key is gone after %d cold inserts", i);
        if (got <= 0) put_thing(c, -1, 4000);
    }
    cache_close(c);
    figure(n, bad, "a key that is used after each of %d cold inserts survives them", n);
}

/* ---- Clocks ---- */

static void set_time(const char *path, void *ctx)
{
    struct timespec t[2] = {*(struct timespec *)ctx, *(struct timespec *)ctx};
    utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW);
}

static void clocks(void)
{
    static const int64_t ages[] = {3600, -3600, 0, -1, 86400 * 365, -86400LL * 365 * 50, -4000000000};
    enum { AGES = sizeof ages / sizeof *ages, FEW = 20, LIMIT_FEW = 200 << 10 };
    long bad = 0;
    for (int a = 0; a < AGES; a++) {
        struct timespec when = {.tv_sec = a == 2 ? 0 : (time_t)(time(NULL) + ages[a])};
        remove_tree(folder);
        struct coda_cache *c = open_limited(LIMIT_FEW);
        for (int i = 0; i < FEW; i++) put_thing(c, i, 4000);
        walk_files(folder, set_time, &when);
        cache_close(c);
        c = open_limited(LIMIT_FEW);
        for (int i = 0; i < FEW; i++)
            if (get_thing(c, i, 4000) != 1)
                bad += complain("entries of %lld s are not read", (long long)ages[a]);
        put_thing(c, FEW, 4000);
        if (counted(c, COUNT_evicted)) bad += complain("%lld s: evicted below the limit", (long long)ages[a]);
        for (int i = 0; i < 100; i++) put_thing(c, FEW + i, 8000);
        int entries;
        leftovers(folder, &entries);
        if (entries < 15 || bytes_on_disk() > LIMIT_FEW + 65536)
            bad += complain("%lld s: %d entries stay", (long long)ages[a], entries);
        if (get_thing(c, FEW + 99, 8000) != 1)
            bad += complain("%lld s: the newest was evicted", (long long)ages[a]);
        cache_close(c);
    }
    figure(AGES, bad,
           "times of files an hour, a year and fifty years off: no wipe, the bound holds, the newest stays");
}

/* ---- Temporary files of the dead ---- */

static int write_slowly(void *ctx)
{
    (void)ctx;
    shim_watch(folder);
    shim.all_named = true;
    shim.only = "write";
    shim_arm(SHIM_STOP, 1, 0, false);
    struct coda_cache *c = open_limited(-1);
    put_thing(c, 1, 4000);
    cache_close(c);
    return 0;
}

static void age(const char *path, void *ctx)
{
    if (!is_entry(path)) set_time(path, ctx);
}

/* A day old, its writer first alive and then not: swept in the second case alone. */
static void abandoned(void)
{
    struct timespec old = {.tv_sec = time(NULL) - 86400};
    int bad = 0;
    remove_tree(folder);
    pid_t child = spawn(write_slowly, NULL);
    int status;
    waitpid(child, &status, WUNTRACED);
    for (int dead = 0; dead < 2; dead++) {
        if (dead) kill(child, SIGKILL), reap(child);
        walk_files(folder, age, &old);
        struct coda_cache *c = open_limited(100 << 10);
        for (int i = 0; i < 100; i++) put_thing(c, 100 + i, 4000);
        int left = leftovers(folder, NULL);
        if (dead ? left : left != 1)
            bad += complain("%d temporary files, their writer %s", left, dead ? "dead" : "alive");
        if (dead && !counted(c, COUNT_swept)) bad += complain("sweeping is not counted");
        cache_close(c);
    }
    figure(2, bad, "a temporary file of a day ago: stays while its writer lives, is swept when it is dead");
}

/* ---- Files vanish at any time ---- */

static void vanish(const char *path, void *ctx)
{
    uint64_t *seed = ctx;
    if (noise(seed) % 4 == 0) unlink(path);
}

static int vandal(void *ctx)
{
    uint64_t seed = (uint64_t)(uintptr_t)ctx;
    for (long i = 0; !atomic_load(&tally->done); i++) {
        walk_files(folder, vanish, &seed);
        if (i % 50 == 0) remove_tree(folder); /* all of it */
        usleep(2000);
    }
    return 0;
}

static int reader_or_writer(void *ctx)
{
    uint64_t seed = (uint64_t)(uintptr_t)ctx;
    struct coda_cache *c = open_limited(LIMIT);
    for (int i = 0; i < tally->puts_each; i++) {
        int number = (int)(noise(&seed) % 50), got = get_thing(c, number, size_of(number));
        atomic_fetch_add(&tally->gets, 1);
        if (got > 0) atomic_fetch_add(&tally->hits, 1);
        if (got < 0) atomic_fetch_add(&tally->wrong, 1);
        if (!got && noise(&seed) % 4 == 0) put_thing(c, number, size_of(number));
    }
    cache_close(c);
    return 0;
}

static void vandals(void)
{
    enum { USERS = 8 };
    pid_t child[USERS + 1];
    memset(tally, 0, sizeof *tally);
    tally->puts_each = scaled(20000, 1000000) / USERS;
    remove_tree(folder);
    child[USERS] = spawn(vandal, (void *)7);
    for (int i = 0; i < USERS; i++) child[i] = spawn(reader_or_writer, (void *)(uintptr_t)(i + 1));
    long bad = reap_all(child, USERS);
    atomic_store(&tally->done, 1);
    bad += reap(child[USERS]) != 0;
    if (tally->wrong) bad += complain("%ld reads were wrong", (long)tally->wrong);
    struct coda_cache *c = open_limited(LIMIT);
    put_thing(c, 1, size_of(1));
    if (get_thing(c, 1, size_of(1)) != 1) bad += complain("the folder is not made again");
    cache_close(c);
    figure(tally->gets, bad, "files and the whole folder removed during %ld gets of %d processes, %ld hits",
           (long)tally->gets, USERS, (long)tally->hits);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "evict");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    tally = shared_memory(sizeof *tally);
    one_writer();
    crowd();
    hot_key();
    clocks();
    abandoned();
    vandals();
    return torture_end();
}
