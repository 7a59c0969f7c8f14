/*
 * order.c -- the order of a plan's programs, by the effects of what they use.
 *
 * Those who read a version of a buffer wait for those who write it, and those who write the next version for
 * those who read this one. So each buffer has a row of epochs: writers of version 0, its readers, writers of
 * version 1, its readers, and so on; each epoch waits for all of the one ahead of it. Of the programs that
 * wait for nobody, the one with the first root goes first, so that the order is that of the graph. A program
 * counts the epochs that it waits for, is counted down as these are done, and at 0 enters a heap.
 *
 * Where that keeps much in memory, as the logits of all chunks of a loss before the first one's gradient, the
 * one goes first after which the least is kept, and the order is taken if its peak is lower by one part in
 * 128: list scheduling, as XLA's memory scheduler has it, which also takes the better one of several orders.
 *
 * Where exchanges are to have others beside them, one that is ready goes before all, and what waits for one
 * behind all that waits for earlier ones alone; then an order by bytes is taken if it halves the peak.
 */
#include "order.h"

#include "own.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct order {
    struct plan *p;
    int *epoch;               /* of a buffer: its first epoch */
    int *at, *member, epochs; /* programs of epoch g: member[at[g]] up to member[at[g + 1]] */
    int *after;               /* of an epoch: the one that waits for it; -1 */
    int *pending;             /* of an epoch: members that are not done */
    int *missing;             /* of a program: epochs that it waits for */
    int *seen;                /* of an epoch: the last program that was counted, and one more */
    int *heap, ready;
    int *reach;    /* of an epoch: how many exchanges there were, with the last one that it waits for */
    int *key;      /* of a program that is ready: that number, or less than 0; equal ones are in order */
    int exchanges; /* that are done */
    struct ledger *ledger; /* order_memory.c: of the bytes that are kept; NULL: the first root goes first */
};

static int by_root(const void *x, const void *y)
{
    const struct program *a = x, *b = y;
    if (a->prepare != b->prepare) return a->prepare ? -1 : 1;
    return (a->root > b->root) - (a->root < b->root);
}

/* ---- Epochs ---- */

/* The epoch of a use: of the writers of its version, or of the readers. */
static int epoch_of(const struct order *o, const struct tensor_use *u)
{
    bool writes = use_effect(u) != EFFECT_READ;
    return o->epoch[u->buffer] + 2 * u->version + !writes;
}

/* A buffer has as many pairs of epochs as versions. */
static bool number_epochs(struct order *o)
{
    struct arena *a = &o->p->arena;
    const struct tensor_use *u;
    o->epoch = ARENA_NEW(a, int, o->p->buffers + 1);
    if (!o->epoch) return false;
    for (int i = 0; i < o->p->programs; i++)
        for (int j = 0; (u = program_use(&o->p->program[i], j)); j++)
            o->epoch[u->buffer] = MAX(o->epoch[u->buffer], u->version);
    for (int b = 0; b < o->p->buffers; b++) {
        int versions = o->epoch[b] + 1;
        o->epoch[b] = o->epochs;
        o->epochs += 2 * versions;
    }
    o->at = ARENA_NEW(a, int, o->epochs + 2);
    o->after = ARENA_NEW(a, int, o->epochs + 1);
    o->pending = ARENA_NEW(a, int, o->epochs + 1);
    o->seen = ARENA_NEW(a, int, o->epochs + 1);
    o->reach = ARENA_NEW(a, int, o->epochs + 1);
    return !a->failed;
}

/* Counts each program's place in its epochs, or takes it; from the last program, so that lists ascend. */
static void enlist(struct order *o, bool counting)
{
    const struct tensor_use *u;
    memset(o->seen, 0, sizeof *o->seen * (size_t)o->epochs);
    for (int i = o->p->programs - 1; i >= 0; i--)
        for (int j = 0; (u = program_use(&o->p->program[i], j)); j++) {
            int epoch = epoch_of(o, u);
            if (o->seen[epoch] == i + 1) continue;
            o->seen[epoch] = i + 1;
            if (counting) o->at[epoch]++;
            else o->member[--o->at[epoch]] = i;
        }
}

static bool fill_epochs(struct order *o)
{
    enlist(o, true);
    memcpy(o->pending, o->at, sizeof *o->at * (size_t)o->epochs);
    for (int g = 0; g < o->epochs; g++) o->at[g + 1] += o->at[g];
    o->member = ARENA_NEW(&o->p->arena, int, o->at[o->epochs] + 1);
    if (!o->member) return false;
    enlist(o, false);
    return true;
}

/* Epochs without members are passed over. */
static void link_epochs(struct order *o)
{
    for (int b = 0; b < o->p->buffers; b++) {
        int end = b + 1 < o->p->buffers ? o->epoch[b + 1] : o->epochs, next = -1;
        for (int g = end - 1; g >= o->epoch[b]; g--) {
            o->after[g] = next;
            if (o->pending[g]) next = g;
        }
    }
}

/* Lists ascend. */
static bool is_member(const struct order *o, int epoch, int program)
{
    int low = o->at[epoch], high = o->at[epoch + 1];
    while (low < high) {
        int middle = (low + high) / 2;
        if (o->member[middle] < program) low = middle + 1;
        else high = middle;
    }
    return low < o->at[epoch + 1] && o->member[low] == program;
}

/* ---- Who is ready ---- */

static bool is_exchange(const struct order *o, int program)
{
    return o->p->overlaps && o->p->program[program].own == &own_exchange;
}

static int reach_of(const struct order *o, int program)
{
    const struct tensor_use *u;
    int reach = 0;
    for (int j = 0; (u = program_use(&o->p->program[program], j)); j++)
        reach = MAX(reach, o->reach[epoch_of(o, u)]);
    return reach;
}

/* What coda_prepare runs comes first in any case. */
static int key_of(const struct order *o, int program)
{
    if (!o->p->overlaps) return 0;
    return o->p->program[program].prepare ? -2 : is_exchange(o, program) ? -1 : reach_of(o, program);
}

static bool comes_first(const struct order *o, int a, int b)
{
    return o->key[a] != o->key[b] ? o->key[a] < o->key[b] : a < b;
}

static void make_ready(struct order *o, int program)
{
    int i = o->ready++;
    o->key[program] = key_of(o, program);
    for (; i > 0 && comes_first(o, program, o->heap[(i - 1) / 2]); i = (i - 1) / 2)
        o->heap[i] = o->heap[(i - 1) / 2];
    o->heap[i] = program;
}

static int take_first(struct order *o)
{
    int first = o->heap[0], last = o->heap[--o->ready], i = 0;
    for (int child; (child = 2 * i + 1) < o->ready; i = child) {
        if (child + 1 < o->ready && comes_first(o, o->heap[child + 1], o->heap[child])) child++;
        if (!comes_first(o, o->heap[child], last)) break;
        o->heap[i] = o->heap[child];
    }
    o->heap[i] = last;
    return first;
}

/* A member of both waits for the others of the epoch ahead, not for itself. */
static void find_missing(struct order *o)
{
    for (int g = 0; g < o->epochs; g++) {
        int next = o->after[g];
        for (int i = next < 0 ? 0 : o->at[next]; o->pending[g] && next >= 0 && i < o->at[next + 1]; i++)
            o->missing[o->member[i]] += o->pending[g] > is_member(o, g, o->member[i]);
    }
    for (int i = 0; i < o->p->programs; i++)
        if (!o->missing[i]) make_ready(o, i);
}

/* One member of an epoch is done: whom does only that keep waiting? */
static void leave_epoch(struct order *o, int epoch, int reach, const bool *done)
{
    int left = --o->pending[epoch], next = o->after[epoch];
    if (next >= 0) o->reach[next] = MAX(o->reach[next], reach);
    for (int i = next < 0 ? 0 : o->at[next]; next >= 0 && left <= 1 && i < o->at[next + 1]; i++) {
        int program = o->member[i];
        if (!done[program] && left == is_member(o, epoch, program) && --o->missing[program] == 0)
            make_ready(o, program);
    }
}

/* The ready one after which the least is kept; of equals the first. */
static int take_least(struct order *o)
{
    int best = 0;
    double least = 0;
    for (int i = 0; i < o->ready; i++) {
        double more = is_exchange(o, o->heap[i]) ? -INFINITY : ledger_growth(o->ledger, o->heap[i]);
        if (i && (more > least || (more == least && o->heap[i] > o->heap[best]))) continue;
        best = i, least = more;
    }
    int program = o->heap[best];
    o->heap[best] = o->heap[--o->ready]; /* no heap any more, and none is needed */
    return program;
}

static void finish(struct order *o, int program, const bool *done)
{
    const struct tensor_use *u;
    int reach = is_exchange(o, program) ? ++o->exchanges : o->p->overlaps ? reach_of(o, program) : 0;
    for (int j = 0; (u = program_use(&o->p->program[program], j)); j++) {
        int epoch = epoch_of(o, u);
        if (o->seen[epoch] == program + 1) continue;
        o->seen[epoch] = program + 1;
        leave_epoch(o, epoch, reach, done);
    }
}

/* Writes the programs to `sorted`, as far as none waits for another one without end; returns their number. */
static int run(struct order *o, int *sorted)
{
    int n = o->p->programs, placed = 0;
    bool *done = ARENA_NEW(&o->p->arena, bool, n + 1);
    if (!done) return 0;
    for (int g = 0; g < o->epochs; g++) o->pending[g] = o->at[g + 1] - o->at[g];
    memset(o->missing, 0, sizeof *o->missing * (size_t)n);
    memset(o->seen, 0, sizeof *o->seen * (size_t)o->epochs);
    memset(o->reach, 0, sizeof *o->reach * (size_t)o->epochs);
    o->exchanges = 0;
    find_missing(o);
    while (o->ready) {
        int i = o->ledger ? take_least(o) : take_first(o);
        done[i] = true;
        sorted[placed++] = i;
        if (o->ledger) ledger_enter(o->ledger, i);
        finish(o, i, done);
    }
    return placed;
}

/* Another order than `sorted`, if that one keeps too much. */
static bool keep_less(struct order *o, int *sorted)
{
    int n = o->p->programs, *other = ARENA_NEW(&o->p->arena, int, n + 1);
    o->ledger = other ? ledger_new(o->p) : NULL;
    if (!o->ledger) return false;
    double peak = ledger_peak(o->ledger, sorted), better = (o->p->overlaps ? 0.5 : 127.0 / 128) * peak;
    if (n > MOST_BY_MEMORY || ledger_least(o->ledger) > better || run(o, other) < n) return true;
    if (ledger_peak(o->ledger, other) > better) return true;
    memcpy(sorted, other, sizeof *sorted * (size_t)n);
    return o->p->rearranged = true;
}

coda_status plan_order(struct plan *p)
{
    int n = p->programs;
    struct order o = {.p = p};
    struct program *program = ARENA_NEW(&p->arena, struct program, n + 1);
    int *sorted = ARENA_NEW(&p->arena, int, n + 1);
    o.missing = ARENA_NEW(&p->arena, int, n + 1);
    o.heap = ARENA_NEW(&p->arena, int, n + 1);
    o.key = ARENA_NEW(&p->arena, int, n + 1);
    qsort(p->program, (size_t)n, sizeof *p->program, by_root);
    if (p->arena.failed || !number_epochs(&o) || !fill_epochs(&o))
        return fail(CODA_E_MEMORY, "out of memory for %d programs", n);
    link_epochs(&o);
    int placed = run(&o, sorted);
    if ((p->by_size && !keep_less(&o, sorted)) || p->arena.failed)
        return fail(CODA_E_MEMORY, "out of memory for %d programs", n);
    if (placed < n) return fail(CODA_E_UNSUPPORTED, "plan: programs %d..%d wait for each other", placed, n);
    for (int i = 0; i < n; i++) program[i] = p->program[sorted[i]];
    p->program = program;
    return CODA_OK;
}
