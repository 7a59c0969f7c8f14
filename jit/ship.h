/* ship.h -- entries on their way into a bundle. Between ship.c and what knows kernels. */
#ifndef SHIP_H
#define SHIP_H

#include "cache.h"
#include "coda.h"

struct piece {
    void *bytes; /* an entry */
    size_t size;
    struct digest what;
    int64_t age_s;
};
struct cargo {
    struct piece *piece;
    int count, room;
    int collided;          /* entries left out because another one's WHAT has the same digest */
    int damaged;           /* entries of the directory that were left out */
    const char *arch;      /* only entries for these, commas between; NULL: all */
    struct digest *wanted; /* only entries of these WHATs; NULL: all */
    size_t wanteds;
    bool failed; /* memory ran out */
};
/* On failure one line in err (CACHE_ERROR bytes) and errno ENOMEM or EIO, here and below. keys and arch may
 * be NULL. */
bool cargo_open(struct cargo *c, const char *keys, const char *arch, char *err);
void cargo_free(struct cargo *c);
void cargo_take(struct cargo *c, const struct entry *e, int64_t age_s);
bool cargo_gather(struct cargo *c, struct coda_cache *cache, char *err); /* all of its directory */
/* The bundle, malloc'd. */
void *cargo_pack(struct cargo *c, size_t *size, char *err);
int cargo_missing(const struct cargo *c); /* how many are not in it that should be, after cargo_pack */
/* As it is, or as C source that defines an array. */
bool cargo_write(const char *path, const void *bytes, size_t size, const char *array, char *err);

#endif
