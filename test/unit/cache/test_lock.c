/*
 * test_lock.c -- processes make a key once together, whatever becomes of the one that makes it; and
 * without locks each makes it for itself.
 */
#include "inside.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What processes share: how often something was made, and who is at it. */
static struct shared {
    atomic_int made, inside, most, timeouts, hits;
    atomic_bool go;
} * shared;

static int nap_ms, wait_ms, gather; /* makers stay until so many have been inside at once, or a minute */
static unsigned flags;

static void set_up(void)
{
    folder_make();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    nap_ms = 50, wait_ms = 20000, gather = 0, flags = 0;
}

static void tear_down(void)
{
    munmap(shared, sizeof *shared);
    folder_remove();
}

static int make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    (void)ctx, (void)err, (void)passing;
    atomic_fetch_add(&shared->made, 1);
    int now = atomic_fetch_add(&shared->inside, 1) + 1, most = atomic_load(&shared->most);
    while (now > most && !atomic_compare_exchange_weak(&shared->most, &most, now)) {}
    usleep((useconds_t)nap_ms * 1000);
    for (int i = 0; i < 60000 && atomic_load(&shared->most) < gather; i++) usleep(1000);
    atomic_fetch_sub(&shared->inside, 1);
    *data = strdup("made");
    *size = 5;
    return 0;
}

static const struct cache_maker maker = {.make = make};

/* A process that obtains one key; 0 if it got it. */
static pid_t start(int key)
{
    pid_t child = fork();
    if (child) return child;
    char what[16];
    snprintf(what, sizeof what, "key %d\n", key);
    struct cache_key k = cache_key(CACHE_KERNEL, what, "");
    struct coda_cache *c =
        cache_open(&(struct cache_options){.dir = folder, .wait_ms = wait_ms, .flags = flags});
    while (!atomic_load(&shared->go)) usleep(100);
    const struct cache_value *v = cache_obtain(c, &k, &maker);
    bool good = v && !v->status && v->size == 5 && !memcmp(v->data, "made", 5);
    atomic_fetch_add(&shared->timeouts, (int)stats_get(cache_stats(c), COUNT_wait_timeouts));
    atomic_fetch_add(&shared->hits, (int)stats_get(cache_stats(c), COUNT_wait_hits));
    _exit(!good);
}

static void expect_good(pid_t child)
{
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

static void run(int processes, int keys)
{
    pid_t child[64];
    for (int i = 0; i < processes; i++) child[i] = start(i % keys);
    atomic_store(&shared->go, true);
    for (int i = 0; i < processes; i++) expect_good(child[i]);
}

START_TEST(processes_make_a_key_once)
{
    run(16, 1);
    ck_assert_int_eq(shared->made, 1);
    ck_assert_int_eq(folder_entries(folder), 1);
}
END_TEST

START_TEST(keys_do_not_wait_for_each_other)
{
    gather = 8;
    run(32, 16);
    ck_assert_int_eq(shared->made, 16);
    ck_assert_int_ge(shared->most, gather);
}
END_TEST

static pid_t start_holder(void)
{
    int short_nap = nap_ms;
    nap_ms = 100000;
    atomic_store(&shared->go, true);
    pid_t holder = start(0);
    while (!atomic_load(&shared->inside)) usleep(1000);
    nap_ms = short_nap;
    return holder;
}

START_TEST(a_killed_maker_is_followed)
{
    pid_t holder = start_holder(), other = start(0);
    usleep(50000);
    ck_assert_int_eq(shared->made, 1); /* the other waits */
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    expect_good(other);
    ck_assert_int_eq(shared->made, 2);
    ck_assert_int_eq(shared->timeouts, 0);
}
END_TEST

START_TEST(a_stopped_maker_is_not_waited_for)
{
    wait_ms = 100;
    pid_t holder = start_holder();
    kill(holder, SIGSTOP);
    expect_good(start(0));
    ck_assert(shared->made == 2 && shared->timeouts == 1);
    expect_good(start(0)); /* the private one was published */
    ck_assert_int_eq(shared->made, 2);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
}
END_TEST

START_TEST(waits_not_at_all_if_told_so)
{
    wait_ms = -1;
    pid_t holder = start_holder();
    expect_good(start(0));
    ck_assert(shared->made == 2 && shared->timeouts == 0);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
}
END_TEST

/* Somebody clears the directory while a key is made: the lock's file is another then. */
START_TEST(a_removed_lock_is_made_again)
{
    pid_t holder = start_holder();
    ck_assert_int_eq(unlink(folder_under("v2/.lock")), 0);
    expect_good(start(0));
    ck_assert_int_eq(shared->made, 2);
    ck_assert_int_eq(access(folder_under("v2/.lock"), F_OK), 0);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
}
END_TEST

/* A process that holds the places [at, at + length) of the lock until it is killed; 0 is to the end. */
static pid_t hold(int64_t at, int64_t length)
{
    pid_t child = fork();
    if (child) {
        while (!atomic_load(&shared->inside)) usleep(100);
        atomic_store(&shared->inside, 0);
        return child;
    }
    struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = length};
    mkdir(folder_under("v2"), 0700);
    int fd = open(folder_under("v2/.lock"), O_RDWR | O_CREAT, 0600);
    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &f)) _exit(1);
    atomic_store(&shared->inside, 1);
    for (;;) pause();
}

static uint64_t counter(struct coda_cache *c, enum cache_counter which)
{
    return stats_get(cache_stats(c), which);
}

static void obtain_many(struct coda_cache *c, int n)
{
    for (int i = 0; i < n; i++) {
        char what[32];
        snprintf(what, sizeof what, "key %d\n", i);
        struct cache_key k = cache_key(CACHE_KERNEL, what, "");
        const struct cache_value *v = cache_obtain(c, &k, &maker);
        ck_assert(v && !v->status);
        cache_value_free(v);
    }
}

/* Somebody holds all of the file for ever: the first to need a lock waits, nobody after it. */
START_TEST(a_stuck_lock_is_waited_for_once)
{
    pid_t holder = hold(0, 0);
    nap_ms = 0;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .wait_ms = 50, .limit = -1});
    obtain_many(c, 10);
    ck_assert_uint_eq(counter(c, COUNT_waits), 1);
    ck_assert_uint_eq(counter(c, COUNT_wait_timeouts), 1);
    ck_assert_uint_eq(counter(c, COUNT_lock_stuck), 9);
    ck_assert_uint_eq(counter(c, COUNT_stored), 10); /* without a limit there is no account */
    cache_close(c);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
}
END_TEST

/* The account's lock alone: nothing is stored, it is said why, and the others do not wait. */
START_TEST(a_stuck_account_is_counted)
{
    pid_t holder = hold(LOCK_SIZE, 1);
    nap_ms = 0;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .wait_ms = 50});
    obtain_many(c, 10);
    ck_assert_uint_eq(counter(c, COUNT_waits), 0);
    ck_assert_uint_eq(counter(c, COUNT_stored), 0);
    ck_assert_uint_eq(counter(c, COUNT_store_failed), 10);
    ck_assert_uint_eq(counter(c, COUNT_store_failed_locked), 10);
    ck_assert_uint_eq(counter(c, COUNT_lock_stuck), 10);
    ck_assert(lock_is_stuck(&c->dir.stuck, LOCK_SIZE) && !lock_is_stuck(&c->dir.stuck, LOCK_SIZE - 1));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    for (int i = 0; i < STUCKS; i++) atomic_store(&c->dir.stuck.range[i].until, 1); /* long ago */
    cache_forget(c);
    obtain_many(c, 10);
    ck_assert_uint_eq(counter(c, COUNT_stored), 10);
    cache_close(c);
}
END_TEST

/* One key that takes long elsewhere says nothing of the other keys. */
START_TEST(one_stuck_key_is_not_all)
{
    struct cache_key k = cache_key(CACHE_KERNEL, "key 3\n", "");
    pid_t holder = hold(lock_place(&k.digest), 1);
    nap_ms = 0;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .wait_ms = 50, .limit = -1});
    obtain_many(c, 10);
    ck_assert_uint_eq(counter(c, COUNT_waits), 1);
    ck_assert_uint_eq(counter(c, COUNT_lock_stuck), 0);
    cache_close(c);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
}
END_TEST

/* Junk in the lock's place makes room for a lock. */
START_TEST(junk_in_its_place_heals)
{
    nap_ms = 0;
    for (int kind = 0; kind < 5; kind++) {
        folder_remove(), folder_make();
        const char *path = folder_under("v2/.lock");
        ck_assert_int_eq(mkdir(folder_under("v2"), 0700), 0);
        int made = kind == 0   ? mkdir(path, 0700)
                   : kind == 1 ? mkfifo(path, 0600)
                   : kind == 2 ? symlink("/nonexistent/x", path)
                               : symlink("/etc/passwd", path);
        ck_assert_int_eq(made, 0);
        if (kind == 4)
            ck_assert_int_eq(unlink(path) | mkdir(path, 0700) | mkdir(folder_under("v2/.lock/full"), 0700),
                             0);
        struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder});
        obtain_many(c, 2);
        ck_assert_uint_ge(counter(c, COUNT_healed), 1);
        ck_assert_uint_eq(counter(c, COUNT_lock_unavailable), 0);
        ck_assert_uint_eq(counter(c, COUNT_stored), 2);
        cache_close(c);
    }
}
END_TEST

/* ---- The lock by itself ---- */

static struct dir *open_dir(struct dir *d, struct stats *s)
{
    *d = (struct dir){.stats = s};
    ck_assert(dir_open(d, strdup(folder), 0));
    return d;
}

START_TEST(one_holder_for_each_place)
{
    struct dir d;
    struct stats s = {0};
    struct lock a = LOCK_INIT, b = LOCK_INIT, other = LOCK_INIT;
    open_dir(&d, &s);
    ck_assert_int_eq(lock_try(&a, &d, 5), LOCK_MINE);
    ck_assert_int_eq(lock_try(&b, &d, 5), LOCK_BUSY);
    ck_assert_int_eq(lock_try(&other, &d, 6), LOCK_MINE);
    lock_release(&a);
    ck_assert_int_eq(lock_try(&b, &d, 5), LOCK_MINE);
    lock_release(&b), lock_release(&other), lock_release(&other);
    dir_close(&d);
}
END_TEST

/* A child that keeps the descriptor does not keep the lock. */
START_TEST(release_frees_a_forked_childs_too)
{
    struct dir d;
    struct stats s = {0};
    struct lock a = LOCK_INIT, b = LOCK_INIT;
    open_dir(&d, &s);
    ck_assert_int_eq(lock_try(&a, &d, 5), LOCK_MINE);
    pid_t child = fork();
    if (!child) pause(), _exit(0);
    lock_release(&a);
    ck_assert_int_eq(lock_try(&b, &d, 5), LOCK_MINE);
    lock_release(&b);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    dir_close(&d);
}
END_TEST

START_TEST(a_remote_directory_is_locked_on_the_host)
{
    struct dir d;
    struct stats s = {0};
    struct lock a = LOCK_INIT, b = LOCK_INIT;
    ck_assert_int_eq(mkdir(folder_under("run"), 0700), 0);
    setenv("XDG_RUNTIME_DIR", folder_under("run"), 1);
    open_dir(&d, &s)->remote = true;
    ck_assert_int_eq(lock_try(&a, &d, 5), LOCK_MINE);
    ck_assert_int_eq(lock_try(&b, &d, 5), LOCK_BUSY);
    ck_assert_int_eq(access(folder_under("run/coda.lock"), F_OK), 0);
    ck_assert_int_eq(access(folder_under("v2/.lock"), F_OK), -1);
    lock_release(&a), lock_release(&b);
    ck_assert_int_eq(chmod(folder_under("run"), 0777), 0); /* not to be trusted: the other place */
    ck_assert_int_eq(lock_try(&a, &d, 5), LOCK_MINE);
    lock_release(&a);
    dir_close(&d);
}
END_TEST

START_TEST(places_are_of_keys)
{
    struct cache_key k = cache_key(CACHE_KERNEL, "a", ""), l = cache_key(CACHE_KERNEL, "b", "");
    struct digest most = {{UINT64_MAX, 0, 0, 0}};
    ck_assert(lock_place(&k.digest) >= 0 && lock_place(&k.digest) != lock_place(&l.digest));
    ck_assert(lock_place(&most) >= 0 && lock_place(&most) < LOCK_SIZE);
}
END_TEST

TESTS(lock, AROUND(set_up, tear_down), ONE(processes_make_a_key_once), ONE(keys_do_not_wait_for_each_other),
      ONE(a_killed_maker_is_followed), ONE(a_stopped_maker_is_not_waited_for),
      ONE(waits_not_at_all_if_told_so), ONE(a_removed_lock_is_made_again),
      ONE(a_stuck_lock_is_waited_for_once), ONE(a_stuck_account_is_counted), ONE(one_stuck_key_is_not_all),
      ONE(junk_in_its_place_heals), ONE(one_holder_for_each_place), ONE(release_frees_a_forked_childs_too),
      ONE(a_remote_directory_is_locked_on_the_host), ONE(places_are_of_keys));
