/* stats.c -- the counters' names, and which counter an error belongs to. */
#include "inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stats stats_of_process;

#define NAME(name, comment) #name,
static const char *const names[] = {CACHE_COUNTERS(NAME)};

void stats_reject(struct stats *s, enum entry_fault f)
{
    static const enum cache_counter which[ENTRY_FAULTS] = {
        [ENTRY_SHORT] = COUNT_rejected_short,         [ENTRY_FOREIGN] = COUNT_rejected_foreign,
        [ENTRY_VERSION] = COUNT_rejected_version,     [ENTRY_SIZES] = COUNT_rejected_sizes,
        [ENTRY_DIGEST] = COUNT_rejected_digest,       [ENTRY_KEY] = COUNT_rejected_key,
        [ENTRY_UNTRUSTED] = COUNT_rejected_untrusted,
    };
    if (f != ENTRY_INTACT) stats_add(s, which[f], 1);
}

static enum cache_counter cause(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return COUNT_store_failed_space;
    case EROFS:
    case EACCES:
    case EPERM: return COUNT_store_failed_denied;
    case EMFILE:
    case ENFILE: return COUNT_store_failed_descriptors;
    case ENOMEM: return COUNT_store_failed_memory;
    case ESTALE:
    case ENOENT: return COUNT_store_failed_stale;
    case ENOLCK: return COUNT_store_failed_locked;
    default: return COUNT_store_failed_io;
    }
}

void stats_store_failure(struct stats *s, int error)
{
    stats_add(s, COUNT_store_failed, 1);
    stats_add(s, cause(error), 1);
}

/* ---- As JSON ---- */

/* The bytes of a well-formed UTF-8 character that is no control character; 0 if these are not. */
static int utf8_length(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0x20, 0xa0, 0x800, 0x10000};
    int n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
    uint32_t c = n == 1 ? *s : *s & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0;
        c = c << 6 | (s[i] & 63);
    }
    bool good = n && c >= least[n] && c != 0x7f && c <= 0x10ffff && c >> 11 != 0x1b; /* no surrogate */
    return good ? n : 0;
}

/* Prints a character's number if it reorders or breaks a line that is shown (UAX #9), else nothing. */
static bool print_mark(FILE *f, const unsigned char *s, int n)
{
    unsigned c = n == 2 ? s[0] & 31u : s[0] & 15u;
    for (int i = 1; i < n; i++) c = c << 6 | (s[i] & 63);
    bool mark = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
                (c >= 0x2066 && c <= 0x2069);
    return (n == 2 || n == 3) && mark && fprintf(f, "\\u%04x", c) > 0;
}

/* Any bytes give valid JSON: what is no UTF-8 goes in as Latin-1, byte by byte. */
static void print_string(FILE *f, const char *name, const char *text)
{
    fprintf(f, "\"%s\": \"", name);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = utf8_length(s);
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if (n && !print_mark(f, s, n)) fwrite(s, 1, (size_t)n, f);
        else if (!n) fprintf(f, "\\u%04x", *s);
        s += n ? n : 1;
    }
    fputs("\",\n ", f);
}

int64_t stats_print(const struct stats *s, struct dir *d, char *buf, size_t size)
{
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    if (!f) return -1;
    fputs("{", f);
    print_string(f, "directory", d->fd >= 0 ? d->path : "");
    print_string(f, "problem", d->problem);
    print_string(f, "file_system", d->fs);
    fprintf(f, "\"limit\": %" PRId64 ",\n \"bytes\": %" PRId64, d->limit, evict_total(d));
    for (int i = 0; i < CACHE_COUNTER_COUNT; i++)
        fprintf(f, ",\n \"%s\": %" PRIu64, names[i], stats_get(s, (enum cache_counter)i));
    fputs("}\n", f);
    bool good = !ferror(f);
    if (fclose(f) || !good) return free(text), -1;
    if (size) snprintf(buf, size, "%s", text);
    free(text);
    return (int64_t)length;
}
