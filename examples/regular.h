/*
 * regular.h -- the one way in which files of checkpoints, graphs and arrays are opened: regular files, and
 * none larger than what it is for.
 *
 * A FIFO would block, a device may have no end, and a folder opens and then cannot be read: each is an error
 * before a byte is read.
 */
#ifndef REGULAR_H
#define REGULAR_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a file, at most. */
#define REGULAR_ANY INT64_MAX              /* mapped, not read */
#define REGULAR_JSON ((int64_t)64 << 20)   /* also the lists of words and merges of a tokenizer */
#define REGULAR_GRAPH ((int64_t)256 << 20) /* of the text form, or a record */

static inline int regular_refuse(int fd, char *why, size_t size, const char *text)
{
    if (fd >= 0) close(fd);
    snprintf(why, size, "%s", text);
    return -1;
}

/* Whether a folder has the name; what it stands for may be missing, as behind a link to nothing. */
static inline bool regular_there(const char *path)
{
    struct stat s;
    return !lstat(path, &s);
}

/* A descriptor, and the file's bytes; -1, with the reason in `why` and in errno, which is ENOENT alone where
 * there is no such name. */
static inline int regular_open(const char *path, int64_t most, int64_t *bytes, char *why, size_t size)
{
    struct stat s;
    char text[96];
    /* A FIFO does not block, and a terminal does not become the process's own. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &s)) {
        int error = errno == ENOENT && regular_there(path) ? ENOLINK : errno;
        regular_refuse(fd, why, size,
                       error == ENXIO     ? "no regular file"
                       : error == ENOLINK ? "a link to nothing"
                                          : strerror(error));
        return errno = error, -1;
    }
    if (!S_ISREG(s.st_mode)) {
        regular_refuse(fd, why, size,
                       S_ISDIR(s.st_mode) ? "no regular file, but a folder" : "no regular file");
        return errno = EINVAL, -1;
    }
    if (s.st_size > most) {
        snprintf(text, sizeof text, "%lld bytes, of which %lld are the most", (long long)s.st_size,
                 (long long)most);
        regular_refuse(fd, why, size, text);
        return errno = EFBIG, -1;
    }
    if (bytes) *bytes = s.st_size;
    return fd;
}

/* The same as a stream. */
static inline FILE *regular_stream(const char *path, int64_t most, char *why, size_t size)
{
    int fd = regular_open(path, most, NULL, why, size);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (fd >= 0 && !f) regular_refuse(fd, why, size, strerror(errno));
    return f;
}

#endif
