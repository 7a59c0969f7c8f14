/* shape_list.c -- see shape_list.h. */
#include "shape_list.h"

#include <stdlib.h>
#include <string.h>

static size_t dims_bytes(const struct shape_list *l) { return sizeof(int64_t) * (size_t)l->symbols; }

static struct shape **chain_of(struct shape_list *l, const int64_t *dims)
{
    uint64_t h = 0;
    for (int i = 0; i < l->symbols; i++) h = (h ^ (uint64_t)dims[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return &l->chain[h % SHAPE_CHAINS];
}

struct shape *shape_find(struct shape_list *l, const int64_t *dims)
{
    struct shape *at = *chain_of(l, dims);
    while (at && memcmp(at->dims, dims, dims_bytes(l)) != 0) at = at->chain;
    return at;
}

static void unlink_use(struct shape_list *l, struct shape *e)
{
    *(e->newer ? &e->newer->older : &l->newest) = e->older;
    *(e->older ? &e->older->newer : &l->oldest) = e->newer;
}

static void link_newest(struct shape_list *l, struct shape *e)
{
    e->newer = NULL;
    e->older = l->newest;
    *(l->newest ? &l->newest->newer : &l->oldest) = e;
    l->newest = e;
}

struct shape *shape_new(const struct shape_list *l, const int64_t *dims)
{
    struct shape *e = calloc(1, sizeof *e + dims_bytes(l));
    if (e) memcpy(e->dims, dims, dims_bytes(l));
    return e;
}

struct shape *shape_add(struct shape_list *l, const int64_t *dims)
{
    struct shape *e = shape_new(l, dims);
    if (!e) return NULL;
    struct shape **chain = chain_of(l, dims);
    e->chain = *chain;
    *chain = e;
    link_newest(l, e);
    l->kept++;
    return e;
}

void shape_use(struct shape_list *l, struct shape *e)
{
    if (e == l->newest) return;
    unlink_use(l, e);
    link_newest(l, e);
}

/* The pointer to it in its chain. */
static struct shape **link_of(struct shape_list *l, const struct shape *e)
{
    struct shape **at = chain_of(l, e->dims);
    while (*at != e) at = &(*at)->chain;
    return at;
}

void shape_bury(struct shape_list *l, struct shape *e)
{
    e->chain = l->gone;
    l->gone = e;
}

void shape_drop(struct shape_list *l, struct shape *e)
{
    *link_of(l, e) = e->chain;
    unlink_use(l, e);
    l->kept--;
    shape_bury(l, e);
}

void shape_replace(struct shape_list *l, struct shape *old, struct shape *by)
{
    *link_of(l, old) = by;
    by->chain = old->chain;
    by->newer = old->newer;
    by->older = old->older;
    *(by->newer ? &by->newer->older : &l->newest) = by;
    *(by->older ? &by->older->newer : &l->oldest) = by;
    old->replaced = true;
    if (!old->users) shape_bury(l, old);
}

struct shape *shape_list_gone(struct shape_list *l)
{
    struct shape *gone = l->gone;
    l->gone = NULL;
    return gone;
}

void shape_list_free(struct shape *gone)
{
    for (struct shape *next; gone; gone = next) {
        next = gone->chain;
        executable_free(gone->plan);
        free(gone);
    }
}
