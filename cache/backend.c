/* backend.c -- where entries are kept: the directory, or the user's store instead of it. */
#include "inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *place_get(struct coda_cache *c, const struct cache_key *k, void **data, size_t *size)
{
    if (c->has_store) return store_get(&c->store, &c->stats, k, data, size);
    return disk_get(&c->dir, k, data, size);
}

static int publish_file(struct coda_cache *c, const char *name, const void *bytes, size_t size, bool replace)
{
    int error = disk_put(&c->dir, name, bytes, size, replace);
    evict_sweep(&c->dir);
    return error;
}

static void count_put(struct coda_cache *c, int error, size_t size)
{
    if (error == EEXIST) stats_add(&c->stats, COUNT_lost_races, 1);
    else if (error == E2BIG) stats_add(&c->stats, COUNT_too_large, 1);
    else if (error) stats_store_failure(&c->stats, error);
    else {
        stats_add(&c->stats, COUNT_stored, 1);
        stats_add(&c->stats, COUNT_stored_bytes, size);
    }
}

bool place_writable(const struct coda_cache *c)
{
    return !(c->flags & CACHE_READ_ONLY) && (c->has_store || c->dir.fd >= 0);
}

static char *join_key(const struct cache_key *k)
{
    char *s = NULL;
    return asprintf(&s, "%s%s", k->what, k->by ? k->by : "") < 0 ? NULL : s;
}

bool place_is_taken(struct coda_cache *c, const struct cache_key *k)
{
    void *data;
    size_t size;
    const char *missed = place_writable(c) ? place_get(c, k, &data, &size) : "";
    if (!missed) free(data);
    return missed == entry_collision;
}

void place_put(struct coda_cache *c, const struct cache_key *k, const void *data, size_t size, bool replace)
{
    char *key, name[DIGEST_HEX];
    size_t total = 0;
    if (!place_writable(c)) return;
    key = join_key(k);
    struct entry e = {
        .kind = k->kind, .key = key, .key_size = key ? strlen(key) : 0, .note = k->text, .data = data};
    e.what_size = strlen(k->what);
    e.note_size = k->text ? strlen(k->text) : 0;
    e.data_size = size;
    void *bytes = key ? entry_pack(&e, &total) : NULL;
    digest_hex(name, &k->digest);
    int error = !bytes         ? ENOMEM
                : c->has_store ? store_put(&c->store, k, bytes, total)
                               : publish_file(c, name, bytes, total, replace);
    count_put(c, error, total);
    free(bytes);
    free(key);
}

void place_drop(struct coda_cache *c, const struct cache_key *k, const struct cache_value *v)
{
    char name[DIGEST_HEX];
    digest_hex(name, &k->digest);
    if (!c->has_store) {
        struct cache_key imported = *k;
        imported.by = NULL;
        imported.digest = k->what_digest;
        disk_drop(&c->dir, k, v->data, v->size);
        disk_drop(&c->dir, &imported, v->data, v->size);
    } else if (c->store.drop) c->store.drop(c->store.ctx, name);
}

bool place_import(struct coda_cache *c, const void *raw, size_t raw_size)
{
    struct entry e;
    char name[DIGEST_HEX];
    if (!place_writable(c) || c->has_store || entry_check(&e, raw, raw_size)) return false;
    struct digest d = name_of(e.key, e.what_size, NULL, 0);
    digest_hex(name, &d);
    int error = publish_file(c, name, raw, raw_size, false);
    bool taken = error == EEXIST && !disk_has(&c->dir, name, &e);
    if (taken) stats_add(&c->stats, COUNT_collisions, 1);
    else count_put(c, error, raw_size);
    return !error || (error == EEXIST && !taken);
}
