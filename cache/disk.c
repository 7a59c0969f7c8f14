/*
 * disk.c -- get and put of one directory.
 *
 * A reader copies the whole file before it looks at it: no file of the cache is ever mapped, so that
 * anybody may remove or cut any file at any moment. What is rejected is removed, guarded by the file's
 * identity, so that the next put heals it and a newer file of the same name stays.
 *
 * A writer fills a file that has no name (O_TMPFILE) and links it to its name: a kill before that leaves
 * nothing at all. Where that cannot be, the file has a random name and is locked while it is written, so
 * that evict.c can tell the abandoned ones. link, and not rename: the first of two writers wins, the
 * second keeps its own bytes, and on NFS nobody's open file goes stale. rename only replaces, for texts
 * that are allowed to change. Nothing is flushed unless CACHE_DURABLE asks: what a power failure tears,
 * the digest rejects.
 */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { BUMP_S = 3600, NAME = 64 };
enum { OPEN_FILE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK };

/* ---- Get ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool disk_remove(int folder, const char *name, const struct stat *seen)
{
    struct stat now;
    name += FOLDER_DIGITS;
    if (fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) || !same_file(&now, seen)) return false;
    return !unlinkat(folder, name, S_ISDIR(now.st_mode) ? AT_REMOVEDIR : 0);
}

static bool before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* An access time of our own, for the file system's is often switched off. It moves if something was stored
 * since the last use, which is when the order matters, and else once an hour. */
static void bump(const struct dir *d, int folder, const char *name, const struct stat *st)
{
    struct timespec now, times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    struct stat account;
    if (d->flags & CACHE_READ_ONLY || clock_gettime(CLOCK_REALTIME_COARSE, &now)) return;
    if (llabs((long long)now.tv_sec - st->st_mtim.tv_sec) > BUMP_S ||
        (!fstatat(d->fd, ".size", &account, AT_SYMLINK_NOFOLLOW) && before(&st->st_mtim, &account.st_mtim)))
        utimensat(folder, name + FOLDER_DIGITS, times, AT_SYMLINK_NOFOLLOW);
}

/* A large file is read if its header promises as much: one of nothing but holes takes no memory. */
static bool is_promised(int fd, size_t size)
{
    enum { LARGE = 1 << 20 };
    unsigned char header[ENTRY_HEADER];
    return size <= LARGE || (fd_read_at(fd, header, sizeof header, 0) && !entry_promise(header, size));
}

/* errno is 0 if what is there can never be an entry, EPERM if it is not to be trusted. */
static void *read_open(const struct dir *d, int fd, size_t *size, struct stat *st)
{
    if (fstat(fd, st)) return NULL;
    *size = (size_t)st->st_size;
    if (!S_ISREG(st->st_mode) || st->st_size < ENTRY_HEADER || *size > ENTRY_MAX) return errno = 0, NULL;
    if (trust_problem(st, d->flags | CACHE_READ_ONLY)) return errno = EPERM, NULL;
    if (!is_promised(fd, *size)) return errno = 0, NULL;
    void *bytes = malloc(*size);
    if (!bytes) return errno = ENOMEM, NULL;
    if (fd_read(fd, bytes, *size)) return bytes;
    int error = errno;
    free(bytes);
    return errno = error, NULL;
}

/* The whole entry of a name, checked or not; NULL if it cannot be read. */
static void *read_entry(const struct dir *d, int folder, const char *name, size_t *size, struct stat *st)
{
    for (int attempt = 0;; attempt++) {
        int fd = fd_open(folder, name + FOLDER_DIGITS, OPEN_FILE, 0);
        void *bytes = fd < 0 ? NULL : read_open(d, fd, size, st);
        int error = errno;
        if (fd >= 0) close(fd);
        errno = error;
        if (bytes || error != ESTALE || attempt) return bytes;
    }
}

/* Is this an error of the file, that will stay, rather than of the moment? */
static bool is_broken(int error)
{
    return error == 0 || error == ELOOP || error == ENXIO || error == EACCES || error == EIO ||
           error == EPERM;
}

enum entry_fault disk_examine(const struct dir *d, struct entry *e, void **bytes, size_t *size,
                              const struct scanned *s)
{
    struct stat st;
    *bytes = read_entry(d, s->folder, s->name, size, &st);
    if (!*bytes) return errno == EPERM ? ENTRY_UNTRUSTED : is_broken(errno) ? ENTRY_SHORT : ENTRY_FAULTS;
    enum entry_fault fault = entry_check(e, *bytes, *size);
    return fault || entry_is_named(e, s->name) ? fault : ENTRY_KEY;
}

static const char *reject(struct dir *d, int folder, const char *name, const struct stat *seen,
                          const char *why)
{
    if (!(d->flags & CACHE_READ_ONLY) && disk_remove(folder, name, seen))
        stats_add(d->stats, COUNT_healed, 1);
    return why;
}

/* Counts why an entry or its folder could not be read, and says it in a word. */
static const char *count_unreadable(struct dir *d, int error)
{
    enum entry_fault fault = error == EPERM ? ENTRY_UNTRUSTED : ENTRY_SHORT;
    if (error == ENOENT) return "absent";
    if (error && error != EPERM) return stats_add(d->stats, COUNT_read_failures, 1), "unreadable";
    stats_reject(d->stats, fault);
    return entry_fault_name(fault);
}

static const char *unreadable(struct dir *d, int folder, const char *name, int error)
{
    struct stat st;
    const char *why = count_unreadable(d, error);
    if (is_broken(error) && !fstatat(folder, name + FOLDER_DIGITS, &st, AT_SYMLINK_NOFOLLOW))
        reject(d, folder, name, &st, "");
    return why;
}

const char entry_collision[] = "collision";

const char *entry_take(struct stats *stats, const struct cache_key *k, void *bytes, size_t total,
                       size_t *size)
{
    struct entry e;
    char name[DIGEST_HEX];
    enum entry_fault fault = entry_check(&e, bytes, total);
    if (!fault) fault = entry_match(&e, k);
    digest_hex(name, &k->digest);
    if (!fault && !k->by && entry_is_made(&e, name)) return entry_collision;
    if (fault == ENTRY_KEY && entry_is_named(&e, name)) return entry_collision;
    if (fault) return stats_reject(stats, fault), entry_fault_name(fault);
    *size = e.data_size;
    memmove(bytes, e.data, e.data_size);
    return NULL;
}

static const char *get_from(struct dir *d, int folder, const struct cache_key *k, void **data, size_t *size)
{
    char name[DIGEST_HEX];
    size_t total;
    struct stat st;
    digest_hex(name, &k->digest);
    void *bytes = read_entry(d, folder, name, &total, &st);
    if (!bytes) return unreadable(d, folder, name, errno);
    const char *fault = entry_take(d->stats, k, bytes, total, size);
    if (!fault) {
        bump(d, folder, name, &st);
        return *data = bytes, NULL;
    }
    free(bytes);
    return fault == entry_collision ? fault : reject(d, folder, name, &st, fault);
}

const char *disk_get(struct dir *d, const struct cache_key *k, void **data, size_t *size)
{
    char name[DIGEST_HEX];
    if (d->fd < 0) return "no directory";
    digest_hex(name, &k->digest);
    int folder = dir_folder(d, name, false);
    if (folder < 0 && errno == ESTALE) folder = dir_folder(d, name, false);
    if (folder < 0) return count_unreadable(d, errno);
    const char *missed = get_from(d, folder, k, data, size);
    close(folder);
    return missed;
}

void disk_drop(struct dir *d, const struct cache_key *k, const void *data, size_t size)
{
    char name[DIGEST_HEX];
    struct stat st;
    struct entry e;
    size_t total;
    if (d->fd < 0 || d->flags & CACHE_READ_ONLY) return;
    digest_hex(name, &k->digest);
    int folder = dir_folder(d, name, false);
    void *bytes = folder < 0 ? NULL : read_entry(d, folder, name, &total, &st);
    bool same = bytes && !entry_check(&e, bytes, total) && !entry_match(&e, k) && e.data_size == size &&
                !memcmp(e.data, data, size);
    if (same) reject(d, folder, name, &st, "");
    free(bytes);
    if (folder >= 0) close(folder);
}

bool disk_has(struct dir *d, const char *name, const struct entry *same)
{
    struct stat st;
    struct entry e;
    size_t total;
    int folder = d->fd < 0 ? -1 : dir_folder(d, name, false);
    void *bytes = folder < 0 ? NULL : read_entry(d, folder, name, &total, &st);
    bool has = bytes && !entry_check(&e, bytes, total) && entry_same(&e, same);
    free(bytes);
    if (folder >= 0) close(folder);
    return has;
}

/* ---- Put ---- */

/* 128 random bits: no clash between hosts and containers, where process ids say nothing. */
static void temporary_name(char name[NAME])
{
    static atomic_uint serial;
    uint64_t noise[2] = {0, 0};
    if (getrandom(noise, sizeof noise, GRND_NONBLOCK) != sizeof noise) {
        noise[0] = (uint64_t)now_ns() ^ (uint64_t)getpid() << 40;
        noise[1] = (uint64_t)(uintptr_t)name ^ (uint64_t)atomic_fetch_add(&serial, 1) << 48;
    }
    snprintf(name, NAME, TEMPORARY "%016llx%016llx", (unsigned long long)noise[0],
             (unsigned long long)noise[1]);
}

/* A file to write to. Without a name if that can be: then `temporary` is "". */
static int open_new(struct dir *d, int folder, char temporary[NAME])
{
    temporary[0] = 0;
    if (!atomic_load(&d->no_tmpfile)) {
        int fd = fd_open(folder, ".", O_TMPFILE | O_WRONLY, 0600);
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOSYS))
            return fd;
        atomic_store(&d->no_tmpfile, true);
    }
    temporary_name(temporary);
    int fd = fd_open(d->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0) temporary[0] = 0;
    else if (!d->remote) fcntl(fd, F_OFD_SETLK, &whole); /* tells evict.c that we live; it may fail */
    return fd;
}

static bool cannot_link(int error)
{
    return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK || error == EXDEV;
}

/* Gives a nameless file a name in `folder`. EAGAIN: that cannot be here, or there is no /proc; from now on
 * files have names. */
static int link_open(struct dir *d, int fd, int folder, const char *name)
{
    char self[NAME];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!linkat(AT_FDCWD, self, folder, name, AT_SYMLINK_FOLLOW)) return 0;
    int error = errno;
    if (!cannot_link(error) && (error != ENOENT || !access(self, F_OK))) return error;
    atomic_store(&d->no_tmpfile, true);
    return EAGAIN;
}

static int publish(struct dir *d, int fd, int folder, char temporary[NAME], const char *name, bool replace)
{
    int error;
    if (!temporary[0] && !replace) return link_open(d, fd, folder, name);
    if (!temporary[0]) {
        char chosen[NAME];
        temporary_name(chosen);
        if ((error = link_open(d, fd, d->fd, chosen))) return error;
        memcpy(temporary, chosen, NAME);
    }
    error = replace ? EPERM : linkat(d->fd, temporary, folder, name, 0) ? errno : 0;
    if (!cannot_link(error)) return error;
    if (renameat(d->fd, temporary, folder, name)) return errno;
    return temporary[0] = 0, 0;
}

static int fill(struct dir *d, int fd, const void *bytes, size_t size)
{
    if (fchmod(fd, d->file_mode) || !fd_write(fd, bytes, size)) return errno;
    return d->flags & CACHE_DURABLE && fsync(fd) ? errno : 0;
}

static int admit_and_publish(struct dir *d, int fd, int folder, char temporary[NAME], const char *name,
                             size_t size, bool replace)
{
    struct account a;
    int64_t cost = evict_cost((int64_t)size);
    int error = evict_admit(d, &a, cost);
    if (error) return error;
    error = publish(d, fd, folder, temporary, name + FOLDER_DIGITS, replace);
    evict_settle(&a, cost, !error);
    return error;
}

/* What close() reports late takes the entry back: it may not be whole on the server. */
static int put_once(struct dir *d, int folder, const char *name, const void *bytes, size_t size, bool replace)
{
    char temporary[NAME];
    struct stat st;
    int fd = open_new(d, folder, temporary);
    if (fd < 0) return errno;
    int error = fill(d, fd, bytes, size);
    if (!error) error = admit_and_publish(d, fd, folder, temporary, name, size, replace);
    bool known = !error && !fstat(fd, &st);
    if (close(fd) && !error && errno != EINTR) {
        error = errno;
        if (known) disk_remove(folder, name, &st);
    }
    if (temporary[0]) unlinkat(d->fd, temporary, 0);
    if (!error && d->flags & CACHE_DURABLE) fsync(folder);
    return error;
}

int disk_put(struct dir *d, const char *name, const void *bytes, size_t size, bool replace)
{
    if (d->fd < 0) return ENOENT;
    int folder = dir_folder(d, name, true);
    if (folder < 0) return errno;
    int error = put_once(d, folder, name, bytes, size, replace);
    if (error == EAGAIN) error = put_once(d, folder, name, bytes, size, replace);
    if ((error == ENOENT || error == ESTALE) && dir_reopen(d)) { /* the directory went while we wrote */
        close(folder);
        if ((folder = dir_folder(d, name, true)) < 0) return errno;
        error = put_once(d, folder, name, bytes, size, replace);
    }
    close(folder);
    return error;
}
