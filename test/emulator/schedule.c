/*
 * schedule.c -- fibers and who runs next.
 *
 * Each step lets some pending copies and products take effect, then resumes a ready fiber, both drawn at
 * random. When no fiber is ready, something pending must happen; when nothing is pending either, the
 * cluster is dead-locked, which is reported with who waits where. A fiber that leaves takes the step itself
 * and switches to the next one: the way by a stack of the scheduler's own costs twice as much.
 */
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAGIC 0x5e1f7ad0c0da5111u

/* Keeps what a call preserves on the old stack, and returns on the new one. */
__asm__(".text\n.globl switch_stack\n.type switch_stack, @function\nswitch_stack:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n"
        ".size switch_stack, .-switch_stack\n");

/* ---- Chance ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
uint32_t draw(struct cluster *c, uint32_t below)
{
    return (uint32_t)((next_random(&c->random) >> 32) * below >> 32);
}
bool chance(struct cluster *c, uint32_t of) { return of && draw(c, 65536) < of; }

/* At once, soon, late, or when nothing else is left to do. */
static void choose_policy(struct cluster *c)
{
    static const uint32_t levels[] = {65536, 20000, 1000, 0};
    c->policy = (struct policy){.load = levels[draw(c, 4)],
                                .store = levels[draw(c, 4)],
                                .product = levels[draw(c, 4)],
                                .pause = draw(c, 2) ? 16000 : 0,
                                .starve = draw(c, 4)};
}

/* ---- Failures ---- */

struct thread *self_thread(void)
{
    struct thread *t = (struct thread *)(void *)emu_self();
    return t->magic == MAGIC ? t : NULL;
}

static void fail_with(struct launch *l, const char *where, const char *format, va_list args)
{
    pthread_mutex_lock(&l->lock);
    if (!l->failed) {
        int n = snprintf(l->message, sizeof l->message, "%s", where);
        vsnprintf(l->message + n, sizeof l->message - (size_t)n, format, args);
    }
    l->failed = true;
    pthread_mutex_unlock(&l->lock);
}

void fail_launch(struct launch *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_with(l, "", format, args);
    va_end(args);
}

void fail_thread(const struct thread *t, const char *format, ...)
{
    char where[64];
    va_list args;
    struct cluster *c = t->cluster;
    void *gone;
    snprintf(where, sizeof where, "block %d thread %d: ", t->block->index, t->index);
    va_start(args, format);
    fail_with(c->launch, where, format, args);
    va_end(args);
    c->failed = true;
    if (c->fibers) switch_stack(&gone, c->sp);
    longjmp(c->unwind, 1);
}

/* ---- Who is ready ---- */

void wake(struct thread *t)
{
    struct cluster *c = t->cluster;
    t->wait = RUNNING;
    c->ready[c->readies++] = (struct ready){t, t->rank};
}

void wake_all(struct thread **list)
{
    struct thread *t = *list, *next;
    *list = NULL;
    for (; t; t = next) {
        next = t->next;
        wake(t);
    }
}

/* ---- Deadlock ---- */

static void describe(const struct thread *t, char *out, size_t size)
{
    switch (t->wait) {
    case AT_MBARRIER: print_mbarrier(t->block, t->wait_at, out, size); break;
    case AT_BARRIER:
        snprintf(out, size, "barrier %u, where %d of %u came", t->wait_at,
                 t->block->named[t->wait_at].arrived, t->wait_for);
        break;
    case AT_CLUSTER:
        snprintf(out, size, "the cluster's barrier, where %d came", t->cluster->cluster_arrived);
        break;
    case AT_WARP: snprintf(out, size, "a warp's exchange, where lanes %08x came", t->warp->arrived); break;
    case AT_PRODUCT: snprintf(out, size, "products that not all of its warpgroup issued"); break;
    case AT_REGISTERS: snprintf(out, size, "%u registers", t->wait_for); break;
    default: snprintf(out, size, "nothing");
    }
}

static bool same_wait(const struct thread *a, const struct thread *b)
{
    return a->wait == b->wait && a->wait_at == b->wait_at && a->wait_for == b->wait_for;
}

/* Neighbours that wait for the same are named together; the first few of each block. */
static void report_deadlock(struct cluster *c)
{
    char text[MESSAGE] = "", what[120];
    size_t n = 0;
    int runs = 0;
    for (int r = 0; r < c->blocks; r++) {
        const struct block *b = &c->block[r];
        for (int i = 0, j; i < b->threads; i = j) {
            for (j = i + 1; j < b->threads && same_wait(b->thread[i], b->thread[j]); j++) {}
            if (b->thread[i]->wait == ENDED || runs++ >= 6 || n >= sizeof text) continue;
            describe(b->thread[i], what, sizeof what);
            n += (size_t)snprintf(text + n, sizeof text - n, "; block %d threads %d-%d wait at %s", b->index,
                                  i, j - 1, what);
        }
    }
    c->failed = true;
    fail_launch(c->launch, "deadlock%s", text);
}

/* ---- Who runs next ---- */

/* A starved lane runs when nobody else can, and nothing is pending, or once in so many steps: somebody may
 * poll for it. A place of the others. */
enum { STEPS_A_MEAL = 4096 };
static int first_fed(const struct cluster *c, int from)
{
    int i = 0;
    while (i < c->readies && !c->ready[(from + i) % c->readies].rank) i++;
    return i < c->readies ? (from + i) % c->readies : -1;
}
static bool all_starved(const struct cluster *c)
{
    return c->policy.starve == STARVE_LANE && c->readies && first_fed(c, 0) < 0;
}

/* Any; or, where a policy starves some, the first by rank of five. */
static struct thread *pick(struct cluster *c)
{
    uint32_t best = draw(c, (uint32_t)c->readies);
    bool starve = c->policy.starve == STARVE_LANE && draw(c, STEPS_A_MEAL);
    int fed = starve ? first_fed(c, (int)best) : -1;
    if (fed >= 0) {
        best = (uint32_t)fed;
    } else if (c->policy.starve && c->policy.starve != STARVE_LANE) {
        uint64_t bits = next_random(&c->random);
        for (int i = 0; i < 4; i++, bits >>= 16) {
            uint32_t other = (uint32_t)((bits & 0xffff) * (uint32_t)c->readies >> 16);
            if (c->ready[other].rank > c->ready[best].rank) best = other;
        }
    }
    struct thread *t = c->ready[best].thread;
    c->ready[best] = c->ready[--c->readies];
    return t;
}

/* Takes steps until somebody may go on; NULL when the cluster has ended, well or not. */
static struct thread *next_thread(struct cluster *c)
{
    while (c->alive && !c->failed && !c->launch->failed) {
        bool starved = all_starved(c);
        if (c->readies && !starved) {
            advance_copies(c, false);
            advance_products(c, false);
            advance_landings(c, false);
        } else if (advance_copies(c, true) || advance_products(c, true) || advance_landings(c, true)) {
            if (starved) continue;
        } else if (!starved) {
            report_deadlock(c);
            return NULL;
        }
        if (c->readies) return pick(c);
    }
    return NULL;
}

/* ---- Sleep ---- */

static void leave(struct thread *t)
{
    struct cluster *c = t->cluster;
    if (t->magic != MAGIC) fail_launch(c->launch, "block %d: a stack overflow", t->block->index);
    struct thread *to = next_thread(c);
    if (to != t) switch_stack(&t->sp, to ? to->sp : c->sp);
}

void sleep_on(struct thread *t, struct thread **list, enum wait wait, uint32_t at, uint32_t what)
{
    if (list) {
        t->next = *list;
        *list = t;
    }
    t->wait = wait;
    t->wait_at = at;
    t->wait_for = what;
    leave(t);
}

void yield(struct thread *t)
{
    wake(t);
    leave(t);
}
void let_others_run(struct thread *t)
{
    if (chance(t->cluster, t->cluster->policy.pause)) yield(t);
}

/* ---- Fibers ---- */

static void end_thread(struct thread *t)
{
    struct block *b = t->block;
    bool last = --b->alive == 0;
    check_products_of_ended(t);
    check_copies_of_ended(t, last);
    check_landings_of_ended(t);
    t->wait = ENDED;
    t->cluster->alive--;
    leave(t);
}

static void thread_main(void)
{
    struct thread *t = self_thread();
    const struct launch *l = t->cluster->launch;
    l->kernel->start(l->parameters);
    end_thread(t);
}

/* Where a policy starves warps, blocks, or a lane. */
static uint32_t rank_of(const struct cluster *c, const struct block *b, int i)
{
    int warp = c->policy.starve == STARVE_WARPS ? i / EMU_WARP : 0;
    uint32_t number = (uint32_t)(b->index * 64 + warp) + c->launch->number;
    uint32_t rank = number * 0x9e3779b9u ^ (uint32_t)c->launch->seed;
    uint32_t threads = rank & 1 ? EMU_WARP : (uint32_t)b->threads;
    return c->policy.starve == STARVE_LANE ? (uint32_t)i != (rank >> 8) % threads : rank;
}

static struct thread *make_thread(struct cluster *c, struct block *b, int i)
{
    unsigned char *stack = c->stacks + (size_t)(b->rank * b->threads + i) * EMU_STACK;
    struct thread *t = (struct thread *)emu_foot((uintptr_t)stack);
    const struct launch *l = c->launch;
    *t = (struct thread){.magic = MAGIC,
                         .cluster = c,
                         .block = b,
                         .warp = &b->warp[i / EMU_WARP],
                         .group = &b->group[i / EMU_GROUP],
                         .index = i,
                         .lane = i % EMU_WARP,
                         .rank = rank_of(c, b, i),
                         .registers = c->registers};
    t->view.thread = (struct emu_index){(unsigned)i, 0, 0};
    t->view.block = (struct emu_index){(unsigned)b->index, 0, 0};
    t->view.block_size = (struct emu_index){l->threads, 1, 1};
    t->view.grid_size = (struct emu_index){l->grid, 1, 1};
    t->warp->lane[t->lane] = t;
    size_t further = (uintptr_t)t - (uintptr_t)stack;
    void **top = (void **)(void *)(stack + EMU_STACK - EMU_SHIFT * EMU_SHIFTS + further -
                                   72); /* as a call leaves it */
    top[0] = NULL;                      /* thread_main's return address */
    top[-1] = (void *)(uintptr_t)thread_main;
    t->sp = top - 7; /* and six registers */
    for (int r = 0; r < 6; r++) top[-2 - r] = NULL;
    return t;
}

static void make_threads(struct cluster *c)
{
    for (int r = 0; r < c->blocks; r++)
        for (int i = 0; i < c->block[r].threads; i++) {
            struct thread *t = make_thread(c, &c->block[r], i);
            c->block[r].thread[i] = t;
            wake(t);
        }
    c->alive = c->readies;
}

/* ---- A cluster ---- */

void run_cluster(struct cluster *c)
{
    choose_policy(c);
    make_threads(c);
    if (setjmp(c->unwind)) return;
    struct thread *first = next_thread(c);
    c->fibers = true;
    if (first) switch_stack(&c->sp, first->sp);
    c->fibers = false;
    if (!c->failed && !c->launch->failed) finish_stores(c);
}
