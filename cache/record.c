/*
 * record.c -- a file that gets a line for each key that is used: what a bundle should hold.
 *
 *     line ::= kind " " hex^64 ( " " value )* "\n"      hex of WHAT's digest; the values are for people
 *
 * It names no compiler, device or path, so that a record of one machine serves another. A line is one
 * write at the end of the file: lines of many processes do not mix. Nothing else depends on it, so a
 * failure is nobody's.
 */
#include "inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The value of the key's line of this name, or of no length. */
static const char *value(const char *key, const char *name, int *length)
{
    size_t n = strlen(name);
    *length = 0;
    for (const char *line = key; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, name, n) || line[n] != ' ') continue;
        *length = (int)strcspn(line + n + 1, "\n");
        return line + n + 1;
    }
    return "";
}

void record_key(const char *path, const struct cache_key *k)
{
    char line[512], hex[DIGEST_HEX];
    int arch, symbol;
    const char *a = value(k->what, "arch", &arch), *s = value(k->what, "symbol", &symbol);
    digest_hex(hex, &k->what_digest);
    int n = snprintf(line, sizeof line - 1, "%s %s%s%.*s%s%.*s", cache_kind_name(k->kind), hex,
                     arch ? " " : "", arch, a, symbol ? " " : "", symbol, s);
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n++] = '\n';
    int fd = fd_open(AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0644);
    if (fd < 0) return;
    (void)fd_write_some(fd, line, (size_t)n);
    close(fd);
}
