/*
 * standard.h -- the three files that a program is started with: what it prints is written, or it has failed,
 * and no file or connection of its own takes the place of one that is missing.
 */
#ifndef STANDARD_H
#define STANDARD_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"

/* Ahead of all else. What stands for a missing one can be neither read nor written. */
static inline void standard_open(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

/* Behind all that is printed: whether it is where standard output leads. */
static inline bool standard_written(struct fault *f)
{
    bool bad = ferror(stdout);
    errno = 0;
    if (!fflush(stdout) && !bad) return true;
    return fault_set(f, "standard output: %s", errno ? strerror(errno) : "not all of it could be written");
}

#endif
