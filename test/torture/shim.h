/*
 * shim.h -- the file calls of a process, and what shall happen at the N-th that touches one directory.
 *
 * shim.so stands before libc: a program is linked with it, or gets it by LD_PRELOAD. A call touches the
 * directory if its path lies in it or one of its descriptors was opened there. Nothing happens until
 * `root` is set. Settings belong to one process; a forked child inherits them.
 */
#ifndef SHIM_H
#define SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum shim_action {
    SHIM_NONE,
    SHIM_FAIL,  /* the call does nothing and fails with `error` */
    SHIM_SHORT, /* a write takes half of its bytes */
    SHIM_CLOSE, /* a close closes, and fails with `error` */
    SHIM_TEAR,  /* a write takes half of its bytes, then SIGKILL; any other call: SIGKILL */
    SHIM_KILL,  /* SIGKILL before the call */
    SHIM_STOP   /* SIGSTOP before the call */
};

struct shim_event { /* a call that succeeded */
    const char *call;
    int fd, folder;             /* descriptors, or -1 */
    const char *path, *newpath; /* or NULL */
    const void *data;
    size_t size;
};

struct shim {
    char root[256];    /* absolute; "": off */
    atomic_long count; /* calls so far */
    long at;           /* the N-th acts, from 1; 0: none */
    bool sticky;       /* and all after it */
    enum shim_action action;
    int error;         /* errno value */
    const char *only;  /* NULL, or the name of the one call that is counted */
    atomic_long acted; /* how often it acted */
    bool all_named;    /* the file system has no nameless files */
    int lock_error;    /* errno of every attempt to lock, wherever the file lies; 0: none */
    /* A file server's ways. */
    bool nfs;        /* statfs says NFS; no O_TMPFILE, no locks; ESTALE for what was unlinked */
    int negative_ms; /* a name that was not there stays away so long, unless this process made it */
    /* Called after each call that succeeded; may be NULL. */
    void (*saw)(const struct shim_event *e);
};

extern struct shim shim;

/* Watches `root` from now on, and counts from 0. */
void shim_watch(const char *root);
/* Acts at the n-th call from now. */
void shim_arm(enum shim_action action, long n, int error, bool sticky);
/* Neither watches nor acts. */
void shim_off(void);

#endif
