/* test_evict.c -- a directory keeps its bound, and what is used stays; what is abandoned goes. */
#include "inside.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT = 1 << 20, ENTRY = 20000, COST = 20480 };

static struct coda_cache *c;
static char payload[ENTRY - 200];

static void set_up(void)
{
    folder_make();
    c = cache_open(&(struct cache_options){.dir = folder, .limit = LIMIT});
}

static void tear_down(void)
{
    cache_close(c);
    folder_remove();
}

static struct cache_key key_of(int i)
{
    static char what[8][32];
    static int turn;
    char *w = what[turn++ % 8];
    snprintf(w, sizeof what[0], "key %d\n", i);
    return cache_key(CACHE_TUNING, w, "");
}

static void put(int i)
{
    struct cache_key k = key_of(i);
    cache_put(c, &k, payload, sizeof payload);
}

static bool there(int i)
{
    struct cache_key k = key_of(i);
    return access(folder_entry("", &k), F_OK) == 0;
}

static bool hits(int i)
{
    struct cache_key k = key_of(i);
    void *data;
    size_t size;
    if (!cache_get(c, &k, &data, &size)) return false;
    free(data);
    return true;
}

/* 0 if it is not there. */
static time_t dated(int i)
{
    struct stat st;
    struct cache_key k = key_of(i);
    return stat(folder_entry("", &k), &st) ? 0 : st.st_mtim.tv_sec;
}

static void date(int i, time_t when)
{
    struct cache_key k = key_of(i);
    struct timespec t[2] = {{when, 0}, {when, 0}};
    ck_assert_int_eq(utimensat(AT_FDCWD, folder_entry("", &k), t, 0), 0);
}

static bool add(void *ctx, const struct scanned *s)
{
    return *(int64_t *)ctx += (int64_t)s->st.st_blocks * 512, true;
}

static int64_t on_disk(void)
{
    int64_t sum = 0;
    ck_assert(dir_scan(&c->dir, add, &sum));
    return sum;
}

static uint64_t counted(enum cache_counter which) { return stats_get(cache_stats(c), which); }

/* ---- The bound ---- */

START_TEST(holds_its_bound)
{
    for (int i = 0; i < 300; i++) {
        put(i);
        ck_assert(there(i));
        ck_assert_int_le(on_disk(), LIMIT);
        ck_assert_int_ge(evict_total(&c->dir), on_disk());
    }
    ck_assert(there(299) && !there(0));
    ck_assert_uint_eq(counted(COUNT_stored) - counted(COUNT_evicted), (uint64_t)folder_entries(folder));
    ck_assert_int_gt(on_disk(), LIMIT / 2);
}
END_TEST

START_TEST(stores_nothing_larger_than_its_bound)
{
    char *big = calloc(1, LIMIT);
    struct cache_key k = key_of(0);
    put(1);
    cache_put(c, &k, big, LIMIT);
    ck_assert(!there(0) && there(1));
    ck_assert_uint_eq(counted(COUNT_too_large), 1);
    ck_assert_uint_eq(counted(COUNT_store_failed), 0);
    free(big);
}
END_TEST

START_TEST(has_no_bound_if_told_so)
{
    cache_close(c);
    c = cache_open(&(struct cache_options){.dir = folder, .limit = -1});
    for (int i = 0; i < 60; i++) put(i);
    ck_assert_int_eq(folder_entries(folder), 60);
    ck_assert_int_ne(access(folder_under("v2/.size"), F_OK), 0);
}
END_TEST

static void expect_limit(const char *text, int64_t want, bool meant)
{
    setenv("CODA_CACHE_LIMIT", text, 1);
    cache_close(c);
    c = cache_open(&(struct cache_options){.dir = folder});
    ck_assert_int_eq(c->dir.limit, want);
    ck_assert_msg(!strstr(cache_problem(c), "CODA_CACHE_LIMIT") == meant, "%s: \"%s\"", text,
                  cache_problem(c));
}

/* What a bound says is meant, or refused with the reason: never something else. */
START_TEST(reads_its_bound)
{
    expect_limit("1000", 1000, true);
    expect_limit("3K", 3072, true);
    expect_limit("1KB", 1024, true);
    expect_limit("1kib", 1024, true);
    expect_limit("512M", (int64_t)512 << 20, true);
    expect_limit("2g", (int64_t)2 << 30, true);
    expect_limit("3T", (int64_t)3 << 40, true);
    expect_limit("-1", -1, true);
    expect_limit("", CACHE_LIMIT, true);
    static const char *const bad[] = {"M",
                                      "1e9",
                                      "-5",
                                      "0",
                                      "0x10",
                                      "1.5G",
                                      " 1",
                                      "1 ",
                                      "1KK",
                                      "1B",
                                      "1KBB",
                                      "+1",
                                      "none",
                                      "9999999999G",
                                      "99999999999999999999",
                                      "9007199254740992K"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_limit(bad[i], CACHE_LIMIT, false);
    unsetenv("CODA_CACHE_LIMIT");
}
END_TEST

/* An account that is cut, wrong or gone is made anew by counting. */
START_TEST(counts_again_without_an_account)
{
    static const char wrong[16] = {1};
    for (int i = 0; i < 10; i++) put(i);
    for (int i = 0; i < 3; i++) {
        const char *path = folder_under("v2/.size");
        if (i == 0) unlink(path);
        else file_write(path, wrong, i == 1 ? 7 : 16);
        put(10 + i);
        ck_assert_int_eq(evict_total(&c->dir), (11 + i) * COST);
    }
    ck_assert_int_eq(folder_entries(folder), 13);
}
END_TEST

/* Never below what is there, whatever happened to whoever counted; -1 is not known. */
static void expect_sound(const char *when, int i)
{
    int64_t total = evict_total(&c->dir), is = on_disk();
    ck_assert_msg(total < 0 || total >= is, "%s %d: the account says %lld, there are %lld", when, i,
                  (long long)total, (long long)is);
}

static int free_descriptor(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

START_TEST(counts_all_or_nothing_without_descriptors)
{
    struct rlimit all, few;
    for (int i = 0; i < 10; i++) put(i);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
    for (int spare = 0; spare < 10; spare++) {
        unlink(folder_under("v2/.size"));
        few = all, few.rlim_cur = (rlim_t)(free_descriptor() + spare);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        put(10 + spare);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
        expect_sound("descriptors", spare);
    }
    put(20);
    ck_assert_int_ge(evict_total(&c->dir), on_disk());
}
END_TEST

START_TEST(knows_of_those_without_a_bound)
{
    struct coda_cache *bounded = c, *other;
    for (int i = 0; i < 10; i++) put(i);
    other = c = cache_open(&(struct cache_options){.dir = folder, .limit = -1});
    for (int i = 10; i < 15; i++) put(i);
    c = bounded;
    cache_close(other);
    expect_sound("put", 15);
    put(15);
    ck_assert_int_eq(evict_total(&c->dir), on_disk());
}
END_TEST

START_TEST(knows_nothing_of_a_killed_count)
{
    enum { MANY = 2000 };
    cache_close(c);
    c = cache_open(&(struct cache_options){.dir = folder, .limit = -1});
    for (int i = 0; i < MANY; i++) {
        struct cache_key k = key_of(i);
        cache_put(c, &k, "x", 1);
    }
    c->dir.limit = CACHE_LIMIT;
    for (int i = 0; i < 20; i++) {
        unlink(folder_under("v2/.size"));
        pid_t child = fork();
        if (!child) put(MANY), _exit(0);
        usleep((useconds_t)(i * 300));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        expect_sound("kill", i);
    }
}
END_TEST

START_TEST(writes_no_account_without_its_lock)
{
    struct lock other = LOCK_INIT;
    struct cache_prune p = {.max_bytes = 5 * COST, .older_than_s = -1};
    for (int i = 0; i < 10; i++) put(i);
    ck_assert_int_eq(lock_try(&other, &c->dir, LOCK_SIZE), LOCK_MINE);
    ck_assert(cache_prune(c, &p));
    ck_assert_int_eq(p.removed, 5);
    ck_assert_int_eq(evict_total(&c->dir), -1);
    lock_release(&other);
    put(10);
    ck_assert_int_eq(evict_total(&c->dir), on_disk());
}
END_TEST

/* ---- Who goes ---- */

START_TEST(keeps_what_is_used)
{
    put(-1);
    for (int i = 0; i < 2000; i++) {
        put(i);
        ck_assert_msg(hits(-1), "after %d", i);
    }
    ck_assert(!there(0) && there(1999));
}
END_TEST

/* Dates of a clock that is wrong do not protect for ever, as those ahead grow old, nor throw all away. */
START_TEST(survives_clocks)
{
    time_t now = time(NULL);
    for (int i = 0; i < 40; i++) put(i);
    for (int i = 0; i < 10; i++) date(i, now + 1000000000);
    for (int i = 10; i < 20; i++) date(i, 0);
    for (int i = 20; i < 30; i++) date(i, now - 7200);
    for (int i = 40; i < 60; i++) put(i);
    for (int i = 10; i < 20; i++) ck_assert(!there(i));
    ck_assert_int_gt(folder_entries(folder), 35);
    for (int i = 0; i < 10; i++) ck_assert(dated(i) < now + 1000000000);
    for (int i = 60; i < 160; i++) put(i);
    for (int i = 0; i < 10; i++) ck_assert(!there(i));
    ck_assert_int_le(on_disk(), LIMIT);
}
END_TEST

/* What is dated ahead is as new as what is put at this moment, whatever fraction of a second its date has. */
START_TEST(a_date_ahead_is_now)
{
    for (int i = 0; i < 40; i++) put(i);
    date(0, time(NULL) + 1000000000);
    struct cache_prune p = {.max_bytes = on_disk() / 2, .older_than_s = -1};
    ck_assert(cache_prune(c, &p));
    ck_assert_int_lt(p.kept, 30);
    ck_assert(there(0));
}
END_TEST

START_TEST(does_not_date_what_is_only_looked_at)
{
    struct stat a, b;
    struct cache_key k = key_of(0);
    put(0);
    date(0, 1000);
    ck_assert_int_eq(stat(folder_entry("", &k), &a), 0);
    struct cache_prune p = {.max_bytes = -1, .older_than_s = -1, .faulty = true, .dry = true};
    ck_assert(cache_prune(c, &p));
    ck_assert_int_eq(stat(folder_entry("", &k), &b), 0);
    ck_assert_int_eq(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
    ck_assert(hits(0));
    ck_assert_int_eq(stat(folder_entry("", &k), &b), 0);
    ck_assert_int_lt(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
}
END_TEST

/* ---- Pruning ---- */

static void expect_pruned(struct cache_prune p, int removed, int kept)
{
    p.dry = true;
    ck_assert(cache_prune(c, &p));
    ck_assert_int_eq(p.removed, removed);
    ck_assert_int_eq(folder_entries(folder), removed + kept);
    p.dry = false;
    ck_assert(cache_prune(c, &p));
    ck_assert(p.removed == removed && p.kept == kept);
    ck_assert_int_eq(p.removed_bytes, (int64_t)removed * COST);
    ck_assert_int_eq(folder_entries(folder), kept);
    ck_assert_int_eq(evict_total(&c->dir), (int64_t)kept * COST);
}

START_TEST(prunes_as_asked)
{
    const struct cache_prune none = {.max_bytes = -1, .older_than_s = -1};
    struct cache_prune p = none;
    for (int i = 0; i < 30; i++) put(i);
    expect_pruned(p, 0, 30);
    for (int i = 0; i < 5; i++) date(i, time(NULL) - 5000);
    p.older_than_s = 6000;
    expect_pruned(p, 0, 30);
    p.older_than_s = 4000;
    expect_pruned(p, 5, 25);
    p = none, p.max_bytes = 10 * COST;
    expect_pruned(p, 15, 10);
    p = none, p.faulty = true;
    expect_pruned(p, 0, 10);
    p = none, p.max_bytes = 0;
    expect_pruned(p, 10, 0);
}
END_TEST

START_TEST(prunes_what_is_damaged)
{
    struct cache_prune p = {.max_bytes = -1, .older_than_s = -1, .faulty = true};
    for (int i = 0; i < 10; i++) put(i);
    for (int i = 0; i < 3; i++) {
        struct cache_key k = key_of(i);
        ck_assert_int_eq(truncate(folder_entry("", &k), 5000 * i), 0);
    }
    size_t size;
    struct cache_key three = key_of(3), four = key_of(4);
    unsigned char *bytes = file_read(folder_entry("", &three), &size);
    file_write(folder_entry("", &four), bytes, size);
    free(bytes);
    ck_assert(cache_prune(c, &p));
    ck_assert(p.removed == 4 && p.kept == 6 && !there(4));
}
END_TEST

START_TEST(prunes_nothing_for_readers)
{
    struct cache_prune p = {.max_bytes = 0, .older_than_s = -1};
    put(0);
    struct coda_cache *r = cache_open(&(struct cache_options){.dir = folder, .flags = CACHE_READ_ONLY});
    ck_assert(!cache_prune(r, &p));
    ck_assert(there(0));
    p.dry = true;
    ck_assert(cache_prune(r, &p));
    ck_assert_int_eq(p.removed, 1);
    cache_close(r);
}
END_TEST

/* ---- Where files need a name while they are written ---- */

static void age(const char *path, time_t seconds)
{
    struct timespec t[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, t, 0), 0);
}

START_TEST(sweeps_what_is_abandoned)
{
    char dead[600], fresh[600], living[600];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    put(0);
    snprintf(dead, sizeof dead, "%s", folder_under("v2/.tmp-dead"));
    snprintf(fresh, sizeof fresh, "%s", folder_under("v2/.tmp-fresh"));
    snprintf(living, sizeof living, "%s", folder_under("v2/.tmp-living"));
    file_write(dead, "x", 1), file_write(fresh, "x", 1), file_write(living, "x", 1);
    int fd = open(living, O_RDWR);
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &whole), 0);
    age(dead, 100), age(living, 100000);
    atomic_store(&c->dir.no_tmpfile, true);
    put(1);
    ck_assert_int_ne(access(dead, F_OK), 0);
    ck_assert_int_eq(access(fresh, F_OK), 0);
    ck_assert_int_eq(access(living, F_OK), 0);
    ck_assert_uint_eq(counted(COUNT_swept), 1);
    ck_assert(hits(0) && hits(1));
    close(fd);
    ck_assert_int_eq(folder_names(folder_under("v2")), 2 + 2 + 2); /* folders, .lock .size, temporaries */
}
END_TEST

TESTS(evict, AROUND(set_up, tear_down), ONE(holds_its_bound), ONE(stores_nothing_larger_than_its_bound),
      ONE(has_no_bound_if_told_so), ONE(reads_its_bound), ONE(counts_again_without_an_account),
      ONE(counts_all_or_nothing_without_descriptors), ONE(knows_of_those_without_a_bound),
      ONE(knows_nothing_of_a_killed_count), ONE(writes_no_account_without_its_lock), ONE(keeps_what_is_used),
      ONE(survives_clocks), ONE(a_date_ahead_is_now), ONE(does_not_date_what_is_only_looked_at),
      ONE(prunes_as_asked), ONE(prunes_what_is_damaged), ONE(prunes_nothing_for_readers),
      ONE(sweeps_what_is_abandoned));
