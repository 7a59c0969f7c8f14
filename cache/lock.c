/*
 * lock.c -- one lock for each key, in one file: a byte range of open-file-description locks.
 *
 * The kernel releases them when their holder dies, however it dies; nothing is left to go stale, and
 * keys do not wait for each other. Nothing here blocks: callers try, look again whether what they wait
 * for is there, and give up at a deadline. Whatever goes wrong, they go on without a lock: all it costs
 * is that something is made twice.
 *
 * The file lies in the cache, where containers that share a volume meet. On a file system of several
 * hosts, whose locks may hang or be missing, it lies in $XDG_RUNTIME_DIR, or else in a folder of
 * /dev/shm that is verified to be ours: hosts then make things twice, processes of one host do not.
 *
 * A holder that hangs, or that means harm, may keep a lock for ever. Who has waited for it in vain asks
 * what the holder holds, and leaves word in this process: for a minute nobody else waits for that.
 *
 * A lock is given back explicitly, because a forked child shares it and close() would leave it held.
 */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void doze(int64_t ns) { nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL); }

int64_t lock_place(const struct digest *key) { return (int64_t)(key->word[0] >> 2); }

/* ---- The file ---- */

enum { OPEN_LOCK = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK };

static int open_below(const char *folder)
{
    struct stat st;
    int dir = fd_open(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0), fd = -1;
    if (dir < 0) return -1;
    if (!fstat(dir, &st) && !trust_problem(&st, 0)) fd = fd_open(dir, "coda.lock", OPEN_LOCK, 0600);
    close(dir);
    if (fd < 0 || (!fstat(fd, &st) && S_ISREG(st.st_mode) && !trust_problem(&st, 0))) return fd;
    close(fd);
    return -1;
}

static int open_of_host(void)
{
    char folder[64];
    const char *runtime = environment("XDG_RUNTIME_DIR");
    int fd = runtime && *runtime == '/' ? open_below(runtime) : -1;
    if (fd >= 0) return fd;
    snprintf(folder, sizeof folder, "/dev/shm/coda-%u", (unsigned)geteuid());
    mkdir(folder, 0700);
    return open_below(folder);
}

static int open_lock(struct dir *d) { return d->remote ? open_of_host() : dir_file(d, ".lock"); }

/* ---- Locks ---- */

static int set(int fd, short type, int64_t at)
{
    struct flock f = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int r = fcntl(fd, F_OFD_SETLK, &f);
    for (int patience = INTERRUPTIONS; r && errno == EINTR && patience > 0; patience--)
        r = fcntl(fd, F_OFD_SETLK, &f);
    return r;
}

/* Is the locked file still the one that others would open? */
static bool is_current(int fd)
{
    struct stat st;
    return !fstat(fd, &st) && st.st_nlink > 0;
}

enum lock_state lock_try(struct lock *l, struct dir *d, int64_t at)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        if (l->fd < 0) l->fd = open_lock(d);
        if (l->fd < 0) return LOCK_NONE;
        l->at = at;
        if (set(l->fd, F_WRLCK, at)) return errno == EAGAIN || errno == EACCES ? LOCK_BUSY : LOCK_NONE;
        if (is_current(l->fd)) return LOCK_MINE;
        lock_release(l);
    }
    return LOCK_NONE;
}

void lock_release(struct lock *l)
{
    if (l->fd < 0) return;
    set(l->fd, F_UNLCK, l->at);
    close(l->fd);
    l->fd = -1;
}

/* ---- Locks that are stuck ---- */

void lock_mark_stuck(struct stuck *s, int64_t from, int64_t to)
{
    unsigned i = atomic_fetch_add(&s->next, 1) % STUCKS;
    atomic_store(&s->range[i].until, 0);
    atomic_store(&s->range[i].from, from);
    atomic_store(&s->range[i].to, to);
    atomic_store(&s->range[i].until, now_ns() + (int64_t)STUCK_S * 1000000000);
}

bool lock_is_stuck(struct stuck *s, int64_t at)
{
    for (int i = 0; i < STUCKS; i++) {
        int64_t until = atomic_load(&s->range[i].until);
        if (until && atomic_load(&s->range[i].from) <= at && at < atomic_load(&s->range[i].to) &&
            now_ns() < until)
            return true;
    }
    return false;
}

/* One of ours holds one place. Whoever holds more, or all to the end of the file, is no friend. */
void lock_give_up(struct lock *l, struct dir *d)
{
    struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = l->at, .l_len = 1};
    if (l->fd < 0 || fcntl(l->fd, F_OFD_GETLK, &f) || f.l_type == F_UNLCK) return;
    lock_mark_stuck(&d->stuck, f.l_start, f.l_len ? f.l_start + f.l_len : INT64_MAX);
}
