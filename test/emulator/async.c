/*
 * async.c -- cp.async: what threads copy from global to shared memory, a few bytes at a time.
 *
 * A copy is noted when it is issued: from then on what lies there are NaNs, as it may come at once. The bytes
 * come at a random time, at the latest when their thread waits for their group, in no order.
 */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

enum { WORD = 4 };

static struct landing *add(struct landings *l)
{
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 16;
        l->landing = realloc(l->landing, (size_t)l->room * sizeof *l->landing);
        if (!l->landing) abort();
    }
    return &l->landing[l->count++];
}

static void land(struct block *b, struct landings *l, int i)
{
    const struct landing *x = &l->landing[i];
    memset(b->shared + x->shared, 0, x->bytes);
    if (x->exist) memcpy(b->shared + x->shared, x->global, x->exist);
    for (uint32_t w = 0; w < x->bytes / WORD; w++) b->coming[x->shared / WORD + w]--;
    l->landing[i] = l->landing[--l->count];
}

void advance_landings(struct cluster *c)
{
    if (!chance(c, c->policy.load)) return;
    struct block *b = &c->block[draw(c, (uint32_t)c->blocks)];
    struct landings *l = &b->landings[draw(c, (uint32_t)b->threads)];
    if (l->count) land(b, l, (int)draw(c, (uint32_t)l->count));
}

bool is_coming(const struct block *b, uint32_t offset, uint32_t bytes)
{
    for (uint32_t w = offset / WORD; w < (offset + bytes + WORD - 1) / WORD; w++)
        if (b->coming[w]) return true;
    return false;
}

void check_landings_of_ended(const struct thread *t)
{
    int left = t->block->landings[t->index].count;
    if (left) fail_thread(t, "ended with %d copies on their way", left);
}

/* ---- The calls ---- */

static void check_source(const struct thread *t, const void *from, int bytes, int exist)
{
    if (!t->waited_for_grid) fail_thread(t, "copies a tensor without griddepcontrol.wait");
    if (exist < 0 || exist > bytes) fail_thread(t, "copies %d of %d bytes", exist, bytes);
    if ((uintptr_t)from % (unsigned)bytes) fail_thread(t, "copies %d bytes from %p", bytes, from);
    if (exist && !in_device_memory(from, (size_t)exist))
        fail_thread(t, "copies %d bytes from %p, outside of any allocation", exist, from);
}

void emu_copy_async(uint32_t to, const void *from, int bytes, int exist)
{
    struct thread *t = self_thread();
    struct block *b = t->block;
    uint32_t size = (uint32_t)bytes, offset = own_offset(t, to, size, size, "cp.async");
    check_source(t, from, bytes, exist);
    if (is_coming(b, offset, size)) fail_thread(t, "copies to 0x%x, where another copy is on its way", to);
    if (store_overlaps(b, offset, size))
        fail_thread(t, "copies to 0x%x, which a bulk store may still read", to);
    *add(&b->landings[t->index]) = (struct landing){offset, size, (uint32_t)exist, t->copy_group, from};
    for (uint32_t w = 0; w < size / WORD; w++) b->coming[offset / WORD + w]++;
    memset(b->shared + offset, 0xff, size);
}

void emu_copy_commit(void)
{
    struct thread *t = self_thread();
    t->copy_group++;
    let_others_run(t);
}

void emu_copy_wait(int pending)
{
    struct thread *t = self_thread();
    struct landings *l = &t->block->landings[t->index];
    for (int i = 0; i < l->count; i++)
        if (l->landing[i].group + (unsigned)pending < t->copy_group) land(t->block, l, i--);
    let_others_run(t);
}
