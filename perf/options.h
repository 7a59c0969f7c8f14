/* options.h -- the command line of a program that does not share bench.c's. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct option {
    const char *name;  /* "--tokens" */
    int64_t *number;   /* where its value goes, which is 1 or more; or ... */
    const char **word; /* ... any word; or, of an option without a value: ... */
    bool *given;       /* ... that it was given */
};

/* Reads argv, and moves what is no option to its front: returns how many of these there are. -1: there was a
 * mistake, of which one line has been printed to standard error. */
int options_read(const char *program, char **argv, const struct option *o, int n);

#endif
