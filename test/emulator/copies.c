/*
 * copies.c -- the TMA unit: boxes of tensors and adjacent bytes, between global and shared memory; and
 * what a thread sends to a block of its cluster.
 *
 * A copy is noted when it is issued and takes effect later. A load writes its box and then completes its
 * bytes; so does what was sent. A store reads shared memory at one time, at the latest when its thread waits
 * for that, and writes global memory at another. Whether it has read or not, until then nobody may write
 * there.
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MOST = 2048 }; /* 256 elements of 8 bytes */

/* ---- The list of pending copies ---- */

static struct copy *add(struct copies *l)
{
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->copy = realloc(l->copy, (size_t)l->room * sizeof *l->copy);
        if (!l->copy) abort();
    }
    return &l->copy[l->count++];
}

static void drop(struct copies *l, int i)
{
    free(l->copy[i].taken);
    l->copy[i] = l->copy[--l->count];
}

static bool overlap(uint32_t a, uint32_t bytes, uint32_t b, uint32_t more)
{
    return a < b + more && b < a + bytes;
}

bool load_overlaps(const struct block *b, uint32_t from, uint32_t bytes)
{
    const struct copies *l = &b->cluster->loads;
    for (int i = 0; i < l->count; i++)
        if (l->copy[i].block == b && overlap(l->copy[i].shared, l->copy[i].bytes, from, bytes)) return true;
    return false;
}

bool store_overlaps(const struct block *b, uint32_t from, uint32_t bytes)
{
    const struct copies *l = &b->cluster->reads;
    for (int i = 0; i < l->count; i++)
        if (l->copy[i].block == b && overlap(l->copy[i].shared, l->copy[i].bytes, from, bytes)) return true;
    return false;
}

/* ---- A box, row by row ---- */

static uint32_t row_bytes(const struct map *m) { return (m->box[0] + 1u) * m->element; }

static uint32_t rows_of(const struct map *m)
{
    uint32_t n = 1;
    for (int d = 1; d < m->rank; d++) n *= m->box[d] + 1u;
    return n;
}

struct row {
    char *global;            /* of the first element that exists */
    uint32_t before, inside; /* bytes of the row that do not exist, then of those that do */
};

static struct row find_row(const struct copy *c, uint32_t row)
{
    const struct map *m = &c->map;
    uint64_t address = m->address;
    bool exists = true;
    for (int d = 1; d < m->rank; d++) {
        int64_t at = (int64_t)c->at[d] + row % (m->box[d] + 1u);
        row /= m->box[d] + 1u;
        exists = exists && at >= 0 && at <= (int64_t)m->last[d];
        address += (uint64_t)at * m->stride[d - 1];
    }
    int64_t first = c->at[0] < 0 ? 0 : c->at[0], end = (int64_t)c->at[0] + m->box[0] + 1;
    if (end > (int64_t)m->last[0] + 1) end = (int64_t)m->last[0] + 1;
    if (!exists || end <= first) return (struct row){NULL, 0, 0};
    return (struct row){(char *)(uintptr_t)(address + (uint64_t)first * m->element),
                        (uint32_t)(first - c->at[0]) * m->element, (uint32_t)(end - first) * m->element};
}

/* The 16-byte pieces of a row of `span` bytes are exchanged by the number of the 128 bytes it lies in. */
static uint32_t swizzled(uint32_t offset, uint32_t span)
{
    return span ? offset ^ ((offset >> 3) & (span - 16)) : offset;
}

static void check_row(const struct copy *c, const struct row *r, const char *what)
{
    if (r->inside && !in_device_memory(r->global, r->inside))
        fail_thread(c->thread, "a bulk %s of %u bytes at %p, outside of any allocation", what, r->inside,
                    (void *)r->global);
}

static void load_box(const struct copy *c)
{
    unsigned char row[ROW_MOST];
    uint32_t bytes = row_bytes(&c->map), rows = rows_of(&c->map);
    for (uint32_t i = 0; i < rows; i++) {
        const struct row r = find_row(c, i);
        check_row(c, &r, "load");
        memset(row, 0, bytes);
        if (r.inside) memcpy(row + r.before, c->early ? device_before(r.global) : r.global, r.inside);
        for (uint32_t at = 0; at < bytes; at += 16)
            memcpy(c->block->shared + swizzled(c->shared + i * bytes + at, c->map.swizzle), row + at, 16);
    }
}

static void take_box(struct copy *c)
{
    if (!(c->taken = malloc(c->bytes))) abort();
    for (uint32_t at = 0; at < c->bytes; at += 16)
        memcpy(c->taken + at, c->block->shared + swizzled(c->shared + at, c->map.swizzle), 16);
}

static void add_row(char *to, const unsigned char *from, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += sizeof(float)) {
        float x, y;
        memcpy(&x, to + at, sizeof x);
        memcpy(&y, from + at, sizeof y);
        x += y;
        memcpy(to + at, &x, sizeof x);
    }
}

static void write_box(const struct copy *c)
{
    uint32_t bytes = row_bytes(&c->map), rows = rows_of(&c->map);
    for (uint32_t i = 0; i < rows; i++) {
        const struct row r = find_row(c, i);
        check_row(c, &r, "store");
        if (r.inside && c->adds) add_row(r.global, c->taken + i * bytes + r.before, r.inside);
        else if (r.inside) memcpy(r.global, c->taken + i * bytes + r.before, r.inside);
    }
}

/* ---- Taking effect ---- */

static void do_load(struct cluster *c, int i)
{
    struct copy *l = &c->loads.copy[i];
    struct mbarrier *bar = l->bar;
    uint32_t bytes = l->bytes;
    if (bar->maker) fail_thread(l->thread, "a load completes on an mbarrier that no fence followed");
    if (l->map.rank) load_box(l);
    else if (l->taken) memcpy(l->block->shared + l->shared, l->taken, bytes);
    else if (in_device_memory(l->global, bytes))
        memcpy(l->block->shared + l->shared, l->early ? device_before(l->global) : l->global, bytes);
    else fail_thread(l->thread, "a bulk load of %u bytes at %p, outside of any allocation", bytes, l->global);
    drop(&c->loads, i);
    complete_bytes(bar, bytes);
}

/* Reads, or writes what was read. */
static void do_store(struct cluster *c, int i)
{
    struct copy *s = &c->stores.copy[i];
    uint32_t where;
    const struct granule *g = s->taken ? NULL : unfenced(s->block, s->shared, s->bytes, &where);
    if (g)
        fail_thread(s->thread, "a bulk store reads 0x%x, which thread %d wrote without fence.proxy.async",
                    where + SHARED_BASE, g->thread - 1);
    if (!s->taken) {
        take_box(s);
        return;
    }
    write_box(s);
    drop(&c->stores, i);
}

bool advance_copies(struct cluster *c, bool must)
{
    int loads = c->loads.count, stores = c->stores.count;
    if (!loads && !stores) return false;
    if (must) {
        int i = (int)draw(c, (uint32_t)(loads + stores));
        if (i < loads) do_load(c, i);
        else do_store(c, i - loads);
        return true;
    }
    if (loads && chance(c, c->policy.load)) do_load(c, (int)draw(c, (uint32_t)loads));
    if (stores && chance(c, c->policy.store)) do_store(c, (int)draw(c, (uint32_t)stores));
    return true;
}

void finish_stores(struct cluster *c)
{
    while (c->stores.count) do_store(c, (int)draw(c, (uint32_t)c->stores.count));
}

void check_copies_of_ended(const struct thread *t, bool last_of_block)
{
    const struct cluster *c = t->cluster;
    if (t->open_stores) fail_thread(t, "ended with %u bulk stores that it did not commit", t->open_stores);
    if (!last_of_block) return;
    for (int i = 0; i < c->loads.count; i++) {
        const struct copy *l = &c->loads.copy[i];
        if (l->block == t->block || (!l->taken && l->thread->block == t->block))
            fail_thread(t, "ended as the last of its block, where a load of thread %d is still to come",
                        l->thread->index);
    }
    for (int i = 0; i < c->reads.count; i++)
        if (c->reads.copy[i].block == t->block)
            fail_thread(t, "ended as the last of its block, whose memory a store of thread %d may still read",
                        c->reads.copy[i].thread->index);
}

/* ---- Issuing ---- */

static struct map read_map(const struct thread *t, const void *p, int rank)
{
    struct map m;
    memcpy(&m, p, sizeof m);
    if ((uintptr_t)p % 64) fail_thread(t, "a tensor map at %p, which is not a multiple of 64", p);
    if (m.magic != MAP_MAGIC) fail_thread(t, "what lies at %p is no tensor map", p);
    if (m.rank != rank) fail_thread(t, "%d coordinates for a tensor map of rank %d", rank, m.rank);
    return m;
}

void emu_prefetch_map(const void *map)
{
    struct map m;
    memcpy(&m, map, sizeof m);
    if (m.magic != MAP_MAGIC) fail_thread(self_thread(), "prefetches %p, which is no tensor map", map);
}

static void check_load(const struct thread *t, const struct block *b, uint32_t offset, uint32_t bytes)
{
    const uint32_t at = offset + SHARED_BASE;
    if (!b->alive) fail_thread(t, "loads to block %d, which has ended", b->index);
    if (load_overlaps(b, offset, bytes))
        fail_thread(t, "loads to 0x%x of block %d, where another load is on its way", at, b->index);
    if (store_overlaps(b, offset, bytes))
        fail_thread(t, "loads to 0x%x of block %d, which a bulk store may still read", at, b->index);
    if (product_reads(b, offset, bytes))
        fail_thread(t, "loads to 0x%x of block %d, which products that nobody waited for may read", at,
                    b->index);
}

static void issue_load_to(struct thread *t, struct block *b, struct copy c, uint32_t bar)
{
    check_load(t, b, c.shared, c.bytes);
    c.thread = t;
    c.block = b;
    c.bar = find_mbarrier_of(t, b, bar);
    *add(&t->cluster->loads) = c;
    if (chance(t->cluster, t->cluster->policy.load)) do_load(t->cluster, t->cluster->loads.count - 1);
}

static void issue_load(struct thread *t, struct copy c, uint32_t bar)
{
    issue_load_to(t, t->block, c, bar);
    let_others_run(t);
}

void emu_grid_wait(void) { self_thread()->waited_for_grid = self_thread()->grid_ended = true; }
void emu_grid_wait_not(void) { self_thread()->waited_for_grid = true; }

static struct copy tensor_load(const struct thread *t, uint32_t to, const void *map, int rank, const int *at)
{
    if (!t->waited_for_grid) fail_thread(t, "loads a tensor without griddepcontrol.wait");
    struct copy c = {.map = read_map(t, map, rank), .early = !t->grid_ended};
    memcpy(c.at, at, sizeof *at * (size_t)rank);
    c.bytes = rows_of(&c.map) * row_bytes(&c.map);
    c.shared = own_offset(t, to, c.bytes, 128, "bulk tensor load");
    return c;
}

void emu_tensor_load(uint32_t to, const void *map, uint32_t bar, int rank, const int *at)
{
    struct thread *t = self_thread();
    issue_load(t, tensor_load(t, to, map, rank, at), bar);
}

/* It comes to each block at a time of its own. */
void emu_tensor_multicast(uint32_t to, const void *map, uint32_t bar, uint32_t ranks, int rank, const int *at)
{
    struct thread *t = self_thread();
    const struct copy c = tensor_load(t, to, map, rank, at);
    if (!ranks || ranks >> t->cluster->blocks)
        fail_thread(t, "multicasts to ranks 0x%x of a cluster of %d", ranks, t->cluster->blocks);
    for (int r = 0; r < t->cluster->blocks; r++)
        if (ranks >> r & 1) issue_load_to(t, &t->cluster->block[r], c, bar);
    let_others_run(t);
}

void emu_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    struct thread *t = self_thread();
    struct copy c = {.bytes = bytes, .global = from, .early = !t->grid_ended};
    if (bytes % 16 || (uintptr_t)from % 16) fail_thread(t, "a bulk load of %u bytes from %p", bytes, from);
    c.shared = own_offset(t, to, bytes, 16, "bulk load");
    issue_load(t, c, bar);
}

void emu_cluster_send(uint32_t to, const float *four, uint32_t bar)
{
    struct thread *t = self_thread();
    struct copy c = {.bytes = 4 * sizeof *four};
    struct block *b = block_at(t, &to, "st.async");
    if (b != block_at(t, &bar, "st.async"))
        fail_thread(t, "st.async to a block, and to an mbarrier of another");
    c.shared = own_offset(t, to, c.bytes, 16, "st.async");
    if (!(c.taken = malloc(c.bytes))) abort();
    memcpy(c.taken, four, c.bytes);
    issue_load_to(t, b, c, bar);
    let_others_run(t);
}

static void issue_store(const void *map, uint32_t from, int rank, const int *at, bool adds)
{
    struct thread *t = self_thread();
    struct copy c = {.thread = t, .block = t->block, .map = read_map(t, map, rank), .group = t->store_group};
    if (adds && c.map.element != sizeof(float)) fail_thread(t, "a bulk add of %u bytes", c.map.element);
    c.adds = adds;
    memcpy(c.at, at, sizeof *at * (size_t)rank);
    c.bytes = rows_of(&c.map) * row_bytes(&c.map);
    c.shared = own_offset(t, from, c.bytes, 128, "bulk tensor store");
    *add(&t->cluster->stores) = *add(&t->cluster->reads) = c;
    t->open_stores++;
    if (chance(t->cluster, t->cluster->policy.store)) do_store(t->cluster, t->cluster->stores.count - 1);
    let_others_run(t);
}

void emu_tensor_store(const void *map, uint32_t from, int rank, const int *at)
{
    issue_store(map, from, rank, at, false);
}

void emu_tensor_add(const void *map, uint32_t from, int rank, const int *at)
{
    issue_store(map, from, rank, at, true);
}

void emu_store_commit(void)
{
    struct thread *t = self_thread();
    t->store_group++;
    t->open_stores = 0;
}

static bool covered(const struct copy *c, const struct thread *t, int pending)
{
    return c->thread == t && c->group + (unsigned)pending < t->store_group;
}

void emu_store_wait(int pending, bool read_only)
{
    struct thread *t = self_thread();
    struct copies *stores = &t->cluster->stores, *reads = &t->cluster->reads;
    for (int i = 0; i < stores->count; i++) {
        if (!covered(&stores->copy[i], t, pending)) continue;
        if (!stores->copy[i].taken) do_store(t->cluster, i);
        if (!read_only) do_store(t->cluster, i--);
    }
    for (int i = 0; i < reads->count; i++)
        if (covered(&reads->copy[i], t, pending)) drop(reads, i--);
    let_others_run(t);
}
