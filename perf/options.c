/* options.c -- see options.h. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option *find(const struct option *o, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(o[i].name, name)) return &o[i];
    return NULL;
}

static bool take(const char *program, const struct option *o, const char *value)
{
    if (!value) return fprintf(stderr, "%s: %s needs a value; see --help\n", program, o->name), false;
    if (o->word) return *o->word = value, true;
    char *end;
    errno = 0;
    *o->number = strtoll(value, &end, 10);
    if (!errno && *value && !*end && *o->number > 0) return true;
    return fprintf(stderr, "%s: %s is a number of 1 or more, not %s\n", program, o->name, value), false;
}

int options_read(const char *program, char **argv, const struct option *o, int n)
{
    int words = 0;
    for (char **next = argv; *next;) {
        char *name = *next++;
        const struct option *of = find(o, n, name);
        if (of && of->given) *of->given = true;
        else if (of && !take(program, of, *next)) return -1;
        else if (of) next++;
        else if (*name != '-') argv[words++] = name;
        else return fprintf(stderr, "%s: there is no option %s; see --help\n", program, name), -1;
    }
    return words;
}
