/*
 * system.c -- words in device memory that several devices write and poll: stores and loads of the system's
 * scope, flags and fences.
 *
 * Each 4 bytes of a store become visible by themselves, in any order and late: some lie in a list until
 * another thread polls, the block executes a fence, or the launch ends. Two stores to one word keep their
 * order. Who polls lets the other fibers and the other devices' launches go on. Who polls the host's memory
 * is in error: a load from there crosses the bus, which lets few by at a time.
 *
 * Threads of a block poll one after the other here, at once on a GPU: so the clock shows all of them the same
 * time, until one that has seen it looks again.
 */
#include "machine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct late {
    uint32_t *at, word;
    const struct launch *launch;
    const struct block *block;
};

enum {
    WORDS = 4,
    MOST_LATE = 4096,
    LATE = 24000,
    HELD = 40,
    HELD_MOST_US = 300, /* chances of 2^16 */
    RESTS = 64,
    REST_US = 20 /* by 100 ranks miss their deadlines */
};

static struct late list[MOST_LATE]; /* in no order; of a word one at most */
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void put(uint32_t *at, uint32_t word) { __atomic_store_n(at, word, __ATOMIC_SEQ_CST); }

/* The lock is held. */
static void arrive(int i)
{
    put(list[i].at, list[i].word);
    list[i] = list[--count];
}

void finish_words(const struct launch *l, const struct block *b)
{
    pthread_mutex_lock(&lock);
    for (int i = count - 1; i >= 0; i--)
        if (list[i].launch == l && (!b || list[i].block == b)) arrive(i);
    pthread_mutex_unlock(&lock);
}

static void some_arrive(struct cluster *c)
{
    pthread_mutex_lock(&lock);
    for (uint32_t n = draw(c, 4); n && count; n--) arrive((int)draw(c, (uint32_t)count));
    pthread_mutex_unlock(&lock);
}

static void store_word(const struct thread *t, uint32_t *at, uint32_t word)
{
    struct cluster *c = t->cluster;
    bool late = chance(c, LATE);
    pthread_mutex_lock(&lock);
    for (int i = count - 1; i >= 0; i--)
        if (list[i].at == at) arrive(i);
    if (late && count < MOST_LATE) list[count++] = (struct late){at, word, c->launch, t->block};
    else put(at, word);
    pthread_mutex_unlock(&lock);
}

/* Another context's memory is there for those that have been given access to it. */
static void check(const struct thread *t, const void *p, int bytes, const char *what)
{
    int own = t->cluster->launch->context, other = context_of(p);
    if ((uintptr_t)p % (uintptr_t)bytes) fail_thread(t, "%s of %d bytes at %p", what, bytes, p);
    if (!in_device_memory(p, (size_t)bytes)) return; /* the host's, or a stray one, which faults */
    if (other != own && !peers_allowed(own, other))
        fail_thread(t, "%s of memory of context %d, to which context %d has no access", what, other, own);
}

/* Who polls much has nothing to do, and others may want the processor. */
static void rest(void)
{
    static _Thread_local unsigned polls;
    if (++polls % RESTS == 0) usleep(REST_US);
}

/* Now and then a block is held back. */
static void hold(struct cluster *c)
{
    if (chance(c, HELD)) usleep(draw(c, HELD_MOST_US));
}

void emu_system_store(void *to, const uint32_t *word, int words)
{
    struct thread *t = self_thread();
    int order[WORDS] = {0, 1, 2, 3};
    check(t, to, 4 * words, "a store of the system's scope");
    hold(t->cluster);
    for (int i = words - 1; i > 0; i--) {
        int j = (int)draw(t->cluster, (uint32_t)i + 1), other = order[i];
        order[i] = order[j], order[j] = other;
    }
    for (int i = 0; i < words; i++) store_word(t, (uint32_t *)to + order[i], word[order[i]]);
}

/* A block may load once each time that it looks at the clock. */
static void check_host_load(const struct thread *t, const void *p)
{
    struct launch *l = t->cluster->launch;
    if (in_device_memory(p, 4)) return;
    unsigned loads = __atomic_add_fetch(&l->host_loads, 1, __ATOMIC_RELAXED);
    unsigned looks = __atomic_load_n(&l->looks, __ATOMIC_RELAXED);
    if (loads > looks) fail_thread(t, "load %u of the host's memory by %u looks at the clock", loads, looks);
}

void emu_system_load(uint32_t *word, const void *from, int words)
{
    struct thread *t = self_thread();
    check(t, from, 4 * words, "a load of the system's scope");
    check_host_load(t, from);
    some_arrive(t->cluster);
    rest(); /* for the other devices' */
    yield(t);
    for (int i = 0; i < words; i++) word[i] = __atomic_load_n((const uint32_t *)from + i, __ATOMIC_SEQ_CST);
}

bool emu_system_claim(uint32_t *at, uint32_t old, uint32_t word)
{
    struct thread *t = self_thread();
    check(t, at, 4, "a compare and swap");
    yield(t);
    pthread_mutex_lock(&lock);
    for (int i = count - 1; i >= 0; i--)
        if (list[i].at == at) arrive(i);
    bool was = __atomic_load_n(at, __ATOMIC_SEQ_CST) == old;
    if (was) put(at, word);
    pthread_mutex_unlock(&lock);
    return was;
}

uint32_t emu_system_add(uint32_t *at, uint32_t word)
{
    uint32_t was = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!emu_system_claim(at, was, was + word)) was = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    return was;
}

void emu_system_fence(void)
{
    const struct thread *t = self_thread();
    finish_words(t->cluster->launch, t->block);
}

static uint64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t emu_nanoseconds(void)
{
    struct thread *t = self_thread();
    struct block *b = t->block;
    if (t->looked == b->look) {
        b->look++, b->look_ns = nanoseconds();
        __atomic_add_fetch(&t->cluster->launch->looks, 1, __ATOMIC_RELAXED);
    }
    t->looked = b->look;
    return b->look_ns;
}
