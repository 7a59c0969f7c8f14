/*
 * cache.h -- bytes by key, on disk, shared by processes. Knows no CUDA.
 *
 * The cache never fails, it only misses: a missing, short, damaged, foreign or unwritable entry is a
 * miss. Safe across threads and processes.
 */
#ifndef CACHE_H
#define CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cache; /* a directory */

/* dir NULL: $CODA_CACHE_DIR, else $XDG_CACHE_HOME/coda, else ~/.cache/coda. Never NULL unless memory
 * runs out; a directory that cannot be made or trusted gives a cache that always misses. */
struct cache *cache_open(const char *dir);
void cache_close(struct cache *c);
const char *cache_dir(const struct cache *c);     /* "" if there is none                           */
const char *cache_problem(const struct cache *c); /* why it always misses, or ""                   */

/* `key` is the full key text; it is hashed for the name and stored and compared on load. On a hit
 * *data is malloc'd. `note` is stored beside the payload for people to read (the kernel's source);
 * it may be NULL. */
bool cache_get(struct cache *c, const char *key, void **data, size_t *size);
void cache_put(struct cache *c, const char *key, const void *data, size_t size, const char *note);

/* XXH3-128 of bytes, as 32 hex digits and a NUL. */
void cache_digest(char out[33], const void *data, size_t size);

#endif
