/*
 * symbols.c -- what a name is, and from names to indices: open addressing, at most half full.
 *
 * Keys stay the caller's strings and must live as long as the table. Growing leaves the old slots
 * in the arena.
 */
#include "graph.h"

#include <string.h>

struct name_slot {
    const char *name; /* NULL: free */
    int value;
};

/* The slot that holds the name, or the free one where it belongs. */
static struct name_slot *seek(const struct names *t, const char *name)
{
    uint32_t mask = (uint32_t)t->capacity - 1, i = (uint32_t)hash_of(name, strlen(name)) & mask;
    while (t->slot[i].name && strcmp(t->slot[i].name, name) != 0) i = (i + 1) & mask;
    return &t->slot[i];
}

static bool grow(struct names *t, struct arena *a)
{
    struct names wider = {.count = t->count, .capacity = MAX(16, 2 * t->capacity)};
    wider.slot = ARENA_NEW(a, struct name_slot, wider.capacity);
    if (!wider.slot) return false;
    for (int i = 0; i < t->capacity; i++)
        if (t->slot[i].name) *seek(&wider, t->slot[i].name) = t->slot[i];
    *t = wider;
    return true;
}

int names_find(const struct names *t, const char *name, int absent)
{
    if (!t->capacity) return absent;
    const struct name_slot *slot = seek(t, name);
    return slot->name ? slot->value : absent;
}

const char *names_at(const struct names *t, int i) { return t->slot[i].name; }

bool names_add(struct names *t, struct arena *a, const char *name, int value)
{
    if (2 * t->count >= t->capacity && !grow(t, a)) return false;
    struct name_slot *slot = seek(t, name);
    t->count += !slot->name;
    *slot = (struct name_slot){name, value};
    return true;
}

bool name_valid(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    return n > 0 && n < 256 && name[n] == 0 && name[0] != '.' && !(name[0] >= '0' && name[0] <= '9');
}
