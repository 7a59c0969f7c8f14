/*
 * shim.c -- stands before libc, counts the file calls that touch one directory, and makes the N-th fail,
 * fall short, or kill its process: see shim.h.
 */
#include "shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { MOST_FDS = 4096, NAMES = 4096 };

EXPORT struct shim shim;
static atomic_bool watched[MOST_FDS];
static _Thread_local bool inside; /* the shim's own calls are not counted */

EXPORT void shim_watch(const char *root)
{
    shim = (struct shim){0};
    strncpy(shim.root, root, sizeof shim.root - 1);
}

EXPORT void shim_arm(enum shim_action action, long n, int error, bool sticky)
{
    shim.at = 0;
    atomic_store(&shim.count, 0);
    atomic_store(&shim.acted, 0);
    shim.action = action;
    shim.error = error;
    shim.sticky = sticky;
    shim.at = n;
}

EXPORT void shim_off(void) { shim = (struct shim){0}; }

/* ---- What touches the directory ---- */

static bool is_watched(int fd) { return fd >= 0 && fd < MOST_FDS && atomic_load(&watched[fd]); }

static void watch(int fd, bool on)
{
    if (fd >= 0 && fd < MOST_FDS) atomic_store(&watched[fd], on);
}

static bool below(const char *path)
{
    size_t n = strlen(shim.root);
    return n && path && !strncmp(path, shim.root, n) && (path[n] == '/' || !path[n]);
}

static bool touches(int folder, const char *path)
{
    if (!shim.root[0] || inside) return false;
    return path && path[0] == '/' ? below(path) : is_watched(folder);
}

static bool touches_fd(int fd) { return shim.root[0] && !inside && is_watched(fd); }

/* ---- The N-th call ---- */

/* Counts a call. True if it shall act, which is up to the caller except for a signal. */
static bool trip(const char *call)
{
    if (shim.only && strcmp(shim.only, call)) return false;
    long n = atomic_fetch_add(&shim.count, 1) + 1;
    if (!shim.at || n < shim.at || (n > shim.at && !shim.sticky)) return false;
    atomic_fetch_add(&shim.acted, 1);
    if (shim.action == SHIM_KILL || (shim.action == SHIM_TEAR && strcmp(call, "write"))) raise(SIGKILL);
    if (shim.action == SHIM_STOP) raise(SIGSTOP);
    return shim.action != SHIM_KILL && shim.action != SHIM_STOP;
}

/* The same for a call that can only fail as a whole: true, with errno, if it shall. */
static bool fails(const char *call)
{
    if (!trip(call) || shim.action != SHIM_FAIL) return false;
    errno = shim.error;
    return true;
}

static void saw(struct shim_event e)
{
    if (!shim.saw) return;
    inside = true;
    int kept = errno;
    shim.saw(&e);
    errno = kept;
    inside = false;
}

/* The next definition of `name`, behind this one. */
#define REAL(name)                                                                                           \
    static __typeof__(&name) real;                                                                           \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

/* A call that fails with -1 and whose success is worth no more than its name. */
#define WRAP(type, name, params, args, touched, ...)                                                         \
    EXPORT type name params                                                                                  \
    {                                                                                                        \
        REAL(name);                                                                                          \
        if (!(touched)) return real args;                                                                    \
        if (fails(#name)) return -1;                                                                         \
        type result = real args;                                                                             \
        if (result >= 0) saw((struct shim_event){.call = #name, __VA_ARGS__});                               \
        return result;                                                                                       \
    }

/* ---- Names that a file server does not show yet ---- */

static struct {
    uint64_t name;
    int64_t until; /* ms */
} hidden[NAMES];

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    uint64_t h = 14695981039346656037u;
    for (const char *s = slash ? slash + 1 : path; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

/* Where a name is, or would be: the first free place from its own on. When all are taken, its own. */
static int place_of(uint64_t name)
{
    for (int i = 0; i < NAMES; i++) {
        int at = (int)((name + (uint64_t)i) % NAMES);
        if (!hidden[at].name || hidden[at].name == name) return at;
    }
    return (int)(name % NAMES);
}

static bool is_hidden(const char *path)
{
    uint64_t name = name_of(path);
    int at = place_of(name);
    return shim.negative_ms && hidden[at].name == name && milliseconds() < hidden[at].until;
}

static void hide(const char *path)
{
    int at = place_of(name_of(path));
    if (!shim.negative_ms || is_hidden(path)) return;
    hidden[at].name = name_of(path);
    hidden[at].until = milliseconds() + shim.negative_ms;
}

static void show(const char *path)
{
    int at = place_of(name_of(path));
    if (hidden[at].name == name_of(path)) hidden[at].until = 0;
}

/* ---- Opening and closing ---- */

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    static int (*real)(int, const char *, int, ...);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "openat");
    if (!touches(folder, path)) return real(folder, path, flags, mode);
    if (fails("openat")) return -1;
    if ((shim.nfs || shim.all_named) && (flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;
    if (!(flags & O_CREAT) && is_hidden(path)) return errno = ENOENT, -1;
    int fd = real(folder, path, flags, mode);
    watch(fd, true);
    if (fd < 0 && errno == ENOENT) hide(path);
    if (fd >= 0 && flags & O_CREAT) show(path);
    if (fd >= 0)
        saw((struct shim_event){.call = flags & (O_CREAT | O_TMPFILE) & ~O_DIRECTORY ? "create" : "open",
                                .fd = fd,
                                .folder = folder,
                                .path = path});
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_at(folder, path, flags, mode);
}

EXPORT int close(int fd)
{
    REAL(close);
    if (!touches_fd(fd)) return watch(fd, false), real(fd);
    bool acts = trip("close");
    saw((struct shim_event){.call = "close", .fd = fd, .folder = -1});
    watch(fd, false);
    real(fd); /* an error of close leaves no descriptor either */
    if (!acts || (shim.action != SHIM_CLOSE && shim.action != SHIM_FAIL)) return 0;
    errno = shim.error;
    return -1;
}

EXPORT int dup(int fd)
{
    REAL(dup);
    if (!touches_fd(fd)) return real(fd);
    if (fails("dup")) return -1;
    int copy = real(fd);
    watch(copy, true);
    return copy;
}

EXPORT int dup3(int fd, int to, int flags)
{
    REAL(dup3);
    if (!touches_fd(fd)) return real(fd, to, flags);
    if (fails("dup3")) return -1;
    int copy = real(fd, to, flags);
    watch(copy, true);
    return copy;
}

static int control(int fd, int command, void *argument)
{
    static int (*real)(int, int, ...);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fcntl");
    bool locks =
        command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_SETLK || command == F_SETLKW;
    if (locks && shim.lock_error && ((struct flock *)argument)->l_type != F_UNLCK)
        return errno = shim.lock_error, -1;
    if (!touches_fd(fd)) return real(fd, command, argument);
    if (fails("fcntl")) return -1;
    if (locks && shim.nfs) return errno = ENOLCK, -1;
    int result = real(fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) watch(result, true);
    return result;
}

EXPORT int fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return control(fd, command, argument);
}

EXPORT DIR *opendir(const char *path)
{
    REAL(opendir);
    if (touches(-1, path) && fails("opendir")) return NULL;
    return real(path);
}

EXPORT DIR *fdopendir(int fd)
{
    REAL(fdopendir);
    if (touches_fd(fd) && fails("fdopendir")) return NULL;
    return real(fd);
}

EXPORT struct dirent *readdir(DIR *d)
{
    REAL(readdir);
    if (touches_fd(dirfd(d)) && fails("readdir")) return NULL;
    return real(d);
}

/* closedir closes behind the shim's back. */
EXPORT int closedir(DIR *d)
{
    REAL(closedir);
    watch(dirfd(d), false);
    return real(d);
}

/* ---- Bytes ---- */

/* Has the server forgotten this file? One's own nameless file is not meant: it is open for writing. */
static bool is_stale(int fd)
{
    struct stat st;
    if (!shim.nfs) return false;
    inside = true;
    bool stale = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink == 0;
    inside = false;
    if (stale) errno = ESTALE;
    return stale;
}

EXPORT ssize_t read(int fd, void *data, size_t size)
{
    REAL(read);
    if (touches_fd(fd) && (fails("read") || is_stale(fd))) return -1;
    return real(fd, data, size);
}

EXPORT ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    REAL(pread);
    if (touches_fd(fd) && (fails("pread") || is_stale(fd))) return -1;
    return real(fd, data, size, offset);
}

EXPORT ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    if (!touches_fd(fd)) return real(fd, data, size);
    if (trip("write")) {
        if (shim.action == SHIM_FAIL) return errno = shim.error, -1;
        if (shim.action == SHIM_SHORT && size > 1) size /= 2;
        if (shim.action == SHIM_TEAR) (void)!real(fd, data, size / 2), raise(SIGKILL);
    }
    ssize_t n = real(fd, data, size);
    if (n > 0)
        saw((struct shim_event){.call = "write", .fd = fd, .folder = -1, .data = data, .size = (size_t)n});
    return n;
}

WRAP(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), touches_fd(fd), .fd = fd)
WRAP(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t o), (fd, p, n, o), touches_fd(fd), .fd = fd)
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), touches_fd(fd), .fd = fd)
WRAP(int, fallocate, (int fd, int mode, off_t o, off_t n), (fd, mode, o, n), touches_fd(fd), .fd = fd)
WRAP(int, fsync, (int fd), (fd), touches_fd(fd), .fd = fd)
WRAP(int, fdatasync, (int fd), (fd), touches_fd(fd), .fd = fd)
WRAP(int, flock, (int fd, int how), (fd, how), touches_fd(fd), .fd = fd)
WRAP(ssize_t, getrandom, (void *p, size_t n, unsigned flags), (p, n, flags), shim.root[0] && !inside,
     .fd = -1)

/* ---- Names ---- */

EXPORT int linkat(int from, const char *path, int to, const char *name, int flags)
{
    REAL(linkat);
    if (!touches(to, name)) return real(from, path, to, name, flags);
    if (fails("linkat")) return -1;
    int result = real(from, path, to, name, flags);
    if (!result) show(name);
    if (!result)
        saw((struct shim_event){.call = "linkat", .fd = from, .folder = to, .path = path, .newpath = name});
    return result;
}

EXPORT int renameat(int from, const char *path, int to, const char *name)
{
    REAL(renameat);
    if (!touches(to, name)) return real(from, path, to, name);
    if (fails("renameat")) return -1;
    int result = real(from, path, to, name);
    if (!result) show(name);
    if (!result)
        saw((struct shim_event){.call = "renameat", .fd = from, .folder = to, .path = path, .newpath = name});
    return result;
}

/* Who is told that a folder exists sees it. */
EXPORT int mkdirat(int folder, const char *path, mode_t mode)
{
    REAL(mkdirat);
    if (!touches(folder, path)) return real(folder, path, mode);
    if (fails("mkdirat")) return -1;
    show(path);
    return real(folder, path, mode);
}

WRAP(int, link, (const char *a, const char *b), (a, b), touches(-1, b), .fd = -1, .path = a, .newpath = b)
WRAP(int, rename, (const char *a, const char *b), (a, b), touches(-1, b), .fd = -1, .path = a, .newpath = b)
WRAP(int, renameat2, (int d, const char *a, int e, const char *b, unsigned f), (d, a, e, b, f), touches(e, b),
     .fd = d, .folder = e, .path = a, .newpath = b)
WRAP(int, unlink, (const char *p), (p), touches(-1, p), .fd = -1, .folder = -1, .path = p)
WRAP(int, unlinkat, (int d, const char *p, int f), (d, p, f), touches(d, p), .fd = -1, .folder = d, .path = p)
WRAP(int, rmdir, (const char *p), (p), touches(-1, p), .fd = -1, .folder = -1, .path = p)
WRAP(int, mkdir, (const char *p, mode_t m), (p, m), touches(-1, p), .fd = -1, .folder = -1, .path = p)
WRAP(int, symlink, (const char *a, const char *b), (a, b), touches(-1, b), .fd = -1, .path = b)

/* ---- Facts ---- */

WRAP(int, stat, (const char *p, struct stat *s), (p, s), touches(-1, p), .fd = -1)
WRAP(int, lstat, (const char *p, struct stat *s), (p, s), touches(-1, p), .fd = -1)
WRAP(int, fstat, (int fd, struct stat *s), (fd, s), touches_fd(fd), .fd = fd)
WRAP(int, fstatat, (int d, const char *p, struct stat *s, int f), (d, p, s, f), touches(d, p), .fd = -1)
WRAP(int, access, (const char *p, int m), (p, m), touches(-1, p), .fd = -1)
WRAP(int, faccessat, (int d, const char *p, int m, int f), (d, p, m, f), touches(d, p), .fd = -1)
WRAP(int, chmod, (const char *p, mode_t m), (p, m), touches(-1, p), .fd = -1)
WRAP(int, fchmod, (int fd, mode_t m), (fd, m), touches_fd(fd), .fd = fd)
WRAP(int, fchmodat, (int d, const char *p, mode_t m, int f), (d, p, m, f), touches(d, p), .fd = -1)
WRAP(int, futimens, (int fd, const struct timespec t[2]), (fd, t), touches_fd(fd), .fd = fd)
WRAP(int, utimensat, (int d, const char *p, const struct timespec t[2], int f), (d, p, t, f), touches(d, p),
     .fd = -1)

enum { NFS_MAGIC = 0x6969 };

EXPORT int fstatfs(int fd, struct statfs *out)
{
    REAL(fstatfs);
    if (!touches_fd(fd)) return real(fd, out);
    if (fails("fstatfs")) return -1;
    int result = real(fd, out);
    if (!result && shim.nfs) out->f_type = NFS_MAGIC;
    return result;
}

EXPORT int statfs(const char *path, struct statfs *out)
{
    REAL(statfs);
    if (!touches(-1, path)) return real(path, out);
    if (fails("statfs")) return -1;
    int result = real(path, out);
    if (!result && shim.nfs) out->f_type = NFS_MAGIC;
    return result;
}
