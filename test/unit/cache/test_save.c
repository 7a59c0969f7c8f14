/* test_save.c -- a file that a user names is replaced at once, or written as it stands; and no write ends
 * the process that does it. */
#include "inside.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char why[CACHE_ERROR];
static const char text[] = "what is saved";

static void expect_text(const char *path, const char *want)
{
    size_t size;
    unsigned char *now = file_read(path, &size);
    ck_assert_msg(size == strlen(want) && !memcmp(now, want, size), "%s has %zu bytes", path, size);
    free(now);
}

static void save(const char *path) { ck_assert_msg(file_save(path, text, strlen(text), why), "%s", why); }

static void expect_unsaved(const char *path, const char *reason)
{
    ck_assert(!file_save(path, text, strlen(text), why));
    ck_assert_msg(strstr(why, "cannot be written") && strstr(why, reason), "%s", why);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    ck_assert_int_eq(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

/* ---- Plain files ---- */

START_TEST(a_new_file_honours_the_umask)
{
    static const mode_t masks[] = {0, 022, 027, 077, 0777};
    for (int i = 0; i < 5; i++) {
        mode_t before = umask(masks[i]);
        save(folder_under("a"));
        umask(before);
        ck_assert_int_eq(mode_of(folder_under("a")), 0644 & ~masks[i]);
        unlink(folder_under("a"));
    }
}
END_TEST

START_TEST(an_old_file_keeps_its_mode_and_readers)
{
    static const mode_t modes[] = {0600, 0640, 0644, 0664, 0400, 0755};
    char old[8] = "";
    for (int i = 0; i < 6; i++) {
        const char *path = folder_under("a");
        file_write(path, "old", 3);
        ck_assert_int_eq(chmod(path, modes[i]), 0);
        int fd = open(path, O_RDONLY);
        save(path);
        ck_assert_int_eq(mode_of(path), modes[i]);
        ck_assert(read(fd, old, 8) == 3 && !memcmp(old, "old", 3)); /* who had it open has it still */
        close(fd);
        ck_assert_int_eq(chmod(path, 0600), 0);
        expect_text(path, text);
    }
    ck_assert_int_eq(folder_names(folder), 1);
}
END_TEST

/* A chain of links, and one that leads nowhere yet. */
START_TEST(a_link_stays_a_link)
{
    ck_assert_int_eq(mkdir(folder_under("far"), 0700), 0);
    file_write(folder_under("far/file"), "old", 3);
    ck_assert_int_eq(chmod(folder_under("far/file"), 0640), 0);
    ck_assert_int_eq(symlink("far/file", folder_under("near")), 0);
    ck_assert_int_eq(symlink(folder_under("near"), folder_under("a")), 0);
    save(folder_under("a"));
    ck_assert(S_ISLNK(({
        struct stat st;
        lstat(folder_under("a"), &st);
        st.st_mode;
    })));
    expect_text(folder_under("far/file"), text);
    ck_assert_int_eq(mode_of(folder_under("far/file")), 0640);
    ck_assert_int_eq(symlink("far/none", folder_under("b")), 0);
    save(folder_under("b"));
    expect_text(folder_under("far/none"), text);
    ck_assert_int_eq(folder_names(folder_under("far")), 2);
    ck_assert_int_eq(symlink("loop", folder_under("loop")), 0);
    expect_unsaved(folder_under("loop"), "symbolic links");
}
END_TEST

START_TEST(refuses_what_it_cannot_be)
{
    expect_unsaved(folder, "directory");
    expect_unsaved(folder_under("new/"), "directory");
    expect_unsaved(folder_under("no/folder"), "No such file");
    expect_unsaved("", "No such file");
    file_write(folder_under("file"), "x", 1);
    expect_unsaved(folder_under("file/below"), "Not a directory");
    char long_name[600];
    memset(long_name, 'x', sizeof long_name - 1), long_name[sizeof long_name - 1] = 0;
    expect_unsaved(folder_under(long_name), "too long");
    memset(long_name + 255, 0, 1);
    save(folder_under(long_name)); /* as long as a name may be */
    ck_assert_int_eq(folder_names(folder), 2);
}
END_TEST

START_TEST(sweeps_what_was_abandoned)
{
    char dead[64] = ".a.coda-0123456789abcdef", live[64] = ".a.coda-fedcba9876543210",
         other[] = ".b.coda-0123456789abcdef";
    file_write(folder_under(dead), "dead", 4);
    file_write(folder_under(live), "live", 4);
    file_write(folder_under(other), "other", 5);
    file_write(folder_under(".a.coda-short"), "", 0);
    ck_assert_int_eq(mkfifo(folder_under(".a.coda-1111111111111111"), 0600), 0);
    int fd = open(folder_under(live), O_RDWR | O_CLOEXEC);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &whole), 0);
    save(folder_under("a"));
    ck_assert(access(folder_under(dead), F_OK) && !access(folder_under(live), F_OK));
    ck_assert(!access(folder_under(other), F_OK) && !access(folder_under(".a.coda-short"), F_OK));
    close(fd);
    save(folder_under("a"));
    ck_assert(access(folder_under(live), F_OK));
}
END_TEST

/* ---- What is no plain file ---- */

START_TEST(writes_straight_into_devices)
{
    struct stat before, after;
    ck_assert_int_eq(stat("/dev/null", &before), 0);
    save("/dev/null");
    ck_assert_int_eq(stat("/dev/null", &after), 0);
    ck_assert(S_ISCHR(after.st_mode) && before.st_rdev == after.st_rdev && before.st_mode == after.st_mode);
    ck_assert_int_eq(symlink("/dev/full", folder_under("full")), 0);
    expect_unsaved(folder_under("full"), "No space");
    ck_assert_int_eq(folder_names(folder), 1);
}
END_TEST

enum { BIG = 1 << 20 };

static void *read_to_end(void *path)
{
    static char got[BIG + 1];
    size_t n = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t r; (r = read(fd, got + n, sizeof got - n)) > 0;) n += (size_t)r;
    close(fd);
    return (void *)(uintptr_t)n;
}

START_TEST(writes_straight_into_a_fifo)
{
    static char big[BIG];
    pthread_t reader;
    void *got;
    const char *path = folder_under("fifo");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(pthread_create(&reader, NULL, read_to_end, (void *)(uintptr_t)path), 0);
    ck_assert_msg(file_save(path, big, BIG, why), "%s", why);
    pthread_join(reader, &got);
    ck_assert_uint_eq((uintptr_t)got, BIG);
    ck_assert_int_eq(folder_names(folder), 1);
}
END_TEST

/* A descriptor goes on where it stands, and does not mind if it does not block. */
static int write_descriptor(void)
{
    static char big[BIG];
    char path[32], got[64] = "";
    int fd = open(folder_under("a"), O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2];
    if (fd < 0 || write(fd, "begun ", 6) != 6 || dup2(fd, 1) != 1) return 1;
    if (!file_save("/dev/stdout", text, strlen(text), why)) return 2;
    if (pread(fd, got, 63, 0) != 19 || strcmp(got, "begun what is saved")) return 3;
    if (pipe2(ends, O_NONBLOCK)) return 4;
    pid_t child = fork();
    if (!child) {
        close(ends[1]);
        fcntl(ends[0], F_SETFL, 0);
        usleep(20000);
        size_t n = 0;
        for (ssize_t r; (r = read(ends[0], big, 5000)) > 0;) n += (size_t)r;
        _exit(n != BIG);
    }
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    if (!file_save(path, big, BIG, why)) return 5;
    close(ends[1]);
    int status;
    return waitpid(child, &status, 0) == child && !status ? 0 : 6;
}

START_TEST(writes_straight_into_a_descriptor)
{
    ck_assert_int_eq(exit_of(write_descriptor), 0);
    expect_unsaved("/dev/fd/77777", "Bad file descriptor");
}
END_TEST

/* ---- Signals ---- */

static volatile sig_atomic_t caught;
static void note(int number) { caught = number; }

/* A dead pipe and a size limit are errors; the host's handler is not called, its mask is as it was, and
 * what was pending before is so after. */
static int write_against_signals(void)
{
    sigset_t mask, pending;
    int ends[2];
    char path[32];
    struct rlimit limit = {100, 100};
    static char big[1000];
    signal(SIGXFSZ, note), signal(SIGPIPE, note);
    if (pipe(ends) || close(ends[0]) || setrlimit(RLIMIT_FSIZE, &limit)) return 1;
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    for (int round = 0; round < 3; round++) {
        if (round == 2) signal(SIGXFSZ, SIG_DFL), signal(SIGPIPE, SIG_DFL);
        if (file_save(path, text, 5, why) || !strstr(why, "pipe")) return 2;
        if (file_save(folder_under("a"), big, sizeof big, why) || !strstr(why, "large")) return 3;
        if (caught) return 4;
        sigemptyset(&mask), sigpending(&pending);
        if (sigismember(&pending, SIGXFSZ) || sigismember(&pending, SIGPIPE)) return 5;
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        if (sigismember(&mask, SIGXFSZ) || sigismember(&mask, SIGPIPE)) return 6;
    }
    sigemptyset(&mask), sigaddset(&mask, SIGPIPE);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    raise(SIGPIPE); /* the host's own */
    if (file_save(path, text, 5, why)) return 7;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) && folder_names(folder) == 0 ? 0 : 8;
}

START_TEST(no_write_raises_a_signal) { ck_assert_int_eq(exit_of(write_against_signals), 0); }
END_TEST

/* The host has closed its first three descriptors: nothing of ours becomes one of them. */
static int open_without_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++) close(fd);
    struct coda_cache *c =
        cache_open(&(struct cache_options){.dir = folder_under("c"), .record = folder_under("r")});
    struct cache_key k = cache_key(CACHE_TUNING, "k\n", "");
    void *data;
    size_t size;
    cache_put(c, &k, "x", 1);
    bool found = cache_get(c, &k, &data, &size);
    bool low = false;
    for (int fd = 0; fd < 3; fd++) low = low || fcntl(fd, F_GETFD) >= 0;
    for (int fd = 3; fd < 64; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && fd == c->dir.fd && !(flags & FD_CLOEXEC)) return 3;
    }
    return low ? 1 : !found ? 2 : 0;
}

START_TEST(no_descriptor_is_standard) { ck_assert_int_eq(exit_of(open_without_descriptors), 0); }
END_TEST

TESTS(save, AROUND(folder_make, folder_remove), ONE(a_new_file_honours_the_umask),
      ONE(an_old_file_keeps_its_mode_and_readers), ONE(a_link_stays_a_link), ONE(refuses_what_it_cannot_be),
      ONE(sweeps_what_was_abandoned), ONE(writes_straight_into_devices), ONE(writes_straight_into_a_fifo),
      ONE(writes_straight_into_a_descriptor), ONE(no_write_raises_a_signal), ONE(no_descriptor_is_standard));
