/*
 * usage.h -- what every program says of itself: `--help` prints its usage to standard output, and an argument
 * that is not known is one line on standard error and exit status 2.
 */
#ifndef USAGE_H
#define USAGE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool usage_word(const char *word) { return !strcmp(word, "--help") || !strcmp(word, "-h"); }

/* Does an argument ask for help? Then the text is printed, and the program is done: it ends here if that
 * fails. */
static inline bool usage_asked(char **argv, const char *text)
{
    bool asked = false;
    while (*argv && *++argv && !asked) asked = usage_word(*argv);
    if (asked && (puts(text) < 0 || fflush(stdout))) perror("standard output"), exit(1);
    return asked;
}

/* Of a program that takes one option, or with NULL none: whether it was given. -1: go on, else the exit
 * status. */
static inline int usage_read(char **argv, const char *name, const char *text, const char *option, bool *given)
{
    if (usage_asked(argv, text)) return 0;
    for (argv += *argv != NULL; *argv; argv++) {
        if (!option || strcmp(*argv, option))
            return fprintf(stderr, "%s: there is no option %s; see %s --help\n", name, *argv, name), 2;
        *given = true;
    }
    return -1;
}

#endif
