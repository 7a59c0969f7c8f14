/*
 * store.c -- the user's own place for entries: a data base, an object store, a table in memory.
 *
 * It gets and gives whole entries, the bytes of a file, and is believed as little as a file.
 */
#include "inside.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_GUESS = 1 << 16 };

/* Asks until the answer fits: the value may grow between two questions. */
static void *read_value(const struct cache_store *s, const char *name, size_t *size)
{
    size_t room = FIRST_GUESS;
    for (int attempt = 0; attempt < 8; attempt++) {
        char *bytes = malloc(room);
        if (!bytes) return errno = ENOMEM, NULL;
        int64_t n = s->get(s->ctx, name, bytes, room);
        if (n >= 0 && (size_t)n <= room) return *size = (size_t)n, bytes;
        free(bytes);
        if (n < 0) return errno = ENOENT, NULL;
        if (n > (int64_t)ENTRY_MAX) return errno = EFBIG, NULL;
        room = (size_t)n;
    }
    return errno = EIO, NULL;
}

const char *store_get(const struct cache_store *s, struct stats *stats, const struct cache_key *k,
                      void **data, size_t *size)
{
    char name[DIGEST_HEX];
    size_t total;
    digest_hex(name, &k->digest);
    void *bytes = read_value(s, name, &total);
    if (!bytes && errno == ENOENT) return "absent";
    if (!bytes) return stats_add(stats, COUNT_read_failures, 1), "unreadable";
    const char *fault = entry_take(stats, k, bytes, total, size);
    if (!fault) return *data = bytes, NULL;
    free(bytes);
    if (s->drop && fault != entry_collision) {
        s->drop(s->ctx, name);
        stats_add(stats, COUNT_healed, 1);
    }
    return fault;
}

int store_put(const struct cache_store *s, const struct cache_key *k, const void *bytes, size_t size)
{
    char name[DIGEST_HEX];
    digest_hex(name, &k->digest);
    return s->put ? s->put(s->ctx, name, bytes, size) : EROFS;
}
