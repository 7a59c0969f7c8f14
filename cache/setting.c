/*
 * setting.c -- what the environment asks for: switches, sizes and paths.
 *
 * A value means what it says, or is refused with the reason and counts as not set: never silently as
 * something else. A setuid process has no environment.
 */
#include "inside.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c; }

/* As strcasecmp() in the locale "C": in Turkish I is not the large i. */
static bool is_word(const char *s, const char *word)
{
    for (; *word; s++, word++)
        if (small(*s) != small(*word)) return false;
    return !*s;
}

const char *error_text(int error)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* one that the C library keeps, freed by nobody */
    return c ? strerror_l(error, c) : "?";
}

bool setting_flag(const char *name, char problem[PROBLEM])
{
    static const char *const yes[] = {"1", "yes", "true", "on"}, *const no[] = {"", "0", "no", "false",
                                                                                "off"};
    const char *s = environment(name);
    if (!s) return false;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (is_word(s, yes[i])) return true;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (is_word(s, no[i])) return false;
    problem_add(problem, "%s is \"%.64s\", neither 1 nor 0: taken as 0", name, s);
    return false;
}

/* 1, 1K, 1KB, 1KiB: K is 1024, and so on. False if it is no size, or more than 63 bits. */
static bool parse_size(const char *s, int64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    if (*s < '0' || *s > '9') return false;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    const char *unit = *end > ' ' ? strchr(units, *end & ~32) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    const char *rest = unit ? end + 1 : end;
    if (errno || n > INT64_MAX >> shift) return false;
    *out = (int64_t)n << shift;
    return !*rest || (unit && (is_word(rest, "B") || is_word(rest, "iB")));
}

int64_t setting_size(const char *name, int64_t otherwise, char problem[PROBLEM])
{
    int64_t n = 0;
    const char *s = environment(name);
    if (!s || !*s) return otherwise;
    if (!strcmp(s, "-1")) return -1;
    if (parse_size(s, &n) && n) return n;
    problem_add(problem, "%s is \"%.64s\", not bytes with K, M, G or T, nor -1 for no limit: taken as %lldM",
                name, s, (long long)otherwise >> 20);
    return otherwise;
}

char *setting_path(const char *path, char problem[PROBLEM])
{
    char *s = NULL, *here = path[0] && path[0] != '/' ? getcwd(NULL, 0) : strdup("");
    bool known = here && (!*here || *here == '/'); /* outside of a chroot it begins otherwise */
    if (known && asprintf(&s, "%s%s%s", here, *here && here[1] ? "/" : "", path) < 0) s = NULL;
    if (!s)
        problem_add(problem, "%.300s is relative to no directory: %s", path,
                    error_text(known || !here ? errno : ENOENT));
    free(here);
    return s;
}
