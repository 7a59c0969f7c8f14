/* test_disk.c -- a directory hits on what was put, and only misses on everything else. */
#include "inside.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const variables[] = {"CODA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
enum { VARIABLES = sizeof variables / sizeof *variables };
static char *saved[VARIABLES];

static void set_up(void)
{
    folder_make();
    for (int i = 0; i < VARIABLES; i++) saved[i] = getenv(variables[i]) ? strdup(getenv(variables[i])) : NULL;
}

static void tear_down(void)
{
    folder_remove();
    for (int i = 0; i < VARIABLES; i++) {
        if (saved[i]) setenv(variables[i], saved[i], 1);
        else unsetenv(variables[i]);
        free(saved[i]);
    }
}

static struct coda_cache *open_flags(const char *dir, unsigned flags)
{
    return cache_open(&(struct cache_options){.dir = dir, .flags = flags});
}

static struct coda_cache *open_at(const char *dir) { return open_flags(dir, 0); }

static struct cache_key key_of(const char *text) { return cache_key(CACHE_TUNING, text, ""); }

static void put(struct coda_cache *c, const char *key, const void *data, size_t size)
{
    struct cache_key k = key_of(key);
    cache_put(c, &k, data, size);
}

static const char *entry_path(const char *key)
{
    struct cache_key k = key_of(key);
    return folder_entry("", &k);
}

static bool hits(struct coda_cache *c, const char *key, const void *want, size_t size)
{
    struct cache_key k = key_of(key);
    void *data = NULL;
    size_t got = 0;
    if (!cache_get(c, &k, &data, &got)) return false;
    ck_assert_uint_eq(got, size);
    ck_assert_int_eq(memcmp(data, want, size), 0);
    free(data);
    return true;
}

static uint64_t counted(struct coda_cache *c, enum cache_counter which)
{
    return stats_get(cache_stats(c), which);
}

/* ---- Hits and misses ---- */

START_TEST(hits_what_was_put)
{
    struct coda_cache *c = open_at(folder);
    ck_assert_str_eq(cache_dir(c), folder);
    ck_assert_str_eq(cache_problem(c), "");
    ck_assert(!hits(c, "k", "", 0));
    put(c, "k", "payload", 7);
    put(c, "", "", 0);
    ck_assert(hits(c, "k", "payload", 7));
    ck_assert(hits(c, "", "", 0));
    ck_assert(!hits(c, "K", "", 0));
    put(c, "k", "newer", 5); /* a put replaces */
    ck_assert_uint_eq(counted(c, COUNT_stored), 3);
    ck_assert_uint_eq(counted(c, COUNT_disk_hits), 2);
    cache_close(c);

    c = open_at(folder);
    ck_assert(hits(c, "k", "newer", 5));
    cache_close(c);
    ck_assert_int_eq(folder_entries(folder), 2);
}
END_TEST

START_TEST(keeps_errno)
{
    struct coda_cache *c = open_at(folder);
    errno = EDOM;
    ck_assert(!hits(c, "k", "", 0));
    put(c, "k", "x", 1);
    cache_close(open_at("/dev/null/nowhere"));
    ck_assert_int_eq(errno, EDOM);
    cache_close(c);
}
END_TEST

/* ---- Modes ---- */

static void expect_mode(const char *path, mode_t want)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_msg((st.st_mode & 07777) == want, "%s: 0%o instead of 0%o", path, st.st_mode & 07777, want);
}

/* Whatever the umask is. */
START_TEST(modes_are_as_asked)
{
    static const mode_t masks[] = {0, 022, 027, 077, 0777};
    static const struct {
        unsigned flags;
        mode_t root, file, dir;
    } cases[] = {{0, 0, 0600, 0700}, {CACHE_SHARED, 0, 0640, 02750}, {CACHE_SHARED, 02770, 0660, 02770}};
    mode_t mask = masks[_i % 5];
    const char *root = folder_under("a/b");
    unsigned flags = cases[_i / 5].flags;
    if (cases[_i / 5].root) {
        mkdir(folder_under("a"), 0700), mkdir(root, 0700);
        chmod(root, cases[_i / 5].root);
    }
    mode_t before = umask(mask);
    struct coda_cache *c = open_flags(root, flags);
    ck_assert_str_eq(cache_problem(c), "");
    put(c, "k", "x", 1);
    ck_assert(hits(c, "k", "x", 1));
    umask(before);
    struct cache_key k = key_of("k");
    char path[512];
    snprintf(path, sizeof path, "%s", folder_entry("a/b/", &k));
    expect_mode(path, cases[_i / 5].file);
    *strrchr(path, '/') = 0;
    expect_mode(path, cases[_i / 5].dir);
    expect_mode(folder_under("a/b/v2"), cases[_i / 5].dir);
    expect_mode(folder_under("a/b/v2/.size"), cases[_i / 5].file);
    expect_mode(folder_under("a/b/v2/.lock"), cases[_i / 5].file);
    expect_mode(folder_under("a/b"), cases[_i / 5].dir);
    cache_close(c);
}
END_TEST

/* ---- Where ---- */

static void expect_dir(const char *argument, const char *want)
{
    struct coda_cache *c = open_at(argument);
    ck_assert_str_eq(cache_dir(c), want);
    cache_close(c);
}

START_TEST(finds_its_folder)
{
    setenv("CODA_CACHE_DIR", folder_under("coda"), 1);
    setenv("XDG_CACHE_HOME", folder_under("xdg"), 1);
    setenv("HOME", folder_under("home"), 1);
    expect_dir(folder_under("argument"), folder_under("argument"));
    expect_dir(NULL, folder_under("coda"));
    setenv("CODA_CACHE_DIR", "", 1);
    expect_dir(NULL, folder_under("xdg/coda"));
    setenv("XDG_CACHE_HOME", "relative", 1); /* which the XDG specification says to ignore */
    expect_dir(NULL, folder_under("home/.cache/coda"));
    unsetenv("XDG_CACHE_HOME");
    expect_dir(NULL, folder_under("home/.cache/coda"));
}
END_TEST

START_TEST(works_without_a_home)
{
    setenv("HOME", "/nonexistent", 1);
    unsetenv("XDG_CACHE_HOME"), unsetenv("CODA_CACHE_DIR");
    if (!geteuid()) setenv("HOME", "/dev/null", 1); /* root could make the other */
    struct coda_cache *c = open_at(NULL);
    ck_assert_str_eq(cache_dir(c), "");
    ck_assert_str_ne(cache_problem(c), "");
    put(c, "k", "x", 1);
    ck_assert(!hits(c, "k", "x", 1));
    cache_close(c);
}
END_TEST

/* ---- Trust ---- */

static void expect_refused(const char *dir, unsigned flags, const char *why)
{
    struct coda_cache *c = open_flags(dir, flags);
    char stats[8192];
    ck_assert_str_eq(cache_dir(c), "");
    ck_assert_msg(strstr(cache_problem(c), why) && strstr(cache_problem(c), dir), "%s", cache_problem(c));
    put(c, "k", "x", 1);
    ck_assert(!hits(c, "k", "x", 1));
    ck_assert_int_gt((int)cache_stats_print(c, stats, sizeof stats), 0);
    ck_assert_ptr_nonnull(strstr(stats, why));
    cache_close(c);
}

START_TEST(refuses_what_others_can_write)
{
    static const mode_t group[] = {0770, 0720}, others[] = {0707, 0702, 01777, 0777};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(chmod(folder, group[i]), 0);
        expect_refused(folder, 0, "is writable by its group");
        struct coda_cache *c = open_flags(folder, CACHE_SHARED);
        ck_assert_str_eq(cache_problem(c), "");
        cache_close(c);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(chmod(folder, others[i]), 0);
        expect_refused(folder, 0, "is writable by others");
        expect_refused(folder, CACHE_SHARED, "is writable by others");
    }
    ck_assert_int_eq(chmod(folder, 0755), 0);
    expect_refused(folder, 0, "v2 that is writable by its group"); /* as the shared one made it */
    ck_assert_int_eq(chmod(folder_under("v2"), 0755), 0);
    expect_dir(folder, folder);
    ck_assert_int_eq(chmod(folder_under("v2"), 0777), 0);
    expect_refused(folder, 0, "v2 that is writable by others");
}
END_TEST

START_TEST(refuses_a_foreign_folder)
{
    if (geteuid()) { /* then / is somebody else's */
        expect_refused("/", 0, "belongs to another user");
        return;
    }
    ck_assert_int_eq(chown(folder, 12345, 0), 0);
    expect_refused(folder, 0, "belongs to another user");
    struct coda_cache *c = open_flags(folder, CACHE_SHARED);
    ck_assert_str_eq(cache_problem(c), "");
    cache_close(c);
}
END_TEST

START_TEST(refuses_what_is_no_folder)
{
    file_write(folder_under("file"), "x", 1);
    expect_refused(folder_under("file"), 0, "cannot be opened");
    expect_refused(folder_under("file/below"), 0, "cannot be opened");
    expect_refused("", 0, "is no path");
    ck_assert_int_eq(symlink(folder, folder_under("link")), 0);
    expect_refused(folder_under("link"), 0, "is a symbolic link");
    ck_assert_int_eq(symlink(folder, folder_under("v2")), 0);
    expect_refused(folder, 0, "v2 that is a symbolic link");
}
END_TEST

/* What was opened stays; what takes its name is not followed. */
START_TEST(follows_no_swap)
{
    struct coda_cache *c = open_at(folder_under("d"));
    put(c, "k", "x", 1);
    ck_assert_int_eq(rename(folder_under("d"), folder_under("mine")), 0);
    mkdir(folder_under("theirs"), 0777);
    ck_assert_int_eq(symlink(folder_under("theirs"), folder_under("d")), 0);
    put(c, "other", "y", 1);
    ck_assert(hits(c, "k", "x", 1) && hits(c, "other", "y", 1));
    ck_assert_int_eq(folder_names(folder_under("theirs")), 0);
    ck_assert_int_eq(folder_entries(folder_under("mine")), 2);
    cache_close(c);
}
END_TEST

/* ---- Read-only ---- */

/* In a child, as a user whom permissions bind: 0 if everything only missed. */
static int miss_in_read_only(void)
{
    if (!geteuid() &&
        (chown(folder, 12345, 12345) || setresgid(12345, 12345, 12345) || setresuid(12345, 12345, 12345)))
        return 2;
    struct coda_cache *c = open_at(folder);
    put(c, "before", "x", 1);
    if (!hits(c, "before", "x", 1)) return 3;
    char sub[512];
    snprintf(sub, sizeof sub, "%s", entry_path("before"));
    *strrchr(sub, '/') = 0;
    if (chmod(sub, 0500) || chmod(folder_under("v2"), 0500) || chmod(folder, 0500)) return 4;
    put(c, "after", "x", 1);
    put(c, "before", "y", 1);
    if (hits(c, "after", "x", 1)) return 5;
    if (!hits(c, "before", "x", 1)) return 6;
    if (counted(c, COUNT_store_failed_denied) != 2) return 8;
    cache_close(c);
    c = open_at(folder);
    bool ok = hits(c, "before", "x", 1);
    cache_close(c);
    chmod(folder, 0700), chmod(folder_under("v2"), 0700), chmod(sub, 0700);
    return ok ? 0 : 7;
}

START_TEST(misses_where_it_may_not_write) { ck_assert_int_eq(exit_of(miss_in_read_only), 0); }
END_TEST

START_TEST(writes_nothing_if_told_so)
{
    struct coda_cache *c = open_at(folder), *r;
    put(c, "k", "x", 1);
    put(c, "bad", "x", 1);
    cache_close(c);
    file_write(entry_path("bad"), "y", 1);
    r = open_flags(folder, CACHE_READ_ONLY);
    ck_assert(hits(r, "k", "x", 1));
    ck_assert(!hits(r, "bad", "x", 1));
    put(r, "new", "x", 1);
    ck_assert(!hits(r, "new", "x", 1));
    ck_assert_int_eq(access(entry_path("bad"), F_OK), 0); /* for its owner to heal */
    cache_close(r);
    expect_refused(folder_under("none"), CACHE_READ_ONLY, "cannot be opened: No such file");
    ck_assert_int_ne(access(folder_under("none"), F_OK), 0);
}
END_TEST

START_TEST(falls_back_on_read_only_directories)
{
    char list[1200];
    struct cache_key k = key_of("k"), l = key_of("l");
    struct coda_cache *a = open_at(folder_under("a")), *b = open_at(folder_under("b"));
    put(a, "k", "of a", 4);
    put(b, "l", "of b", 4);
    snprintf(list, sizeof list, "%s:%s:%s", folder_under("a"), folder_under("nowhere"), folder_under("b"));
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder_under("home"), .overlays = list});
    ck_assert(strstr(cache_problem(c), "nowhere") && cache_dir(c)[0]);
    ck_assert(hits(c, "k", "of a", 4) && hits(c, "l", "of b", 4));
    ck_assert_uint_eq(counted(c, COUNT_overlay_hits), 2);
    put(c, "k", "own", 3);
    ck_assert(hits(c, "k", "own", 3));
    ck_assert_int_eq(access(folder_entry("a/", &k), F_OK), 0);
    ck_assert_int_eq(access(folder_entry("home/", &l), F_OK), -1);
    cache_close(a), cache_close(b), cache_close(c);
}
END_TEST

/* ---- Damage ---- */

/* A file of these bytes is a miss, is removed, and the next put heals it. */
static void expect_rejected(struct coda_cache *c, const char *key, const void *bytes, size_t size)
{
    const char *path = entry_path(key);
    uint64_t healed = counted(c, COUNT_healed);
    file_write(path, bytes, size);
    ck_assert(!hits(c, key, "", 0));
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_uint_eq(counted(c, COUNT_healed), healed + 1);
    put(c, key, "payload", 7);
    ck_assert(hits(c, key, "payload", 7));
}

START_TEST(rejects_every_truncation)
{
    size_t size;
    struct coda_cache *c = open_at(folder);
    put(c, "some key", "payload", 7);
    unsigned char *entry = file_read(entry_path("some key"), &size);
    ck_assert_uint_eq(size, ENTRY_HEADER + 8 + 7);
    for (size_t n = 0; n < size; n++) expect_rejected(c, "some key", entry, n);
    memset(entry + size, 0, 64);
    for (size_t n = 1; n <= 64; n++) expect_rejected(c, "some key", entry, size + n);
    ck_assert_uint_eq(counted(c, COUNT_rejected_short), ENTRY_HEADER);
    free(entry);
    cache_close(c);
}
END_TEST

START_TEST(rejects_every_flipped_bit)
{
    size_t size;
    struct coda_cache *c = open_at(folder);
    put(c, "some key", "payload", 7);
    unsigned char *entry = file_read(entry_path("some key"), &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        entry[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect_rejected(c, "some key", entry, size);
        entry[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(entry);
    cache_close(c);
}
END_TEST

/* Two keys of one digest cannot be found, so one key's entry is given the other's name. */
START_TEST(rejects_another_key_of_the_same_name)
{
    size_t size;
    struct coda_cache *c = open_at(folder);
    put(c, "key a", "payload", 7);
    put(c, "key b", "payload", 7);
    unsigned char *entry = file_read(entry_path("key a"), &size);
    expect_rejected(c, "key b", entry, size);
    ck_assert_uint_eq(counted(c, COUNT_rejected_key), 1);
    ck_assert(hits(c, "key a", "payload", 7));
    free(entry);
    cache_close(c);
}
END_TEST

static void make_socket(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(name.sun_path, sizeof name.sun_path, "%.107s", path);
    (void)!bind(fd, (struct sockaddr *)&name, sizeof name);
    close(fd);
}

/* Links, pipes, folders and so on under an entry's name: a miss, at once, and healed. */
START_TEST(rejects_what_is_no_file)
{
    struct coda_cache *c = open_at(folder);
    put(c, "k", "x", 1);
    char path[512], elsewhere[512];
    snprintf(path, sizeof path, "%s", entry_path("k"));
    snprintf(elsewhere, sizeof elsewhere, "%s", folder_under("elsewhere"));
    ck_assert_int_eq(rename(path, elsewhere), 0);
    for (int i = 0; i < 5; i++) {
        unlink(path);
        if (i == 0) ck_assert_int_eq(symlink(elsewhere, path), 0);
        else if (i == 1) ck_assert_int_eq(mkfifo(path, 0600), 0);
        else if (i == 2) ck_assert_int_eq(mkdir(path, 0700), 0);
        else if (i == 3) make_socket(path);
        else ck_assert_int_eq(symlink("/dev/zero", path), 0);
        ck_assert_msg(!hits(c, "k", "x", 1), "%d", i);
        put(c, "k", "x", 1);
        ck_assert_msg(hits(c, "k", "x", 1), "%d", i);
    }
    ck_assert_int_eq(access(elsewhere, F_OK), 0);
    cache_close(c);
}
END_TEST

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

START_TEST(makes_its_folder_again)
{
    struct coda_cache *c = open_at(folder_under("d"));
    put(c, "k", "x", 1);
    for (int i = 0; i < 3; i++) {
        nftw(folder_under("d"), remove_one, 8, FTW_DEPTH | FTW_PHYS);
        ck_assert(!hits(c, "k", "x", 1));
        put(c, "k", "x", 1);
        ck_assert(hits(c, "k", "x", 1));
    }
    ck_assert_uint_eq(counted(c, COUNT_reopened), 3);
    cache_close(c);
}
END_TEST

/* Many threads find at once that their folder is gone. None of them makes it elsewhere. */
static void *put_often(void *ctx)
{
    struct coda_cache *c = ctx;
    for (int i = 0; i < 300; i++) put(c, "k", "x", 1);
    return NULL;
}

START_TEST(threads_make_their_folder_again)
{
    const char *path = folder_under("aa/bb/cc/dd");
    struct coda_cache *c = open_at(path);
    pthread_t thread[4];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, put_often, c), 0);
        for (int i = 0; i < 50; i++) nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS), usleep(200);
        for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    }
    ck_assert_str_eq(cache_dir(c), path);
    ck_assert_uint_gt(counted(c, COUNT_reopened), 0);
    static const char *const above[] = {"v2", "aa/v2", "aa/bb/v2", "aa/bb/cc/v2"};
    for (int i = 0; i < 4; i++) ck_assert_msg(access(folder_under(above[i]), F_OK) != 0, "%s", above[i]);
    cache_close(c);
}
END_TEST

/* A slash at the end is none of the name: the mode is the folder's own, a link is no folder. */
START_TEST(ends_in_slashes)
{
    struct coda_cache *c = open_flags(folder_under("s//"), CACHE_SHARED);
    ck_assert_str_eq(cache_problem(c), "");
    expect_mode(folder_under("s"), 02750);
    ck_assert_str_eq(cache_dir(c), folder_under("s"));
    cache_close(c);
    ck_assert_int_eq(symlink(folder_under("s"), folder_under("link")), 0);
    c = open_at(folder_under("link/"));
    ck_assert_msg(strstr(cache_problem(c), "link is a symbolic link"), "%s", cache_problem(c));
    cache_close(c);
}
END_TEST

/* A file size limit stands for a full disk: the write fails half way. */
static int put_over_limit(void)
{
    static char big[100000];
    signal(SIGXFSZ, SIG_DFL); /* which would end us */
    struct rlimit limit = {50000, 50000};
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    struct coda_cache *c = open_at(folder);
    put(c, "k", big, sizeof big);
    bool hit = hits(c, "k", big, sizeof big);
    put(c, "small", "x", 1);
    bool small = hits(c, "small", "x", 1);
    if (counted(c, COUNT_store_failed_space) != 1) return 5;
    cache_close(c);
    return hit ? 3 : small ? 0 : 4;
}

START_TEST(leaves_nothing_on_a_full_disk)
{
    ck_assert_int_eq(exit_of(put_over_limit), 0);
    ck_assert_int_eq(folder_entries(folder), 1);
}
END_TEST

/* ---- Many at once ---- */

enum { KEYS = 8, PAYLOAD = 40000 };

/* Every key has one payload, so that any hit can be judged. */
static void fill(unsigned char *p, int key)
{
    for (int i = 0; i < PAYLOAD; i++) p[i] = (unsigned char)(i * 31 + key * 7 + (i >> 8));
}

static bool right(struct coda_cache *c, int key, bool *hit)
{
    char text[32];
    unsigned char want[PAYLOAD];
    void *data;
    size_t size;
    snprintf(text, sizeof text, "key %d", key);
    fill(want, key);
    struct cache_key k = key_of(text);
    *hit = cache_get(c, &k, &data, &size);
    if (!*hit) return true;
    bool ok = size == PAYLOAD && !memcmp(data, want, PAYLOAD);
    free(data);
    return ok;
}

/* Reads, writes and now and then damages random entries. NULL if every hit was right. */
static void *busy(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    struct coda_cache *c = open_at(folder);
    void *failure = NULL;
    for (int i = 0; i < 300 && !failure; i++) {
        char text[32], hex[DIGEST_HEX], path[512];
        unsigned char payload[PAYLOAD];
        bool hit;
        int key = rand_r(&state) % KEYS, what = rand_r(&state) % 8;
        snprintf(text, sizeof text, "key %d", key);
        struct cache_key k = key_of(text);
        digest_hex(hex, &k.digest);
        snprintf(path, sizeof path, "%s/v2/%.1s/%s", folder, hex, hex + 1);
        fill(payload, key);
        if (what < 3) put(c, text, payload, PAYLOAD);
        else if (what == 3) (void)!truncate(path, rand_r(&state) % PAYLOAD);
        else if (what == 4) unlink(path);
        else if (!right(c, key, &hit)) failure = folder;
    }
    cache_close(c);
    return failure;
}

static int busy_process(void)
{
    pthread_t other;
    void *a, *b;
    uintptr_t seed = (uintptr_t)getpid();
    if (pthread_create(&other, NULL, busy, (void *)(seed * 2 + 1))) return 2;
    a = busy((void *)(seed * 2));
    pthread_join(other, &b);
    return a || b;
}

static int names_left(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    return type == FTW_F && !strncmp(path + where->base, TEMPORARY, sizeof TEMPORARY - 1);
}

START_TEST(is_shared_by_processes_and_threads)
{
    enum { PROCESSES = SANITIZED ? 4 : 8 };
    for (int i = 0; i < PROCESSES; i++)
        if (!fork()) _exit(busy_process());
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        ck_assert_int_gt(wait(&status), 0);
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
    }
    ck_assert_int_eq(nftw(folder, names_left, 8, FTW_PHYS), 0); /* no temporary file is left */
    struct coda_cache *c = open_at(folder);
    for (int key = 0; key < KEYS; key++) {
        bool hit;
        ck_assert(right(c, key, &hit));
        unsigned char payload[PAYLOAD];
        char text[32];
        snprintf(text, sizeof text, "key %d", key);
        fill(payload, key);
        put(c, text, payload, PAYLOAD);
        ck_assert(right(c, key, &hit) && hit);
    }
    cache_close(c);
}
END_TEST

static void write_for_ever(const unsigned char *payload, size_t size)
{
    struct coda_cache *c = open_at(folder);
    for (;;) put(c, "k", payload, size);
}

START_TEST(shows_nothing_of_a_killed_writer)
{
    const size_t size = 1 << 20;
    unsigned char *payload = malloc(size);
    memset(payload, 0x5a, size);
    struct coda_cache *c = open_at(folder);
    for (int round = 0; round < 40; round++) {
        unlink(entry_path("k"));
        pid_t child = fork();
        if (!child) write_for_ever(payload, size);
        usleep((useconds_t)(200 + round * 137));
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        bool there = access(entry_path("k"), F_OK) == 0;
        ck_assert_int_eq(hits(c, "k", payload, size), there);
    }
    cache_close(c);
    free(payload);
}
END_TEST

TESTS(disk, AROUND(set_up, tear_down), ONE(hits_what_was_put), ONE(threads_make_their_folder_again),
      ONE(is_shared_by_processes_and_threads), ONE(shows_nothing_of_a_killed_writer), CASE("alone"),
      TAG("alone"), AROUND(set_up, tear_down), EACH(modes_are_as_asked, 15), ONE(keeps_errno),
      ONE(finds_its_folder), ONE(works_without_a_home), ONE(refuses_what_others_can_write),
      ONE(refuses_a_foreign_folder), ONE(refuses_what_is_no_folder), ONE(follows_no_swap),
      ONE(misses_where_it_may_not_write), ONE(writes_nothing_if_told_so),
      ONE(falls_back_on_read_only_directories), ONE(rejects_every_truncation), ONE(rejects_every_flipped_bit),
      ONE(rejects_another_key_of_the_same_name), ONE(rejects_what_is_no_file), ONE(makes_its_folder_again),
      ONE(ends_in_slashes), ONE(leaves_nothing_on_a_full_disk));
