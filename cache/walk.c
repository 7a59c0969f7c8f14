/*
 * walk.c -- looking through a directory entry by entry, and taking in what comes from elsewhere.
 *
 * Other processes go on meanwhile: what vanishes between two looks is left out.
 */
#include "inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct walk {
    bool (*visit)(void *ctx, const struct cache_item *item);
    void *ctx;
    int64_t now;
};

/* Does the entry lie under the name that its key gives, or its WHAT if it was imported? */
static bool is_named(const struct entry *e, const char *name)
{
    char own[DIGEST_HEX], what[DIGEST_HEX];
    struct digest d = digest_of(e->key, e->key_size), w = digest_of(e->key, e->what_size);
    digest_hex(own, &d);
    digest_hex(what, &w);
    return !strcmp(own, name) || !strcmp(what, name);
}

static bool look(void *ctx, const struct scanned *s)
{
    struct walk *w = ctx;
    struct cache_item item = {.name = s->name, .bytes = (int64_t)s->st.st_blocks * 512};
    struct stat st;
    errno = 0;
    void *bytes = disk_read(s->folder, s->name, &item.raw_size, &st);
    if (!bytes && errno == ENOENT) return true;
    item.raw = bytes;
    item.fault = bytes ? entry_check(&item.entry, bytes, item.raw_size) : ENTRY_SHORT;
    if (!item.fault && !is_named(&item.entry, s->name)) item.fault = ENTRY_KEY;
    item.age_s = w->now > s->st.st_mtim.tv_sec ? w->now - s->st.st_mtim.tv_sec : 0;
    bool more = w->visit(w->ctx, &item);
    free(bytes);
    return more;
}

bool walk_dir(struct dir *d, bool (*visit)(void *ctx, const struct cache_item *item), void *ctx)
{
    struct walk w = {visit, ctx, time(NULL)};
    return d->fd >= 0 && dir_scan(d, look, &w);
}
