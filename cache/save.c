/*
 * save.c -- bytes into the file that a user has named, as a careful program does it.
 *
 * A plain file is replaced at once: the bytes go into a nameless file of its folder (O_TMPFILE), are
 * flushed, and get the name. Who looks sees all of them, or what was there before. Where a file has to be
 * replaced there is a moment with two names: the new file is `.NAME.coda-<16 hex>` first, locked by its
 * writer. Who is killed then leaves it, and whoever saves to NAME next finds it unlocked, and removes it.
 *
 * A symbolic link is followed, by the kernel's rules for folders that all may write, and stays; the file
 * that it leads to keeps its mode and owner. A new file gets 0644 less the umask. What is no plain file,
 * or is a descriptor under a name of its own (/dev/stdout, /dev/fd/3), is written to as it stands.
 */
#include "inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { NEW_MODE = 0644, NAME = 256, UNLOCKED_S = 3600 };

struct target {
    int folder;       /* of the file */
    char name[NAME];  /* in it */
    char shadow[224]; /* what the temporary names begin with */
    bool exists;
    struct stat st; /* if it does */
};

/* ---- Straight ---- */

/* The descriptor that a path is another name of, or -1. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (!strcmp(path, "/dev/stdout")) return 1;
    if (!strcmp(path, "/dev/stderr")) return 2;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n)) continue;
        size_t digits = strspn(path + n, "0123456789");
        return digits && digits < 6 && !path[n + digits] ? atoi(path + n) : -1;
    }
    return -1;
}

/* 0 or an errno. Takes fd over. */
static int pour(int fd, const void *data, size_t size)
{
    if (fd < 0) return errno;
    int error = fd_pour(fd, data, size) ? 0 : errno;
    return close(fd) && !error ? errno : error;
}

/* ---- Where ---- */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The folder and the name in it of a path that ends in no link. 0 or an errno. */
static int split(struct target *t, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = !slash ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!folder) return ENOMEM;
    t->folder = -1;
    if (snprintf(t->name, NAME, "%s", name) >= NAME) errno = ENAMETOOLONG;
    else if (!*path) errno = ENOENT;
    else if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) errno = EISDIR;
    else t->folder = fd_open(AT_FDCWD, folder, O_PATH | O_DIRECTORY, 0);
    int error = t->folder < 0 ? errno : 0;
    snprintf(t->shadow, sizeof t->shadow, ".%.200s.coda-", t->name);
    free(folder);
    return error;
}

/* Finds the folder and the name of a file that is there, behind all links. A file of another user's that
 * this process may not write to is not replaced. */
static int find_existing(struct target *t, const char *path)
{
    struct stat st;
    char *real = realpath(path, NULL);
    int error = real ? split(t, real) : errno;
    free(real);
    if (error) return error;
    if (fstatat(t->folder, t->name, &st, AT_SYMLINK_NOFOLLOW)) return errno;
    if (!is_same(&st, &t->st)) return EBUSY; /* swapped between two looks */
    t->exists = true;
    return st.st_uid == geteuid() || !faccessat(t->folder, t->name, W_OK, AT_EACCESS) ? 0 : errno;
}

/* A link that leads to nothing: open() makes what it leads to. */
static int make_pointed(const char *path)
{
    struct stat st;
    if (lstat(path, &st)) return ENOENT;
    int fd = fd_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_NONBLOCK, NEW_MODE);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

/* 0, an errno, or -1 if it is no plain file. The kernel follows the links, and says if it may. */
static int find(struct target *t, const char *path)
{
    *t = (struct target){.folder = -1};
    for (int attempt = 0;; attempt++) {
        int fd = fd_open(AT_FDCWD, path, O_PATH, 0), error = fd < 0 || fstat(fd, &t->st) ? errno : 0;
        if (fd >= 0) close(fd);
        if (!error && S_ISDIR(t->st.st_mode)) return EISDIR;
        if (!error) return S_ISREG(t->st.st_mode) ? find_existing(t, path) : -1;
        if (error != ENOENT || attempt) return error;
        if (make_pointed(path)) return split(t, path);
    }
}

/* ---- Files without a name, or with another one ---- */

static void shadow_name(const struct target *t, char name[NAME])
{
    uint64_t noise = (uint64_t)now_ns() ^ (uint64_t)getpid() << 40;
    if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) < 0) noise ^= (uint64_t)(uintptr_t)name;
    snprintf(name, NAME, "%s%016llx", t->shadow, (unsigned long long)noise);
}

static bool lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return !fcntl(fd, F_OFD_SETLK, &whole);
}

/* Locked, with the mode that the file shall have. `shadow` is "" if it has no name. */
static int open_new(const struct target *t, char shadow[NAME])
{
    shadow[0] = 0;
    bool nameable = !access("/proc/self/fd", X_OK); /* without /proc it could never get one */
    int fd = nameable ? fd_open(t->folder, ".", O_TMPFILE | O_WRONLY, NEW_MODE) : -1;
    if (fd < 0 &&
        (!nameable || errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOSYS)) {
        shadow_name(t, shadow);
        fd = fd_open(t->folder, shadow, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, NEW_MODE);
        if (fd < 0) shadow[0] = 0;
    }
    if (fd < 0) return -1;
    lock(fd);
    if (t->exists && (t->st.st_uid != geteuid() || t->st.st_gid != getegid()))
        (void)!fchown(fd, t->st.st_uid, t->st.st_gid);
    if (!t->exists || !fchmod(fd, t->st.st_mode & 0777)) return fd;
    int error = errno;
    if (shadow[0]) unlinkat(t->folder, shadow, 0);
    close(fd);
    return errno = error, -1;
}

static int give_name(int fd, int folder, const char *name)
{
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, folder, name, AT_SYMLINK_FOLLOW) ? errno : 0;
}

static int name_it(const struct target *t, int fd, char shadow[NAME])
{
    int error = 0;
    if (!shadow[0] && !t->exists && (error = give_name(fd, t->folder, t->name)) != EEXIST) return error;
    if (!shadow[0]) {
        char chosen[NAME];
        shadow_name(t, chosen);
        if ((error = give_name(fd, t->folder, chosen))) return error;
        memcpy(shadow, chosen, NAME);
    }
    if (renameat(t->folder, shadow, t->folder, t->name)) return errno;
    return shadow[0] = 0, 0;
}

/* ---- What was abandoned ---- */

static void sweep_one(const struct target *t, const char *name)
{
    struct stat st;
    int fd = fd_open(t->folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0) return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (lock(fd) || (errno != EAGAIN && errno != EACCES && time(NULL) - st.st_mtim.tv_sec > UNLOCKED_S)))
        unlinkat(t->folder, name, 0);
    close(fd);
}

static void sweep(const struct target *t)
{
    size_t n = strlen(t->shadow);
    int fd = fd_open(t->folder, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list && fd >= 0) close(fd);
    for (struct dirent *e; list && (e = readdir(list));)
        if (!strncmp(e->d_name, t->shadow, n) && strlen(e->d_name) == n + 16 &&
            strspn(e->d_name + n, "0123456789abcdef") == 16)
            sweep_one(t, e->d_name);
    if (list) closedir(list);
}

/* ---- All together ---- */

static int replace(const struct target *t, const void *data, size_t size)
{
    char shadow[NAME];
    int fd = open_new(t, shadow);
    if (fd < 0) return errno;
    int error = fd_write(fd, data, size) && !fsync(fd) ? name_it(t, fd, shadow) : errno;
    if (shadow[0]) unlinkat(t->folder, shadow, 0);
    return close(fd) && !error ? errno : error;
}

static int save(const char *path, const void *data, size_t size)
{
    struct target t;
    int own = descriptor_of(path);
    if (own >= 0) return pour(fcntl(own, F_DUPFD_CLOEXEC, 3), data, size);
    int error = find(&t, path);
    if (error < 0) return pour(fd_open(AT_FDCWD, path, O_WRONLY, 0), data, size);
    if (!error) {
        sweep(&t);
        error = replace(&t, data, size);
    }
    if (t.folder >= 0) close(t.folder);
    return error;
}

bool file_save(const char *path, const void *data, size_t size, char *why)
{
    int error = save(path, data, size);
    if (error) snprintf(why, CACHE_ERROR, "%.300s cannot be written: %s", path, error_text(error));
    errno = error == ENOMEM ? ENOMEM : error ? EIO : 0;
    return !error;
}
