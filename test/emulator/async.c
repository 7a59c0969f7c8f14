/*
 * async.c -- cp.async: what threads copy from global to shared memory, a few bytes at a time.
 *
 * A copy is noted when it is issued: from then on what lies there are NaNs, as it may come at once. The bytes
 * come at a random time, in no order, at the latest when their thread waits for their group, or when nobody
 * can go on without them. A thread may have an mbarrier told once all that it has issued so far has come.
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

/* Has all come that an arrival is about? */
static bool is_due(const struct landings *l, const struct landing *x)
{
    for (int i = 0; x->bar && i < l->count; i++)
        if (l->landing[i].number < x->number) return false;
    return true;
}

static void land(struct block *b, struct landings *l, int i)
{
    const struct landing *x = &l->landing[i];
    b->cluster->landings--;
    if (x->bar) {
        struct mbarrier *bar = x->bar;
        l->landing[i] = l->landing[--l->count];
        complete_arrival(bar);
        return;
    }
    memset(b->shared + x->shared, 0, x->bytes);
    if (x->exist) memcpy(b->shared + x->shared, x->global, x->exist);
    for (uint32_t w = 0; w < x->bytes / WORD; w++) b->coming[x->shared / WORD + w]--;
    l->landing[i] = l->landing[--l->count];
}

static bool land_any(struct cluster *c, struct block *b, struct landings *l)
{
    if (!l->count) return false;
    int first = (int)draw(c, (uint32_t)l->count);
    for (int i = 0; i < l->count; i++) {
        int at = (first + i) % l->count;
        if (!is_due(l, &l->landing[at])) continue;
        land(b, l, at);
        return true;
    }
    return false;
}

bool advance_landings(struct cluster *c, bool must)
{
    if (!c->landings || (!must && !chance(c, c->policy.load))) return false;
    uint32_t block = draw(c, (uint32_t)c->blocks), thread = 0;
    for (uint32_t i = 0; i < (uint32_t)c->blocks; i++) {
        struct block *b = &c->block[(block + i) % (uint32_t)c->blocks];
        if (i == 0) thread = draw(c, (uint32_t)b->threads);
        for (uint32_t j = 0; j < (uint32_t)b->threads; j++) {
            if (land_any(c, b, &b->landings[(thread + j) % (uint32_t)b->threads])) return true;
            if (!must) return false;
        }
    }
    return false;
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
    if (exist < 0 || exist > bytes) fail_thread(t, "copies %d of %d bytes", exist, bytes);
    if ((uintptr_t)from % (unsigned)bytes) fail_thread(t, "copies %d bytes from %p", bytes, from);
    if (exist && !in_device_memory(from, (size_t)exist))
        fail_thread(t, "copies %d bytes from %p, outside of any allocation", exist, from);
}

static void note(struct thread *t, struct landing x)
{
    struct landings *l = &t->block->landings[t->index];
    x.group = t->copy_group, x.number = l->made++;
    *add(l) = x;
    t->cluster->landings++;
}

static void copy(struct thread *t, uint32_t to, const void *from, int bytes, int exist)
{
    struct block *b = t->block;
    uint32_t size = (uint32_t)bytes, offset = own_offset(t, to, size, size, "cp.async");
    check_source(t, from, bytes, exist);
    if (is_coming(b, offset, size)) fail_thread(t, "copies to 0x%x, where another copy is on its way", to);
    if (store_overlaps(b, offset, size))
        fail_thread(t, "copies to 0x%x, which a bulk store may still read", to);
    note(t, (struct landing){.shared = offset, .bytes = size, .exist = (uint32_t)exist, .global = from});
    for (uint32_t w = 0; w < size / WORD; w++) b->coming[offset / WORD + w]++;
    memset(b->shared + offset, 0xff, size);
}

void emu_copy_async(uint32_t to, const void *from, int bytes, int exist)
{
    struct thread *t = self_thread();
    if (!t->waited_for_grid) fail_thread(t, "copies a tensor without griddepcontrol.wait");
    copy(t, to, from, bytes, exist);
}

void emu_copy_async_steady(uint32_t to, const void *from) { copy(self_thread(), to, from, 16, 16); }

void emu_copy_arrive(uint32_t bar)
{
    struct thread *t = self_thread();
    note(t, (struct landing){.bar = find_mbarrier(t, bar)});
    let_others_run(t);
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
    for (int arrivals = 0; arrivals < 2; arrivals++)
        for (int i = 0; i < l->count; i++)
            if (l->landing[i].group + (unsigned)pending < t->copy_group && !l->landing[i].bar == !arrivals)
                land(t->block, l, i--);
    let_others_run(t);
}
