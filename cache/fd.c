/*
 * fd.c -- every descriptor that the library opens, and every byte that it writes.
 *
 * A library that writes must not end its host. A write past RLIMIT_FSIZE raises SIGXFSZ, one into a pipe
 * that nobody reads SIGPIPE, and both kill by default. They are sent to the thread that writes: it blocks
 * them meanwhile, takes back the one that its own write raised, and sees EFBIG or EPIPE. No handler is
 * installed, and a signal that was pending before stays so.
 *
 * A descriptor is never 0, 1 or 2, though the host may have closed these: what it prints would land in
 * our file. All are closed by exec. Nothing here waits for a FIFO's other end, but for fd_pour.
 */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LOWEST = 3 };

/* ---- Open ---- */

int fd_raise(int fd)
{
    if (fd < 0 || fd >= LOWEST) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST), error = errno;
    close(fd);
    errno = error;
    return higher;
}

int fd_open(int at, const char *path, int flags, mode_t mode)
{
    return fd_raise(openat(at, path, flags | O_CLOEXEC | O_NOCTTY, mode));
}

/* ---- Write ---- */

struct hush {
    sigset_t before, mine;
};

static void hush_begin(struct hush *h)
{
    static const int signals[] = {SIGXFSZ, SIGPIPE};
    sigset_t both, pending;
    sigemptyset(&both);
    sigemptyset(&h->mine);
    sigemptyset(&pending);
    sigpending(&pending);
    for (int i = 0; i < 2; i++) {
        sigaddset(&both, signals[i]);
        if (!sigismember(&pending, signals[i])) sigaddset(&h->mine, signals[i]);
    }
    pthread_sigmask(SIG_BLOCK, &both, &h->before);
}

static void hush_end(struct hush *h, bool failed)
{
    int error = errno;
    if (failed && (error == EFBIG || error == EPIPE))
        while (sigtimedwait(&h->mine, NULL, &(struct timespec){0, 0}) > 0) {}
    pthread_sigmask(SIG_SETMASK, &h->before, NULL);
    errno = error;
}

ssize_t fd_write_some(int fd, const void *from, size_t size)
{
    struct hush h;
    hush_begin(&h);
    ssize_t n = write(fd, from, size);
    hush_end(&h, n < 0);
    return n;
}

bool fd_write_at(int fd, const void *from, size_t size, off_t at)
{
    struct hush h;
    hush_begin(&h);
    ssize_t n = pwrite(fd, from, size, at);
    hush_end(&h, n < 0);
    return n == (ssize_t)size;
}

/* `waits`: for room in a pipe that does not block by itself. */
static bool write_all(int fd, const void *from, size_t size, bool waits)
{
    const char *p = from;
    for (int patience = INTERRUPTIONS; size;) {
        ssize_t n = fd_write_some(fd, p, size);
        if (n < 0 && errno == EINTR && patience-- > 0) continue;
        if (n < 0 && errno == EAGAIN && waits &&
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1) >= 0)
            continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

bool fd_write(int fd, const void *from, size_t size) { return write_all(fd, from, size, false); }
bool fd_pour(int fd, const void *from, size_t size) { return write_all(fd, from, size, true); }

/* ---- Read ---- */

bool fd_read(int fd, void *to, size_t size)
{
    char *p = to;
    for (int patience = INTERRUPTIONS; size;) {
        ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR && patience-- > 0) continue;
        if (n == 0) errno = EIO; /* it was longer a moment ago */
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

bool fd_read_at(int fd, void *to, size_t size, off_t at)
{
    ssize_t n = pread(fd, to, size, at);
    for (int patience = INTERRUPTIONS; n < 0 && errno == EINTR && patience > 0; patience--)
        n = pread(fd, to, size, at);
    if (n >= 0 && n != (ssize_t)size) errno = EIO;
    return n == (ssize_t)size;
}

char *file_text(const char *path, size_t most)
{
    struct stat st;
    char *text = NULL;
    int fd = fd_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0) return NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= most) {
        size_t size = (size_t)st.st_size;
        text = malloc(size + 1);
        if (text && fd_read(fd, text, size)) text[size] = 0;
        else free(text), text = NULL;
    }
    close(fd);
    return text;
}
