/*
 * dir.c -- where a cache is, and whether it may be trusted.
 *
 *     root                 ours, writable by nobody else, no symbolic link
 *     root/v2              the same; the number is the format's, so that versions do not meet
 *     root/v2/a/bcdef...   entries: 64 hex digits of the key's digest
 *     root/v2/.lock .size  see lock.c and evict.c
 *     root/v2/.tmp-...     entries being written, where files without names are not to be had
 *
 * What lies there runs on the GPU with the user's rights, so nothing that others can change is used: each
 * folder and each file is judged by trust_problem() when it is opened, by its descriptor. The first two
 * folders are the user's, and are refused with the reason. What is below them the library has made: there
 * a mode that was opened is closed again, and what is no folder, or no file of ours, makes room for one.
 *
 * root is opened once and then reached by its descriptor alone: a directory that is swapped later is not
 * followed. When it was removed under us (its link count is 0) it is made again, and dup3 puts the new one
 * in the place of the old in one step, for all threads.
 */
#include "inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FOLDER "v2"
enum { OPEN_DIR = O_RDONLY | O_DIRECTORY | O_NOFOLLOW };

/* ---- Where ---- */

static char *join(const char *a, const char *b)
{
    char *s = NULL;
    return asprintf(&s, "%s%s", a, b) < 0 ? NULL : s;
}

/* ~/.cache/coda by the password file, for daemons without $HOME. */
static char *passwd_dir(void)
{
    char buf[4096];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(geteuid(), &pw, buf, sizeof buf, &found) || !found || found->pw_dir[0] != '/') return NULL;
    return join(found->pw_dir, "/.cache/coda");
}

char *dir_default(char problem[PROBLEM])
{
    const char *dir;
    if ((dir = environment("CODA_CACHE_DIR"))) return setting_path(dir, problem);
    if ((dir = environment("XDG_CACHE_HOME")) && dir[0] == '/') return join(dir, "/coda");
    if ((dir = environment("HOME")) && dir[0] == '/') return join(dir, "/.cache/coda");
    char *home = passwd_dir();
    if (!home) problem_add(problem, "there is no home directory");
    return home;
}

/* ---- What kind of file system ---- */

static const struct {
    unsigned long magic;
    const char *name;
    bool remote;
} file_systems[] = {
    {0xef53, "ext4", false},      {0x58465342, "xfs", false},      {0x9123683e, "btrfs", false},
    {0x01021994, "tmpfs", false}, {0x794c7630, "overlay", false},  {0x2fc12fc1, "zfs", false},
    {0xf2f52010, "f2fs", false},  {0x73717368, "squashfs", false}, {0xe0f5e1e2, "erofs", false},
    {0x6969, "nfs", true},        {0xff534d42, "cifs", true},      {0xfe534d42, "smb2", true},
    {0x517b, "smb", true},        {0x0bd00bd0, "lustre", true},    {0x47504653, "gpfs", true},
    {0x00c36400, "ceph", true},   {0x01021997, "9p", true},        {0x65735546, "fuse", true},
    {0x19830326, "beegfs", true},
};

static void name_file_system(struct dir *d)
{
    struct statfs st;
    d->fs = "unknown";
    d->remote = false;
    if (fstatfs(d->fd, &st)) return;
    for (size_t i = 0; i < sizeof file_systems / sizeof *file_systems; i++) {
        if ((unsigned long)(uint32_t)st.f_type != file_systems[i].magic) continue;
        d->fs = file_systems[i].name;
        d->remote = file_systems[i].remote;
    }
}

/* ---- Trust ---- */

void problem_add(char problem[PROBLEM], const char *format, ...)
{
    va_list args;
    size_t n = strlen(problem);
    if (n) n += (size_t)snprintf(problem + n, PROBLEM - n, "; ");
    va_start(args, format);
    if (n < PROBLEM) vsnprintf(problem + n, PROBLEM - n, format, args);
    va_end(args);
}

static bool refuse(struct dir *d, const char *what, const char *why, int error)
{
    const char *path = d->path ? d->path : "";
    problem_add(d->problem, "%.300s%s%s%s%s%s", path, *path || *what ? " " : "", what, why, error ? ": " : "",
                error ? error_text(error) : "");
    return false;
}

const char *trust_problem(const struct stat *st, unsigned flags)
{
    bool shared = flags & CACHE_SHARED, root_may = flags & CACHE_READ_ONLY && st->st_uid == 0;
    if (st->st_uid != geteuid() && !shared && !root_may) return "belongs to another user";
    if (st->st_mode & S_IWOTH) return "is writable by others";
    if (st->st_mode & S_IWGRP && !shared) return "is writable by its group";
    return NULL;
}

/* For what is made below a folder that was judged: root's is as good as ours. */
static bool is_trusted(const struct dir *d, const struct stat *st)
{
    return !trust_problem(st, d->flags | CACHE_READ_ONLY);
}

/* A mode that is right whatever the umask was. By a descriptor, so that what is swapped meanwhile keeps
 * its own; a mode of 000 lets nobody open it but like this. */
static void set_mode(int at, const char *name, mode_t mode)
{
    struct stat st;
    char self[32];
    int fd = fd_open(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0) return;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!fstat(fd, &st) && st.st_uid == geteuid() && (st.st_mode & 07777) != mode) (void)!chmod(self, mode);
    close(fd);
}

/* mkdir -p; the path is cut for a moment. */
static void make_path(char *path, mode_t mode)
{
    for (char *s = path + 1;; s++) {
        if (*s && *s != '/') continue;
        char end = *s;
        *s = 0;
        if (!mkdir(path, 0700)) set_mode(AT_FDCWD, path, end ? 0700 : mode);
        *s = end;
        if (!end) return;
    }
}

/* Opens and judges a directory below `at`; -1 with the reason. */
static int open_trusted(struct dir *d, int at, const char *name, const char *what, struct stat *st)
{
    const char *why = NULL;
    int fd = fd_open(at, name, OPEN_DIR, 0);
    if (fd < 0) {
        bool link = errno == ELOOP ||
                    (errno == ENOTDIR && !fstatat(at, name, st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st->st_mode));
        if (link) refuse(d, what, "is a symbolic link", 0);
        else refuse(d, what, "cannot be opened", errno);
        return -1;
    }
    if (fstat(fd, st)) refuse(d, what, "cannot be examined", errno);
    else if ((why = trust_problem(st, d->flags))) refuse(d, what, why, 0);
    else return fd;
    close(fd);
    return -1;
}

/* Files of a shared directory can be written by the group if the directory can. */
static void choose_modes(struct dir *d, const struct stat *root)
{
    bool shared = d->flags & CACHE_SHARED, group = root->st_mode & S_IWGRP;
    d->file_mode = !shared ? 0600 : group ? 0660 : 0640;
    d->dir_mode = !shared ? 0700 : group ? 02770 : 02750;
}

/* A descriptor of root/v2, or -1 with the reason. */
static int open_root(struct dir *d)
{
    struct stat st;
    if (!(d->flags & CACHE_READ_ONLY)) make_path(d->path, d->flags & CACHE_SHARED ? 02750 : 0700);
    int root = open_trusted(d, AT_FDCWD, d->path, "", &st);
    if (root < 0) return -1;
    choose_modes(d, &st);
    if (!(d->flags & CACHE_READ_ONLY) && !mkdirat(root, FOLDER, 0700)) set_mode(root, FOLDER, d->dir_mode);
    int fd = open_trusted(d, root, FOLDER, "has a folder " FOLDER " that ", &st);
    close(root);
    return fd;
}

static void strip_slashes(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
}

bool dir_open(struct dir *d, char *path, unsigned flags)
{
    d->path = path;
    d->flags = flags;
    d->fd = -1;
    d->fs = "";
    if (environment_is_foreign()) return refuse(d, "", "is not for a setuid process", 0);
    if (!path) return false;
    if (!*path) return refuse(d, "", "is no path", 0);
    strip_slashes(path);
    d->fd = open_root(d);
    if (d->fd >= 0) name_file_system(d);
    return d->fd >= 0;
}

void dir_close(struct dir *d)
{
    if (d->fd >= 0) close(d->fd);
    free(d->path);
    d->fd = -1;
    d->path = NULL;
}

/* Removed here, or by another host. */
static bool is_gone(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? errno == ESTALE : st.st_nlink == 0;
}

bool dir_reopen(struct dir *d)
{
    if (d->fd < 0 || d->flags & CACHE_READ_ONLY || !is_gone(d->fd)) return false;
    struct dir fresh = {.path = strdup(d->path), .flags = d->flags}; /* others may read and reopen d */
    int fd = fresh.path ? open_root(&fresh) : -1;
    free(fresh.path);
    if (fd < 0) return false;
    bool good = dup3(fd, d->fd, O_CLOEXEC) >= 0;
    close(fd);
    if (good) stats_add(d->stats, COUNT_reopened, 1);
    return good;
}

/* ---- What is below it ---- */

/* Takes away what lies in the place of a folder or file of ours: a link, a FIFO, a device, a folder, another
 * user's file. A folder that has something in it is put aside. True if the place is free now. */
static bool clear_place(struct dir *d, const char *name)
{
    struct stat st;
    char aside[64];
    if (d->flags & CACHE_READ_ONLY || fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW)) return false;
    snprintf(aside, sizeof aside, ".junk-%llx-%s", (unsigned long long)st.st_ino, name);
    if (unlinkat(d->fd, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) &&
        (!S_ISDIR(st.st_mode) || renameat(d->fd, name, d->fd, aside)))
        return false;
    stats_add(d->stats, COUNT_healed, 1);
    return true;
}

/* errno is EPERM if it is not to be trusted. One of ours whose mode was opened is closed again. */
static int open_folder(struct dir *d, const char *name)
{
    struct stat st;
    int fd = fd_open(d->fd, name, OPEN_DIR, 0);
    if (fd < 0) return -1;
    int error = fstat(fd, &st) ? errno : 0;
    if (!error && is_trusted(d, &st)) return fd;
    bool closed =
        !error && st.st_uid == geteuid() && !(d->flags & CACHE_READ_ONLY) && !fchmod(fd, d->dir_mode);
    if (closed) return stats_add(d->stats, COUNT_healed, 1), fd;
    close(fd);
    return errno = error ? error : EPERM, -1;
}

static bool is_junk(int error)
{
    return error == ENOTDIR || error == ELOOP || error == ENXIO || error == EPERM;
}

int dir_folder(struct dir *d, const char *name, bool make)
{
    char folder[FOLDER_DIGITS + 1] = {name[0]};
    int fd = open_folder(d, folder);
    if (fd >= 0 || !make) return fd;
    if (is_junk(errno)) {
        int error = errno;
        if (!clear_place(d, folder)) return errno = error, -1;
    } else if (errno != ENOENT && errno != ESTALE) return -1;
    bool made = !mkdirat(d->fd, folder, 0700);
    if (!made && (errno == ENOENT || errno == ESTALE) && dir_reopen(d)) made = !mkdirat(d->fd, folder, 0700);
    if (!made && errno != EEXIST) return -1;
    if (made) set_mode(d->fd, folder, d->dir_mode);
    return open_folder(d, folder);
}

/* Judges a file of the cache's own: it must be plain, and nobody else's. */
static int judge_file(const struct dir *d, int fd)
{
    struct stat st;
    if (fd < 0 || (!fstat(fd, &st) && S_ISREG(st.st_mode) && is_trusted(d, &st))) return fd;
    close(fd);
    return errno = EPERM, -1;
}

int dir_look(const struct dir *d, const char *name, int flags)
{
    return judge_file(d, fd_open(d->fd, name, flags | O_NOFOLLOW | O_NONBLOCK, 0));
}

/* Its mode is set after the fact, whatever the umask is. */
int dir_file(struct dir *d, const char *name)
{
    for (int attempt = 0;; attempt++) {
        int fd = dir_look(d, name, O_RDWR);
        if (fd >= 0 || attempt == 2) return fd;
        if (is_junk(errno) || errno == EISDIR) {
            int error = errno;
            if (!clear_place(d, name)) return errno = error, -1;
        } else if (errno != ENOENT) return -1;
        fd = dir_look(d, name, O_RDWR | O_CREAT | O_EXCL);
        if (fd >= 0) return fchmod(fd, d->file_mode), fd;
        if (errno == ENOENT && !dir_reopen(d)) return -1;
    }
}

/* ---- Looking through it ---- */

static bool is_hex(const char *s, size_t digits)
{
    return strlen(s) == digits && strspn(s, "0123456789abcdef") == digits;
}

static DIR *open_list(struct dir *d, const char *name)
{
    int fd = *name == '.' ? fd_open(d->fd, name, OPEN_DIR, 0) : open_folder(d, name);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    int error = errno;
    if (!list && fd >= 0) close(fd);
    errno = error;
    return list;
}

struct scan {
    bool (*visit)(void *ctx, const struct scanned *s);
    void *ctx;
    bool ended, failed;
};

static void scan_folder(struct scan *scan, struct dir *d, const char *digits)
{
    struct scanned s;
    DIR *list = open_list(d, digits);
    if (!list) { /* it vanished, or is no folder; but it may be us */
        scan->failed |= errno == EMFILE || errno == ENFILE || errno == ENOMEM;
        return;
    }
    s.folder = dirfd(list);
    for (struct dirent *e; !scan->ended && (e = readdir(list));) {
        if (!is_hex(e->d_name, DIGEST_HEX - 1 - FOLDER_DIGITS)) continue;
        if (fstatat(s.folder, e->d_name, &s.st, AT_SYMLINK_NOFOLLOW)) continue;
        memcpy(s.name, digits, FOLDER_DIGITS);
        memcpy(s.name + FOLDER_DIGITS, e->d_name, DIGEST_HEX - FOLDER_DIGITS);
        scan->ended = !scan->visit(scan->ctx, &s);
    }
    closedir(list);
}

bool dir_scan(struct dir *d, bool (*visit)(void *ctx, const struct scanned *s), void *ctx)
{
    struct scan scan = {.visit = visit, .ctx = ctx};
    DIR *list = open_list(d, ".");
    if (!list) return false;
    for (struct dirent *e; !scan.ended && (e = readdir(list));)
        if (is_hex(e->d_name, FOLDER_DIGITS)) scan_folder(&scan, d, e->d_name);
    closedir(list);
    return !scan.failed;
}
