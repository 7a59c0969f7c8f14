/*
 * launch.c -- a grid: its clusters, one after another, in as many OS threads as there are cores, of which one
 * is the caller's. Launches of several threads of the host run side by side, as those of several devices do.
 *
 * Clusters of a launch do not depend on each other, and each draws its own numbers, so a run repeats itself
 * whichever thread takes which, unless it waits for another device's. A plain access that strays meets a
 * guard page; the signal handler ends the launch.
 */
#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { REGISTERS = 65536, SIGNAL_STACK = 65536, MAX_CLUSTER = 16, MOST_OF_LAUNCH = 64, MOST_STACKS = 1024 };

/* ---- Signals ---- */

/* Of the OS threads of all launches; free where the first is NULL. */
static unsigned char *volatile stacks_first[MOST_STACKS], *volatile stacks_end[MOST_STACKS];
static struct sigaction before[2];

static int take_stacks(unsigned char *first, size_t bytes)
{
    for (int i = 0;; i = (i + 1) % MOST_STACKS) {
        unsigned char *none = NULL;
        if (!__atomic_compare_exchange_n(&stacks_first[i], &none, first, false, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST))
            continue;
        stacks_end[i] = first + bytes;
        return i;
    }
}

static void give_stacks_back(int i) { stacks_end[i] = NULL, stacks_first[i] = NULL; }

static struct thread *interrupted(const ucontext_t *u)
{
    uintptr_t sp = (uintptr_t)u->uc_mcontext.gregs[REG_RSP];
    for (int i = 0; i < MOST_STACKS; i++)
        if (sp >= (uintptr_t)stacks_first[i] && sp < (uintptr_t)stacks_end[i])
            return (struct thread *)emu_foot(sp);
    return NULL;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    struct thread *t = interrupted(context);
    char where[120];
    if (!t) {
        sigaction(number, &before[number == SIGBUS], NULL);
        return;
    }
    ptrdiff_t offset = (unsigned char *)info->si_addr - t->block->shared;
    if (offset > -8192 && offset < SHARED_MOST + 8192)
        snprintf(where, sizeof where, "byte %td of %u of its shared memory", offset,
                 t->cluster->launch->shared);
    else describe_address(info->si_addr, where, sizeof where);
    fail_thread(t, "a stray access to %p, %s", info->si_addr, where);
}

/* Launches that are under way. */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static int under_way;

static void catch_faults(void)
{
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    pthread_mutex_lock(&counting);
    if (!under_way++) sigaction(SIGSEGV, &a, &before[0]), sigaction(SIGBUS, &a, &before[1]);
    pthread_mutex_unlock(&counting);
}
static void let_faults_go(void)
{
    pthread_mutex_lock(&counting);
    if (!--under_way) sigaction(SIGSEGV, &before[0], NULL), sigaction(SIGBUS, &before[1], NULL);
    pthread_mutex_unlock(&counting);
}

/* ---- A cluster's memory, used by one after another ---- */

static size_t stack_bytes(const struct cluster *c)
{
    return (size_t)c->blocks * c->launch->threads * EMU_STACK;
}

/* What a launch leaves for the next ones: pages that the system clears are much of a small one's time. */
static struct kept {
    unsigned char *p;
    size_t bytes;
    bool stacks; /* else a block's shared memory */
} kept[16];
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

/* The place of one of so many bytes; without any, a free place. NULL if there is none. */
static struct kept *kept_of(size_t bytes, bool stacks)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (bytes ? kept[i].p && kept[i].bytes == bytes && kept[i].stacks == stacks : !kept[i].p)
            return &kept[i];
    return NULL;
}

static unsigned char *take_kept(size_t bytes, bool stacks)
{
    pthread_mutex_lock(&keeping);
    struct kept *k = kept_of(bytes ? bytes : 1, stacks);
    unsigned char *p = k ? k->p : NULL;
    if (k) k->p = NULL;
    pthread_mutex_unlock(&keeping);
    return p;
}

static bool keep(unsigned char *p, size_t bytes, bool stacks)
{
    pthread_mutex_lock(&keeping);
    struct kept *k = bytes ? kept_of(0, stacks) : NULL;
    if (k) *k = (struct kept){p, bytes, stacks};
    pthread_mutex_unlock(&keeping);
    return k;
}

static unsigned char *aligned_map(size_t bytes)
{
    unsigned char *p = take_kept(bytes, true);
    if (p) return p;
    p = mmap(NULL, bytes + EMU_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    if (p == MAP_FAILED) abort();
    size_t skip = (size_t) - (uintptr_t)p % EMU_STACK;
    if (skip) munmap(p, skip);
    munmap(p + skip + bytes, EMU_STACK - skip);
    return p + skip;
}

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) abort();
    return p;
}

static void open_block(struct block *b, struct cluster *c)
{
    const struct launch *l = c->launch;
    b->cluster = c;
    b->threads = (int)l->threads;
    b->warps = (b->threads + EMU_WARP - 1) / EMU_WARP;
    b->groups = (b->threads + EMU_GROUP - 1) / EMU_GROUP;
    b->thread = zeroed((size_t)b->threads, sizeof *b->thread);
    b->warp = zeroed((size_t)b->warps, sizeof *b->warp);
    b->group = zeroed((size_t)b->groups, sizeof *b->group);
    b->granule = zeroed(l->shared / 16 + 1, sizeof *b->granule);
    b->landings = zeroed((size_t)b->threads, sizeof *b->landings);
    b->coming = zeroed(l->shared / 4 + 1, 1);
    b->shared = take_kept(l->shared, false);
    if (!b->shared && !(b->shared = guarded_new(l->shared))) abort();
}

static void close_block(struct block *b)
{
    for (int i = 0; i < b->groups; i++) {
        free(b->group[i].product);
        free(b->group[i].sums);
    }
    free(b->thread);
    free(b->warp);
    free(b->group);
    uint32_t shared = b->cluster->launch->shared;
    if (!keep(b->shared, shared, false)) guarded_delete(b->shared, shared);
    free(b->granule);
    for (int i = 0; i < b->threads; i++) free(b->landings[i].landing);
    free(b->landings);
    free(b->coming);
}

static void reset_group(struct group *g)
{
    for (int s = 0; g->sums && s < SUMS; s++) g->sums[s].live = false;
    g->issued = g->executed = g->retired = 0;
    g->waiting = NULL;
}

static void reset_block(struct block *b, int index, int rank)
{
    const struct launch *l = b->cluster->launch;
    const struct emu_kernel *k = l->kernel;
    int most = k->registers ? k->registers : REGISTERS / (k->threads * k->blocks) / 8 * 8;
    b->index = index;
    b->rank = rank;
    b->alive = b->threads;
    b->bars = 0;
    b->look = 0;
    b->free_registers = 0;
    b->wants_registers = NULL;
    memset(b->named, 0, sizeof b->named);
    memset(b->warp, 0, (size_t)b->warps * sizeof *b->warp);
    memset(b->granule, 0, (l->shared / 16 + 1) * sizeof *b->granule);
    memset(b->shared, 0xff, l->shared);
    memset(b->coming, 0, l->shared / 4 + 1);
    for (int i = 0; i < b->threads; i++) b->landings[i].count = 0;
    for (int i = 0; i < b->groups; i++) reset_group(&b->group[i]);
    b->cluster->registers = most < 255 ? most : 255;
}

/* ---- OS threads ---- */

static void open_cluster(struct cluster *c, struct launch *l)
{
    *c = (struct cluster){.launch = l, .blocks = l->kernel->cluster};
    c->block = zeroed((size_t)c->blocks, sizeof *c->block);
    c->ready = zeroed((size_t)c->blocks * l->threads, sizeof *c->ready);
    c->stacks = aligned_map(stack_bytes(c));
    for (int r = 0; r < c->blocks; r++) open_block(&c->block[r], c);
}

static void close_cluster(struct cluster *c)
{
    for (int i = 0; i < c->stores.count; i++) free(c->stores.copy[i].taken);
    for (int r = 0; r < c->blocks; r++) close_block(&c->block[r]);
    free(c->block);
    free(c->ready);
    free(c->loads.copy);
    free(c->reads.copy);
    free(c->stores.copy);
    if (!keep(c->stacks, stack_bytes(c), true)) munmap(c->stacks, stack_bytes(c));
}

static void run_one(struct cluster *c, int index)
{
    c->index = index;
    c->random = c->launch->seed ^ ((uint64_t)c->launch->number << 40) ^ ((uint64_t)(unsigned)index << 8);
    c->readies = c->alive = c->cluster_arrived = 0;
    c->products = c->landings = 0;
    c->cluster_phase = 0;
    c->cluster_waiting = NULL;
    c->reads.count = 0;
    for (int r = 0; r < c->blocks; r++) reset_block(&c->block[r], index * c->blocks + r, r);
    run_cluster(c);
}

struct worker {
    struct launch *launch;
    pthread_t thread;
};

static void *work(void *context)
{
    const struct worker *w = context;
    struct launch *l = w->launch;
    struct cluster c;
    stack_t signals = {.ss_sp = malloc(SIGNAL_STACK), .ss_size = SIGNAL_STACK}, others;
    open_cluster(&c, l);
    sigaltstack(&signals, &others);
    int stacks = take_stacks(c.stacks, stack_bytes(&c));
    for (;;) {
        unsigned i = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED);
        if (i >= l->grid / (unsigned)c.blocks || l->failed) break;
        run_one(&c, (int)i);
    }
    give_stacks_back(stacks);
    sigaltstack(&others, NULL);
    free(signals.ss_sp);
    close_cluster(&c);
    return NULL;
}

static bool check(struct launch *l)
{
    const struct emu_kernel *k = l->kernel;
    if (!l->grid || !l->threads || l->threads > MAX_THREADS || (int)l->threads > k->threads)
        return fail_launch(l, "%u threads, the kernel is for %d", l->threads, k->threads), false;
    if (k->cluster < 1 || k->cluster > MAX_CLUSTER || l->grid % (unsigned)k->cluster)
        return fail_launch(l, "a grid of %u blocks in clusters of %d", l->grid, k->cluster), false;
    if (l->shared > SHARED_MOST) return fail_launch(l, "%u bytes of shared memory", l->shared), false;
    return true;
}

bool run_launch(struct launch *l)
{
    struct worker w[MOST_OF_LAUNCH];
    long cores = sysconf(_SC_NPROCESSORS_ONLN), n = l->grid / (unsigned)l->kernel->cluster;
    char stray[120];
    if (!check(l)) return false;
    l->shared = (l->shared + 1023) / 1024 * 1024;
    if (n > cores) n = cores;
    if (n > MOST_OF_LAUNCH) n = MOST_OF_LAUNCH;
    catch_faults();
    for (int i = 0; i < n; i++) {
        w[i] = (struct worker){.launch = l};
        if (i && pthread_create(&w[i].thread, NULL, work, &w[i])) abort();
    }
    work(&w[0]);
    for (int i = 1; i < n; i++) pthread_join(w[i].thread, NULL);
    let_faults_go();
    finish_words(l, NULL);
    if (!l->failed && !device_margins_good(stray, sizeof stray)) fail_launch(l, "%s", stray);
    return !l->failed;
}
