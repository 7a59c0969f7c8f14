/*
 * memory.c -- the shared window of a block, and device memory, which is the host's.
 *
 * Both lie between pages that nobody may touch. Shared memory, and what is allocated, begin as NaNs.
 */
#include "machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGNMENT = 256, MARGIN = 0xfe };

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

unsigned char *guarded_new(size_t bytes)
{
    size_t inside = round_up(bytes, PAGE);
    unsigned char *p =
        mmap(NULL, inside + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (mprotect(p + PAGE, inside, PROT_READ | PROT_WRITE)) return munmap(p, inside + 2 * PAGE), NULL;
    p += PAGE + inside - bytes;
    memset(p, 0xff, bytes);
    return p;
}

void guarded_delete(unsigned char *p, size_t bytes)
{
    size_t inside = round_up(bytes, PAGE);
    if (p) munmap(p - (inside - bytes) - PAGE, inside + 2 * PAGE);
}

/* ---- The shared window ---- */

void *emu_dynamic_shared(void) { return self_thread()->block->shared; }

uint32_t emu_shared_address(const void *p)
{
    const struct thread *t = self_thread();
    ptrdiff_t offset = (const unsigned char *)p - t->block->shared;
    if (offset < 0 || offset > (ptrdiff_t)t->cluster->launch->shared)
        fail_thread(t, "takes the shared address of %p, which is not in its shared memory", p);
    return (uint32_t)offset + SHARED_BASE;
}

uint32_t own_offset(const struct thread *t, uint32_t address, uint32_t bytes, uint32_t align,
                    const char *what)
{
    uint32_t end = SHARED_BASE + t->cluster->launch->shared;
    if (address >> RANK_SHIFT) fail_thread(t, "%s at 0x%x, an address of the cluster", what, address);
    if (address % align) fail_thread(t, "%s at 0x%x, which is not a multiple of %u", what, address, align);
    if (address < SHARED_BASE || address > end || bytes > end - address)
        fail_thread(t, "%s of %u bytes at 0x%x, outside of the shared memory, 0x%x to 0x%x", what, bytes,
                    address, SHARED_BASE, end);
    return address - SHARED_BASE;
}

void note_plain_store(struct thread *t, uint32_t offset, uint32_t bytes)
{
    if (store_overlaps(t->block, offset, bytes))
        fail_thread(t, "writes 0x%x, which a bulk store may still read", offset + SHARED_BASE);
    if (is_coming(t->block, offset, bytes))
        fail_thread(t, "writes 0x%x, where a copy is on its way", offset + SHARED_BASE);
    for (uint32_t i = offset / 16; i <= (offset + bytes - 1) / 16; i++)
        t->block->granule[i] = (struct granule){(uint16_t)(t->index + 1), (uint16_t)t->fences};
}

const struct granule *unfenced(const struct block *b, uint32_t offset, uint32_t bytes, uint32_t *where)
{
    for (uint32_t i = offset / 16; i < (offset + bytes) / 16; i++) {
        const struct granule *g = &b->granule[i];
        *where = 16 * i;
        if (g->thread && (uint16_t)b->thread[g->thread - 1]->fences == g->fences) return g;
    }
    return NULL;
}

void emu_shared_store(uint32_t address, const float *four)
{
    struct thread *t = self_thread();
    uint32_t offset = own_offset(t, address, 16, 16, "st.shared.v4");
    note_plain_store(t, offset, 16);
    memcpy(t->block->shared + offset, four, 16);
}

void emu_shared_load(float *four, uint32_t address)
{
    struct thread *t = self_thread();
    uint32_t offset = own_offset(t, address, 16, 16, "ld.shared.v4");
    if (load_overlaps(t->block, offset, 16))
        fail_thread(t, "reads 0x%x, where a load is still to come", address);
    memcpy(four, t->block->shared + offset, 16);
}

void emu_pair_store(uint32_t address, const uint32_t *two)
{
    struct thread *t = self_thread();
    uint32_t offset = own_offset(t, address, 8, 8, "st.shared.v2");
    note_plain_store(t, offset, 8);
    memcpy(t->block->shared + offset, two, 8);
}

void emu_pair_load(uint32_t *two, uint32_t address)
{
    struct thread *t = self_thread();
    uint32_t offset = own_offset(t, address, 8, 8, "ld.shared.v2");
    if (load_overlaps(t->block, offset, 8))
        fail_thread(t, "reads 0x%x, where a load is still to come", address);
    memcpy(two, t->block->shared + offset, 8);
}

uint32_t emu_cluster_rank(void) { return (uint32_t)self_thread()->block->rank; }

uint32_t emu_cluster_address(uint32_t address, uint32_t rank)
{
    const struct thread *t = self_thread();
    own_offset(t, address, 1, 1, "mapa");
    if (rank >= (uint32_t)t->cluster->blocks)
        fail_thread(t, "mapa to block %u of a cluster of %d", rank, t->cluster->blocks);
    return address | (rank + 1) << RANK_SHIFT;
}

struct block *block_at(const struct thread *t, uint32_t *address, const char *what)
{
    uint32_t rank = *address >> RANK_SHIFT;
    if (rank > (uint32_t)t->cluster->blocks) fail_thread(t, "%s at 0x%x", what, *address);
    struct block *b = rank ? &t->cluster->block[rank - 1] : t->block;
    if (!b->alive) fail_thread(t, "%s in block %d, which has ended", what, b->index);
    *address &= (1u << RANK_SHIFT) - 1;
    return b;
}

void emu_cluster_load(float *four, uint32_t address)
{
    struct thread *t = self_thread();
    const struct block *b = block_at(t, &address, "ld.shared::cluster");
    memcpy(four, b->shared + own_offset(t, address, 16, 16, "ld.shared::cluster"), 16);
}

/* ---- Device memory ---- */

struct allocation {
    unsigned char *p;
    size_t bytes;
    uint64_t number; /* no other has it */
    int context;
    int file;              /* that other processes open it by; 0: it is this one's alone */
    unsigned char *before; /* what it held; NULL: what it holds */
};
static struct allocation *list; /* in no order */
static int count, room;
static uint64_t numbers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(struct allocation a)
{
    pthread_mutex_lock(&lock);
    if (count == room) {
        room = room ? 2 * room : 64;
        list = realloc(list, (size_t)room * sizeof *list);
        if (!list) abort();
    }
    list[count] = a;
    list[count++].number = ++numbers;
    pthread_mutex_unlock(&lock);
}

void *device_new(size_t bytes, int context)
{
    unsigned char *p = guarded_new(round_up(bytes, ALIGNMENT));
    if (!p) return NULL;
    memset(p + bytes, MARGIN, round_up(bytes, ALIGNMENT) - bytes);
    add((struct allocation){.p = p, .bytes = bytes, .context = context});
    return p;
}

bool device_delete(void *p)
{
    struct allocation a = {.p = NULL};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        if (list[i].p == p) {
            a = list[i];
            list[i] = list[--count];
        }
    pthread_mutex_unlock(&lock);
    if (a.p) guarded_delete(a.p, round_up(a.bytes, ALIGNMENT));
    free(a.before);
    if (a.file > 0) close(a.file);
    return a.p;
}

static struct allocation allocation_of(const void *p)
{
    const unsigned char *at = p;
    struct allocation a = {.context = -1};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !a.number; i++)
        if (at >= list[i].p && at < list[i].p + list[i].bytes) a = list[i];
    pthread_mutex_unlock(&lock);
    return a;
}

uint64_t device_allocation(const void *p) { return allocation_of(p).number; }
int context_of(const void *p) { return allocation_of(p).context; }

/* ---- What it held ---- */

/*
 * An early launch may begin while all kernels since the last ordinary one still run: what these write may be
 * there or not. Here it is not, for all that is loaded by TMA before griddepcontrol.wait.
 */
void device_remember(int context)
{
    size_t most = (size_t)64 << 20, sum = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) sum += list[i].context == context ? list[i].bytes : 0;
    for (int i = 0; i < count; i++) {
        struct allocation *a = &list[i];
        if (a->context != context) continue;
        if (sum > most) free(a->before), a->before = NULL;
        else if (a->before || (a->before = malloc(a->bytes))) memcpy(a->before, a->p, a->bytes);
    }
    pthread_mutex_unlock(&lock);
}

const void *device_before(const void *p)
{
    struct allocation a = allocation_of(p);
    return a.before ? a.before + ((const unsigned char *)p - a.p) : p;
}

/* ---- Memory that other processes open ---- */

struct shared_memory {
    char magic[8];
    int process, file, context;
    uint64_t bytes;
};
_Static_assert(sizeof(struct shared_memory) <= 64, "as large as the driver's");
static const char shared_magic[8] = "emu-ipc";

/* Lays the pages of a file where those of an allocation lie, with what these hold if it is new. */
static bool map_file(unsigned char *p, size_t bytes, int file, bool is_new)
{
    size_t inside = round_up(round_up(bytes, ALIGNMENT), PAGE);
    unsigned char *first = p + round_up(bytes, ALIGNMENT) - inside;
    if (is_new && write(file, first, inside) != (ssize_t)inside) return false;
    return mmap(first, inside, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
}

bool device_share(const void *p, void *handle)
{
    struct shared_memory m = {.process = (int)getpid(), .file = -1};
    memcpy(m.magic, shared_magic, sizeof m.magic);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        if (list[i].p == p) {
            if (list[i].file <= 0) list[i].file = memfd_create("device", MFD_CLOEXEC);
            if (list[i].file > 0 && map_file(list[i].p, list[i].bytes, list[i].file, true))
                m.file = list[i].file, m.bytes = list[i].bytes, m.context = list[i].context;
        }
    pthread_mutex_unlock(&lock);
    memset(handle, 0, 64);
    memcpy(handle, &m, sizeof m);
    return m.file > 0;
}

void *device_adopt(const void *handle, int *context)
{
    struct shared_memory m;
    char path[64];
    memcpy(&m, handle, sizeof m);
    if (memcmp(m.magic, shared_magic, sizeof m.magic) || m.process == (int)getpid()) return NULL;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", m.process, m.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    unsigned char *p = file < 0 ? NULL : guarded_new(round_up(m.bytes, ALIGNMENT));
    bool good = p && map_file(p, m.bytes, file, false);
    if (file >= 0) close(file);
    if (p && !good) guarded_delete(p, round_up(m.bytes, ALIGNMENT));
    if (!good) return NULL;
    *context = m.context;
    add((struct allocation){.p = p, .bytes = m.bytes, .context = m.context});
    return p;
}

static bool allowed[MOST_CONTEXTS][MOST_CONTEXTS];
void peers_allow(int context, int other)
{
    __atomic_store_n(&allowed[context][other], true, __ATOMIC_SEQ_CST);
}
bool peers_allowed(int context, int other)
{
    return __atomic_load_n(&allowed[context][other], __ATOMIC_SEQ_CST);
}

bool in_device_memory(const void *p, size_t bytes)
{
    static _Thread_local struct allocation last;
    const unsigned char *at = p;
    if (last.p && at >= last.p && at + bytes <= last.p + last.bytes) return true;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !found; i++)
        if (at >= list[i].p && at + bytes <= list[i].p + list[i].bytes) found = true, last = list[i];
    pthread_mutex_unlock(&lock);
    return found;
}

/* Which allocation is nearest, and how far it is. */
void describe_address(const void *p, char *out, size_t size)
{
    const struct allocation *best = NULL;
    size_t least = PAGE * 16;
    bool before = false;
    for (int i = 0; i < count; i++) { /* no lock: the machine is about to stop */
        uintptr_t at = (uintptr_t)p, first = (uintptr_t)list[i].p, end = first + list[i].bytes;
        size_t away = at < first ? first - at : at >= end ? at - end : 0;
        if (away < least) least = away, best = &list[i], before = at < first;
    }
    if (best)
        snprintf(out, size, "%zu bytes %s an allocation of %zu", least, before ? "before" : "past the end of",
                 best->bytes);
    else snprintf(out, size, "in no allocation");
}

bool device_margins_good(char *out, size_t size)
{
    bool good = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        for (size_t at = list[i].bytes; at < round_up(list[i].bytes, ALIGNMENT) && good; at++)
            if (list[i].p[at] != MARGIN) {
                snprintf(out, size, "wrote byte %zu of an allocation of %zu", at, list[i].bytes);
                good = false;
            }
    pthread_mutex_unlock(&lock);
    return good;
}

size_t device_total(void)
{
    size_t sum = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) sum += list[i].bytes;
    pthread_mutex_unlock(&lock);
    return sum;
}
