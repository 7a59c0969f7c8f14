/* barrier.c -- mbarriers, named barriers, the cluster's barrier, and the registers that warpgroups trade. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

/* ---- mbarriers: in shared memory lies a number that only they write ---- */

#define BAR_MARK 0xba55c0da00000000u

static uint64_t *word_at(const struct block *b, uint32_t offset)
{
    return (uint64_t *)(void *)(b->shared + offset);
}

static struct mbarrier *at_offset(const struct block *b, uint32_t offset)
{
    uint64_t word = *word_at(b, offset), index = word ^ BAR_MARK;
    if (index >= (uint64_t)b->bars || b->bar[index].at != offset) return NULL;
    return (struct mbarrier *)&b->bar[index];
}

/* At this address in a block of the cluster. */
struct mbarrier *find_mbarrier_of(const struct thread *t, const struct block *b, uint32_t address)
{
    uint32_t offset = own_offset(t, address, 8, 8, "mbarrier");
    struct mbarrier *m = at_offset(b, offset);
    if (!m)
        fail_thread(t, "there is no mbarrier at 0x%x of block %d: not yet initialised, or overwritten",
                    address, b->index);
    return m;
}

struct mbarrier *find_mbarrier(const struct thread *t, uint32_t address)
{
    return find_mbarrier_of(t, t->block, address);
}

void print_mbarrier(const struct block *b, uint32_t address, char *out, size_t size)
{
    const struct mbarrier *m = at_offset(b, address - SHARED_BASE);
    if (!m) snprintf(out, size, "an mbarrier at 0x%x that is overwritten", address);
    else
        snprintf(out, size, "mbarrier 0x%x in phase %u, which lacks %u of %u arrivals and %lld bytes",
                 address, m->phase, m->pending, m->expected, (long long)m->bytes);
}

void emu_mbarrier_init(uint32_t bar, uint32_t arrivals)
{
    struct thread *t = self_thread();
    struct block *b = t->block;
    uint32_t offset = own_offset(t, bar, 8, 8, "mbarrier");
    if (at_offset(b, offset)) fail_thread(t, "the mbarrier at 0x%x is initialised again", bar);
    if (b->bars == MAX_BARS) fail_thread(t, "more than %d mbarriers", MAX_BARS);
    if (!arrivals || arrivals > (1 << 20) - 1) fail_thread(t, "an mbarrier of %u arrivals", arrivals);
    *word_at(b, offset) = BAR_MARK ^ (uint64_t)b->bars;
    b->bar[b->bars++] =
        (struct mbarrier){.at = offset, .expected = arrivals, .pending = arrivals, .maker = t};
}

void emu_mbarrier_fence_init(void)
{
    struct thread *t = self_thread();
    for (int i = 0; i < t->block->bars; i++)
        if (t->block->bar[i].maker == t) t->block->bar[i].maker = NULL;
}

static void try_complete(struct mbarrier *b)
{
    if (b->pending || b->bytes) return;
    b->phase++;
    b->pending = b->expected;
    wake_all(&b->waiting);
}

static void arrive(const struct thread *t, struct mbarrier *b, uint32_t bar)
{
    if (!b->pending)
        fail_thread(t, "one arrival more than the %u that mbarrier 0x%x expects in phase %u", b->expected,
                    bar, b->phase);
    b->pending--;
    try_complete(b);
}

void emu_mbarrier_arrive(uint32_t bar)
{
    struct thread *t = self_thread();
    arrive(t, find_mbarrier(t, bar), bar);
    let_others_run(t);
}

void emu_cluster_mbarrier_arrive(uint32_t bar)
{
    struct thread *t = self_thread();
    const struct block *b = block_at(t, &bar, "mbarrier.arrive.shared::cluster");
    struct mbarrier *m = find_mbarrier_of(t, b, bar);
    if (m->maker) fail_thread(t, "arrives at an mbarrier of block %d that no fence followed", b->index);
    arrive(t, m, bar);
    let_others_run(t);
}

void emu_mbarrier_arrive_expect(uint32_t bar, uint32_t bytes)
{
    struct thread *t = self_thread();
    struct mbarrier *b = find_mbarrier(t, bar);
    b->bytes += bytes;
    if (b->bytes >= 1 << 20) fail_thread(t, "mbarrier 0x%x expects %lld bytes", bar, (long long)b->bytes);
    arrive(t, b, bar);
    let_others_run(t);
}

void complete_arrival(struct mbarrier *b)
{
    b->pending--;
    try_complete(b);
}

void complete_bytes(struct mbarrier *b, uint32_t bytes)
{
    b->bytes -= bytes;
    try_complete(b);
}

static bool passed(const struct mbarrier *b, uint32_t parity) { return (b->phase & 1) != parity; }

static struct mbarrier *to_wait_for(const struct thread *t, uint32_t bar, uint32_t parity)
{
    if (parity > 1) fail_thread(t, "waits for parity %u of mbarrier 0x%x", parity, bar);
    return find_mbarrier(t, bar);
}

/* A try_wait: it may wait for as long as the phase lasts. So a loop around it that never ends is a deadlock.
 */
bool emu_mbarrier_test(uint32_t bar, uint32_t parity)
{
    struct thread *t = self_thread();
    struct mbarrier *b = to_wait_for(t, bar, parity);
    if (!passed(b, parity)) sleep_on(t, &b->waiting, AT_MBARRIER, bar, parity);
    return passed(find_mbarrier(t, bar), parity);
}

void emu_mbarrier_wait(uint32_t bar, uint32_t parity)
{
    struct thread *t = self_thread();
    struct mbarrier *b = to_wait_for(t, bar, parity);
    while (!passed(b, parity)) {
        sleep_on(t, &b->waiting, AT_MBARRIER, bar, parity);
        b = find_mbarrier(t, bar);
    }
}

/* ---- Named barriers ---- */

/* Is the thread the last one? Then the others go on. */
static bool arrive_named(struct thread *t, int id, int threads)
{
    if (id < 0 || id > 15) fail_thread(t, "barrier %d", id);
    struct named *n = &t->block->named[id];
    if (threads % EMU_WARP || threads > t->block->threads)
        fail_thread(t, "barrier %d of %d threads, the block has %d", id, threads, t->block->threads);
    if (n->arrived && n->threads != threads)
        fail_thread(t, "barrier %d of %d threads, where others wait for %d", id, threads, n->threads);
    n->threads = threads;
    if (++n->arrived < threads) return false;
    n->arrived = 0;
    wake_all(&n->waiting);
    return true;
}

void emu_barrier(int id, int threads)
{
    struct thread *t = self_thread();
    if (!threads) threads = t->block->threads;
    if (arrive_named(t, id, threads)) let_others_run(t);
    else sleep_on(t, &t->block->named[id].waiting, AT_BARRIER, (uint32_t)id, (uint32_t)threads);
}

void emu_barrier_arrive(int id, int threads)
{
    struct thread *t = self_thread();
    arrive_named(t, id, threads);
    let_others_run(t);
}

/* ---- The cluster's barrier ---- */

void emu_cluster_arrive(void)
{
    struct thread *t = self_thread();
    struct cluster *c = t->cluster;
    if (t->in_cluster_barrier) fail_thread(t, "arrives at the cluster's barrier again, without a wait");
    t->in_cluster_barrier = true;
    t->cluster_phase = c->cluster_phase;
    int all = 0;
    for (int r = 0; r < c->blocks; r++) all += c->block[r].threads;
    if (++c->cluster_arrived == all) {
        c->cluster_arrived = 0;
        c->cluster_phase++;
        wake_all(&c->cluster_waiting);
    }
    let_others_run(t);
}

void emu_cluster_wait(void)
{
    struct thread *t = self_thread();
    struct cluster *c = t->cluster;
    if (!t->in_cluster_barrier) fail_thread(t, "waits at the cluster's barrier without an arrival");
    while (c->cluster_phase == t->cluster_phase) sleep_on(t, &c->cluster_waiting, AT_CLUSTER, 0, 0);
    t->in_cluster_barrier = false;
}

/* ---- Fences and registers ---- */

void emu_fence_async(void) { self_thread()->fences++; }

void emu_set_registers(int n, bool grow)
{
    struct thread *t = self_thread();
    struct block *b = t->block;
    const char *word = grow ? "inc" : "dec";
    if (n < 24 || n > 256 || n % 8) fail_thread(t, "setmaxnreg.%s %d", word, n);
    if (grow ? n < t->registers : n > t->registers)
        fail_thread(t, "setmaxnreg.%s %d of a thread with %d registers", word, n, t->registers);
    while (n - t->registers > b->free_registers)
        sleep_on(t, &b->wants_registers, AT_REGISTERS, 0, (uint32_t)(n - t->registers));
    b->free_registers -= n - t->registers;
    t->registers = n;
    if (!grow) wake_all(&b->wants_registers);
}
