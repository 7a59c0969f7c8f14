/* test_cache.c -- the cache hits on what was put, and only misses on everything else. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "old.h"

static const char *const variables[] = {"CODA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
enum { VARIABLES = sizeof variables / sizeof *variables };
static char *saved[VARIABLES];
static char root[256]; /* a fresh folder for each test */

static void set_up(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/coda-cache-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (int i = 0; i < VARIABLES; i++) saved[i] = getenv(variables[i]) ? strdup(getenv(variables[i])) : NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void tear_down(void)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    for (int i = 0; i < VARIABLES; i++) {
        if (saved[i]) setenv(variables[i], saved[i], 1);
        else unsetenv(variables[i]);
        free(saved[i]);
    }
}

static const char *under(const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

/* The file of a key in a cache below root, by the layout that disk.c documents. */
static const char *entry_below(const char *folder, const char *key, const char *suffix)
{
    char hex[33], name[128];
    old_digest(hex, key, strlen(key));
    snprintf(name, sizeof name, "%sv1/%.2s/%s%s", folder, hex, hex + 2, suffix);
    return under(name);
}

static const char *entry_path(const char *key, const char *suffix) { return entry_below("", key, suffix); }

static bool hits(struct old_cache *c, const char *key, const void *want, size_t size)
{
    void *data = NULL;
    size_t got = 0;
    if (!old_get(c, key, &data, &got)) return false;
    ck_assert_uint_eq(got, size);
    ck_assert_int_eq(memcmp(data, want, size), 0);
    free(data);
    return true;
}

static unsigned char *read_whole(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    unsigned char *p = malloc(1 << 20);
    *size = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static void write_whole(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, size, f), size);
    ck_assert_int_eq(fclose(f), 0);
}

/* ---- Hits and misses ---- */

START_TEST(digest_is_xxh3_128)
{
    char hex[33];
    old_digest(hex, "", 0);
    ck_assert_str_eq(hex, "99aa06d3014798d86001c324468d497f");
    old_digest(hex, NULL, 0);
    ck_assert_str_eq(hex, "99aa06d3014798d86001c324468d497f");
}
END_TEST

START_TEST(hits_what_was_put)
{
    struct old_cache *c = old_open(root);
    ck_assert_str_eq(old_dir(c), root);
    ck_assert_str_eq(old_problem(c), "");
    ck_assert(!hits(c, "k", "", 0));
    old_put(c, "k", "payload", 7, "note");
    old_put(c, "", "", 0, NULL);
    ck_assert(hits(c, "k", "payload", 7));
    ck_assert(hits(c, "", "", 0));
    ck_assert(!hits(c, "K", "", 0));
    old_put(c, "k", "newer", 5, "other note");
    old_close(c);

    c = old_open(root);
    ck_assert(hits(c, "k", "newer", 5));
    old_close(c);
    size_t size;
    unsigned char *note = read_whole(entry_path("k", ".cu"), &size);
    ck_assert_uint_eq(size, 10);
    ck_assert_int_eq(memcmp(note, "other note", 10), 0);
    free(note);
}
END_TEST

START_TEST(is_private)
{
    struct stat st;
    umask(0);
    struct old_cache *c = old_open(under("a/b/c"));
    old_put(c, "k", "x", 1, "n");
    ck_assert(hits(c, "k", "x", 1));
    const char *made[] = {under("a"), under("a/b"), under("a/b/c"), under("a/b/c/v1")};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(stat(made[i], &st), 0);
        ck_assert_int_eq(st.st_mode & 0777, 0700);
    }
    old_close(c);
    ck_assert_int_eq(stat(entry_below("a/b/c/", "k", ".kernel"), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
}
END_TEST

START_TEST(keeps_errno)
{
    struct old_cache *c = old_open(root);
    errno = EDOM;
    ck_assert(!hits(c, "k", "", 0));
    old_put(c, "k", "x", 1, NULL);
    old_close(old_open("/dev/null/nowhere"));
    ck_assert_int_eq(errno, EDOM);
    old_close(c);
}
END_TEST

/* ---- Where ---- */

static void expect_dir(const char *argument, const char *want)
{
    struct old_cache *c = old_open(argument);
    ck_assert_str_eq(old_dir(c), want);
    old_close(c);
}

START_TEST(finds_its_folder)
{
    setenv("CODA_CACHE_DIR", under("coda"), 1);
    setenv("XDG_CACHE_HOME", under("xdg"), 1);
    setenv("HOME", under("home"), 1);
    expect_dir(under("argument"), under("argument"));
    expect_dir(NULL, under("coda"));
    setenv("CODA_CACHE_DIR", "", 1);
    expect_dir(NULL, under("xdg/coda"));
    setenv("XDG_CACHE_HOME", "relative", 1); /* which the XDG specification says to ignore */
    expect_dir(NULL, under("home/.cache/coda"));
    unsetenv("XDG_CACHE_HOME");
    expect_dir(NULL, under("home/.cache/coda"));
}
END_TEST

static void expect_refused(const char *dir, const char *why)
{
    struct old_cache *c = old_open(dir);
    ck_assert_str_eq(old_dir(c), "");
    ck_assert_msg(strstr(old_problem(c), why) && strstr(old_problem(c), dir), "%s", old_problem(c));
    old_put(c, "k", "x", 1, "n");
    ck_assert(!hits(c, "k", "x", 1));
    old_close(c);
}

START_TEST(refuses_what_others_can_write)
{
    static const mode_t modes[] = {0770, 0720, 0707, 0702, 01777};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(chmod(root, modes[i]), 0);
        expect_refused(root, "writable by its group or by others");
    }
    ck_assert_int_eq(chmod(root, 0755), 0);
    expect_dir(root, root);
}
END_TEST

START_TEST(refuses_a_foreign_folder)
{
    if (geteuid()) { /* then / is somebody else's */
        expect_refused("/", "belongs to another user");
        return;
    }
    ck_assert_int_eq(chown(root, 12345, 0), 0);
    expect_refused(root, "belongs to another user");
}
END_TEST

START_TEST(refuses_what_is_no_folder)
{
    write_whole(under("file"), "x", 1);
    expect_refused(under("file"), "cannot be opened");
    expect_refused(under("file/below"), "cannot be opened");
    expect_refused("", "is no path");
    ck_assert_int_eq(symlink(root, under("v1")), 0);
    expect_refused(root, "v1");
}
END_TEST

/* In a child, as a user whom permissions bind: 0 if everything only missed. */
static int miss_in_read_only(void)
{
    if (!geteuid() && (chown(root, 12345, 12345) || setresgid(12345, 12345, 12345) ||
                       setresuid(12345, 12345, 12345)))
        return 2;
    struct old_cache *c = old_open(root);
    old_put(c, "before", "x", 1, NULL);
    if (!hits(c, "before", "x", 1)) return 3;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", entry_path("before", ""));
    *strrchr(folder, '/') = 0;
    if (chmod(folder, 0500) || chmod(under("v1"), 0500) || chmod(root, 0500)) return 4;
    old_put(c, "after", "x", 1, NULL);
    old_put(c, "before", "y", 1, NULL);
    if (hits(c, "after", "x", 1)) return 5;
    if (!hits(c, "before", "x", 1)) return 6;
    old_close(c);
    c = old_open(root);
    bool ok = hits(c, "before", "x", 1);
    old_close(c);
    chmod(root, 0700), chmod(under("v1"), 0700), chmod(folder, 0700);
    return ok ? 0 : 7;
}

static int exit_of(int (*body)(void))
{
    int status;
    pid_t child = fork();
    if (!child) _exit(body());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

START_TEST(misses_where_it_may_not_write) { ck_assert_int_eq(exit_of(miss_in_read_only), 0); }
END_TEST

/* ---- Damage ---- */

static int files_in(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) closedir(d);
    return n;
}

/* A file of these bytes is a miss, is removed, and the next put heals it. */
static void expect_rejected(struct old_cache *c, const char *key, const void *bytes, size_t size)
{
    const char *path = entry_path(key, ".kernel");
    write_whole(path, bytes, size);
    ck_assert(!hits(c, key, "", 0));
    ck_assert_int_ne(access(path, F_OK), 0);
    old_put(c, key, "payload", 7, NULL);
    ck_assert(hits(c, key, "payload", 7));
}

START_TEST(rejects_every_truncation)
{
    size_t size;
    struct old_cache *c = old_open(root);
    old_put(c, "some key", "payload", 7, NULL);
    unsigned char *entry = read_whole(entry_path("some key", ".kernel"), &size);
    ck_assert_uint_eq(size, 56 + 8 + 7);
    for (size_t n = 0; n < size; n++) expect_rejected(c, "some key", entry, n);
    entry[size] = 0;
    expect_rejected(c, "some key", entry, size + 1);
    free(entry);
    old_close(c);
}
END_TEST

START_TEST(rejects_every_flipped_bit)
{
    size_t size;
    struct old_cache *c = old_open(root);
    old_put(c, "some key", "payload", 7, NULL);
    unsigned char *entry = read_whole(entry_path("some key", ".kernel"), &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        entry[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect_rejected(c, "some key", entry, size);
        entry[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(entry);
    old_close(c);
}
END_TEST

/* Two keys of one digest cannot be found, so one key's entry is given the other's name. */
START_TEST(rejects_another_key_of_the_same_name)
{
    size_t size;
    struct old_cache *c = old_open(root);
    old_put(c, "key a", "payload", 7, NULL);
    old_put(c, "key b", "payload", 7, NULL);
    unsigned char *entry = read_whole(entry_path("key a", ".kernel"), &size);
    expect_rejected(c, "key b", entry, size);
    ck_assert(hits(c, "key a", "payload", 7));
    free(entry);
    old_close(c);
}
END_TEST

START_TEST(does_not_follow_links)
{
    struct old_cache *c = old_open(root);
    old_put(c, "k", "x", 1, NULL);
    const char *path = entry_path("k", ".kernel");
    ck_assert_int_eq(rename(path, under("elsewhere")), 0);
    ck_assert_int_eq(symlink(under("elsewhere"), path), 0);
    ck_assert(!hits(c, "k", "x", 1));
    old_put(c, "k", "x", 1, NULL);
    ck_assert(hits(c, "k", "x", 1));
    ck_assert_int_eq(access(under("elsewhere"), F_OK), 0);
    old_close(c);
}
END_TEST

START_TEST(survives_its_folder_vanishing)
{
    struct old_cache *c = old_open(under("d"));
    old_put(c, "k", "x", 1, "n");
    nftw(under("d"), remove_one, 8, FTW_DEPTH | FTW_PHYS);
    ck_assert(!hits(c, "k", "x", 1));
    old_put(c, "k", "x", 1, "n");
    old_close(c);
    c = old_open(under("d"));
    old_put(c, "k", "x", 1, "n");
    ck_assert(hits(c, "k", "x", 1));
    old_close(c);
}
END_TEST

/* A file size limit stands for a full disk: the write fails half way. */
static int put_over_limit(void)
{
    static char big[100000];
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {50000, 50000};
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    struct old_cache *c = old_open(root);
    old_put(c, "k", big, sizeof big, "n");
    bool hit = hits(c, "k", big, sizeof big);
    old_put(c, "small", "x", 1, NULL);
    bool small = hits(c, "small", "x", 1);
    old_close(c);
    return hit ? 3 : small ? 0 : 4;
}

START_TEST(leaves_nothing_on_a_full_disk)
{
    char folder[512];
    ck_assert_int_eq(exit_of(put_over_limit), 0);
    snprintf(folder, sizeof folder, "%s", entry_path("k", ""));
    *strrchr(folder, '/') = 0;
    ck_assert_int_eq(access(folder, F_OK), 0);
    ck_assert_int_eq(files_in(folder), 0);
}
END_TEST

/* ---- Many at once ---- */

enum { KEYS = 8, PAYLOAD = 40000 };

/* Every key has one payload, so that any hit can be judged. */
static void fill(unsigned char *p, int key)
{
    for (int i = 0; i < PAYLOAD; i++) p[i] = (unsigned char)(i * 31 + key * 7 + (i >> 8));
}

static bool right(struct old_cache *c, int key, bool *hit)
{
    char text[32];
    unsigned char want[PAYLOAD];
    void *data;
    size_t size;
    snprintf(text, sizeof text, "key %d", key);
    fill(want, key);
    *hit = old_get(c, text, &data, &size);
    if (!*hit) return true;
    bool ok = size == PAYLOAD && !memcmp(data, want, PAYLOAD);
    free(data);
    return ok;
}

/* Reads, writes and now and then damages random entries. NULL if every hit was right. */
static void *busy(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    struct old_cache *c = old_open(root);
    void *failure = NULL;
    for (int i = 0; i < 300 && !failure; i++) {
        char text[32], hex[33], path[512];
        unsigned char payload[PAYLOAD];
        bool hit;
        int key = rand_r(&state) % KEYS, what = rand_r(&state) % 8;
        snprintf(text, sizeof text, "key %d", key);
        old_digest(hex, text, strlen(text));
        snprintf(path, sizeof path, "%s/v1/%.2s/%s.kernel", root, hex, hex + 2);
        fill(payload, key);
        if (what < 3) old_put(c, text, payload, PAYLOAD, text);
        else if (what == 3) (void)!truncate(path, rand_r(&state) % PAYLOAD);
        else if (what == 4) unlink(path);
        else if (!right(c, key, &hit)) failure = root;
    }
    old_close(c);
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
    return type == FTW_F && path[where->base] == '.';
}

START_TEST(is_shared_by_processes_and_threads)
{
    enum { PROCESSES = 8 };
    for (int i = 0; i < PROCESSES; i++)
        if (!fork()) _exit(busy_process());
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        ck_assert_int_gt(wait(&status), 0);
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
    }
    ck_assert_int_eq(nftw(root, names_left, 8, FTW_PHYS), 0); /* no temporary file is left */
    struct old_cache *c = old_open(root);
    for (int key = 0; key < KEYS; key++) {
        bool hit;
        ck_assert(right(c, key, &hit));
        unsigned char payload[PAYLOAD];
        char text[32];
        snprintf(text, sizeof text, "key %d", key);
        fill(payload, key);
        old_put(c, text, payload, PAYLOAD, NULL);
        ck_assert(right(c, key, &hit) && hit);
    }
    old_close(c);
}
END_TEST

static void write_for_ever(const unsigned char *payload, size_t size)
{
    struct old_cache *c = old_open(root);
    for (;;) old_put(c, "k", payload, size, "note");
}

START_TEST(shows_nothing_of_a_killed_writer)
{
    const size_t size = 1 << 20;
    unsigned char *payload = malloc(size);
    memset(payload, 0x5a, size);
    struct old_cache *c = old_open(root);
    for (int round = 0; round < 40; round++) {
        unlink(entry_path("k", ".kernel"));
        pid_t child = fork();
        if (!child) write_for_ever(payload, size);
        usleep((useconds_t)(200 + round * 137));
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        bool there = access(entry_path("k", ".kernel"), F_OK) == 0;
        ck_assert_int_eq(hits(c, "k", payload, size), there);
    }
    old_close(c);
    free(payload);
}
END_TEST

Suite *old_cache_suite(void);
Suite *old_cache_suite(void)
{
    Suite *s = suite_create("cache");
    TCase *t = tcase_create("cache");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, digest_is_xxh3_128);
    tcase_add_test(t, hits_what_was_put);
    tcase_add_test(t, is_private);
    tcase_add_test(t, keeps_errno);
    tcase_add_test(t, finds_its_folder);
    tcase_add_test(t, refuses_what_others_can_write);
    tcase_add_test(t, refuses_a_foreign_folder);
    tcase_add_test(t, refuses_what_is_no_folder);
    tcase_add_test(t, misses_where_it_may_not_write);
    tcase_add_test(t, rejects_every_truncation);
    tcase_add_test(t, rejects_every_flipped_bit);
    tcase_add_test(t, rejects_another_key_of_the_same_name);
    tcase_add_test(t, does_not_follow_links);
    tcase_add_test(t, survives_its_folder_vanishing);
    tcase_add_test(t, leaves_nothing_on_a_full_disk);
    tcase_add_test(t, is_shared_by_processes_and_threads);
    tcase_add_test(t, shows_nothing_of_a_killed_writer);
    suite_add_tcase(s, t);
    return s;
}
