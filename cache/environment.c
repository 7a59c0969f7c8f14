/*
 * environment.c -- the one place where the library reads the environment.
 *
 * A program that runs with more rights than its caller (setuid, setgid, file capabilities: AT_SECURE) was
 * given its variables by somebody it must not trust. There no variable counts, whatever its name is.
 */
#include "cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

bool environment_is_foreign(void) { return getauxval(AT_SECURE) != 0; }

const char *environment(const char *name)
{
    const char *s = environment_is_foreign() ? NULL : getenv(name);
    return s && *s ? s : NULL;
}

static bool begins_with_one(const char *s, const char *const *prefix)
{
    while (*prefix && strncmp(s, *prefix, strlen(*prefix))) prefix++;
    return *prefix;
}

const char *environment_begins(const char *const *prefix, const char *const *but)
{
    for (char *const *e = environ; e && *e; e++)
        if (begins_with_one(*e, prefix) && !begins_with_one(*e, but)) return *e;
    return NULL;
}

char **environment_of_child(void)
{
    static char *none[] = {NULL};
    return environment_is_foreign() ? none : environ;
}
