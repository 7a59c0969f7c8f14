/*
 * walk.c -- looking through a directory entry by entry, and taking in what comes from elsewhere.
 *
 * Other processes go on meanwhile: what vanishes between two looks is left out.
 */
#include "inside.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct walk {
    const struct dir *d;
    bool (*visit)(void *ctx, const struct cache_item *item);
    void *ctx;
    int64_t now;
};

static bool look(void *ctx, const struct scanned *s)
{
    struct walk *w = ctx;
    struct cache_item item = {.name = s->name, .bytes = (int64_t)s->st.st_blocks * 512};
    void *bytes;
    item.fault = disk_examine(w->d, &item.entry, &bytes, &item.raw_size, s);
    if (item.fault == ENTRY_FAULTS) { /* it has gone; or there is no memory for it, which is to be seen */
        if (errno == ENOENT) return true;
        item.fault = ENTRY_SHORT;
    }
    item.raw = bytes;
    item.age_s = w->now > s->st.st_mtim.tv_sec ? w->now - s->st.st_mtim.tv_sec : 0;
    bool more = w->visit(w->ctx, &item);
    free(bytes);
    return more;
}

bool walk_dir(struct dir *d, bool (*visit)(void *ctx, const struct cache_item *item), void *ctx)
{
    struct walk w = {d, visit, ctx, time(NULL)};
    return d->fd >= 0 && dir_scan(d, look, &w);
}
