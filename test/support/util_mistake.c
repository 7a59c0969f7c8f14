/* util_mistake.c -- see util_mistake.h. */
#include "util_mistake.h"

#include <stdio.h>
#include <string.h>

static void cut(char *s, const char *from)
{
    char *at = strstr(s, from);
    if (at) *at = 0;
}

const char *mistake_plain(const char *line)
{
    static _Thread_local char s[1024];
    snprintf(s, sizeof s, "%s", line);
    cut(s, "; where ");
    cut(s, "; calls after it did nothing");
    char *word = s;
    if (!strncmp(s, "line ", 5) && strstr(s, ": ")) word = strstr(s, ": ") + 2;
    char *name = word + strcspn(word, " :"), *colon = strchr(name, ':');
    if (!strncmp(name, " %", 2) && colon) memmove(name, colon, strlen(colon) + 1);
    return s;
}
