/* old.h -- the cache as it was, until cache.h's is there. */
#ifndef OLD_H
#define OLD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
struct old_cache;
struct old_cache *old_open(const char *dir);
void old_close(struct old_cache *c);
const char *old_dir(const struct old_cache *c);
const char *old_problem(const struct old_cache *c);
bool old_get(struct old_cache *c, const char *key, void **data, size_t *size);
void old_put(struct old_cache *c, const char *key, const void *data, size_t size, const char *note);
void old_digest(char out[33], const void *data, size_t size);
#endif
