/* arena.c -- allocations that die together. Blocks grow; nothing is freed singly. */
#include "base.h"

#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    bool zeroed; /* all of it, by the system; else each allocation is */
    _Alignas(16) unsigned char data[];
};

#ifdef CODA_HOSTILE
enum { BLOCK_SIZE = 1 }; /* one malloc for each allocation, so that sanitizers see overruns */
#else
enum { BLOCK_SIZE = 16384 };
#endif

static bool add_block(struct arena *a, size_t bytes, bool zeroes)
{
    bool large = bytes > BLOCK_SIZE;
    size_t size = large ? bytes : BLOCK_SIZE;
    struct arena_block *b = large && zeroes ? calloc(1, sizeof *b + size) : malloc(sizeof *b + size);
    if (!b) return false;
    b->used = 0;
    b->size = size;
    b->zeroed = large && zeroes;
    b->next = a->block;
    a->block = b;
    return true;
}

/* `zeroes`: what a block that is made for it has to be. */
static void *take(struct arena *a, size_t bytes, bool zeroes)
{
    if (bytes > (size_t)1 << 40) {
        a->failed = true;
        return NULL;
    }
    bytes = (MAX(bytes, 1) + 15) & ~(size_t)15;
    if (!a->block || a->block->size - a->block->used < bytes) {
        if (!add_block(a, bytes, zeroes)) {
            a->failed = true;
            return NULL;
        }
    }
    void *p = a->block->data + a->block->used;
    a->block->used += bytes;
    return p;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    void *p = take(a, bytes, true);
    return !p || a->block->zeroed ? p : memset(p, 0, bytes);
}

void *arena_copy(struct arena *a, const void *data, size_t bytes)
{
    void *p = take(a, bytes, false);
    return p && bytes ? memcpy(p, data, bytes) : p; /* data may be NULL for no bytes */
}

void *arena_grow(struct arena *a, void *array, int count, int *capacity, size_t size)
{
    if (count < *capacity) return array;
    int wider = MAX(16, 2 * *capacity);
    void *copy = arena_alloc(a, size * (size_t)wider);
    if (!copy) return NULL;
    if (count) memcpy(copy, array, size * (size_t)count);
    *capacity = wider;
    return copy;
}

char *arena_string(struct arena *a, const char *s) { return arena_copy(a, s, strlen(s) + 1); }

char *arena_format(struct arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = format_print(NULL, 0, format, args);
    va_end(args);
    if (n < 0) return a->failed = true, NULL;
    char *s = arena_alloc(a, (size_t)n + 1);
    if (!s) return NULL;
    va_start(args, format);
    format_print(s, (size_t)n + 1, format, args);
    va_end(args);
    return s;
}

void arena_free(struct arena *a)
{
    while (a->block) {
        struct arena_block *next = a->block->next;
        free(a->block);
        a->block = next;
    }
    a->failed = false;
}
