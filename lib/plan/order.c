/*
 * order.c -- the order of a plan's programs: each follows the writers of what it reads.
 *
 * Of those that wait for nobody, the one with the first root goes first, so that the order is that of the
 * graph. A program counts the buffers that it waits for: those that another program has yet to write. It
 * is counted down as these are done, and at 0 enters a heap.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* A list of programs for each buffer: those of buffer b lie from at[b] to at[b + 1]. */
struct lists {
    int *at, *program;
};

struct order {
    struct plan *p;
    struct lists writers, readers;
    int *missing; /* of a program: buffers that it waits for                                      */
    int *pending; /* of a buffer: writers that are not done                                       */
    int *seen;    /* of a buffer: the last program that was counted, and one more                 */
    int *heap, ready;
    int program;   /* that is being asked for what it reads                                        */
    bool counting; /* first the length of the lists, then what is in them                          */
};

static int by_root(const void *x, const void *y)
{
    const struct program *a = x, *b = y;
    if (a->prepare != b->prepare) return a->prepare ? -1 : 1;
    return (a->root > b->root) - (a->root < b->root);
}

/* ---- Who writes and who reads a buffer ---- */

/* Lengths are kept one place on, ends become beginnings. */
static void enlist(struct order *o, struct lists *l, int buffer)
{
    if (o->seen[buffer] == o->program + 1) return;
    o->seen[buffer] = o->program + 1;
    if (o->counting)
        l->at[buffer]++;
    else
        l->program[--l->at[buffer]] = o->program;
}

static bool enlist_read(void *ctx, int buffer)
{
    struct order *o = ctx;
    enlist(o, &o->readers, buffer);
    return false;
}

static void enlist_writes(struct order *o, const struct program *q)
{
    if (q->kind == PROGRAM_ATTENTION) enlist(o, &o->writers, q->attention.o.buffer);
    for (int j = 0; j < q->ports; j++) {
        const struct port *port = &q->port[j];
        if (port->kind == PORT_STORE || port->kind == PORT_PARTIAL_STORE)
            enlist(o, &o->writers, port->buffer);
    }
}

static void enlist_all(struct order *o, bool reads)
{
    memset(o->seen, 0, sizeof *o->seen * (size_t)o->p->buffers);
    for (o->program = o->p->programs - 1; o->program >= 0; o->program--) {
        const struct program *q = &o->p->program[o->program];
        if (reads)
            program_any_read(q, enlist_read, o);
        else
            enlist_writes(o, q);
    }
}

static bool fill(struct order *o, struct lists *l, bool reads)
{
    struct arena *a = &o->p->arena;
    l->at = ARENA_NEW(a, int, o->p->buffers + 1);
    if (!l->at) return false;
    o->counting = true;
    enlist_all(o, reads);
    for (int b = 0; b < o->p->buffers; b++) l->at[b + 1] += l->at[b];
    l->program = ARENA_NEW(a, int, l->at[o->p->buffers] + 1);
    if (!l->program) return false;
    o->counting = false;
    enlist_all(o, reads);
    return true;
}

static bool writes(const struct order *o, int program, int buffer)
{
    for (int i = o->writers.at[buffer]; i < o->writers.at[buffer + 1]; i++)
        if (o->writers.program[i] == program) return true;
    return false;
}

/* ---- Who is ready ---- */

static void make_ready(struct order *o, int program)
{
    int i = o->ready++;
    for (; i > 0 && o->heap[(i - 1) / 2] > program; i = (i - 1) / 2) o->heap[i] = o->heap[(i - 1) / 2];
    o->heap[i] = program;
}

static int take_first(struct order *o)
{
    int first = o->heap[0], last = o->heap[--o->ready], i = 0;
    for (int child; (child = 2 * i + 1) < o->ready; i = child) {
        if (child + 1 < o->ready && o->heap[child + 1] < o->heap[child]) child++;
        if (o->heap[child] >= last) break;
        o->heap[i] = o->heap[child];
    }
    o->heap[i] = last;
    return first;
}

/* Readers of a buffer wait while others have to write it: one that writes it, too, is not among them. */
static void find_missing(struct order *o)
{
    for (int b = 0; b < o->p->buffers; b++) {
        o->pending[b] = o->writers.at[b + 1] - o->writers.at[b];
        for (int i = o->readers.at[b]; i < o->readers.at[b + 1] && o->pending[b]; i++) {
            int reader = o->readers.program[i];
            o->missing[reader] += o->pending[b] > writes(o, reader, b);
        }
    }
    for (int i = 0; i < o->p->programs; i++)
        if (!o->missing[i]) make_ready(o, i);
}

/* One of the writers of a buffer is done: whom does only that keep waiting? */
static void write_buffer(struct order *o, int buffer, const bool *done)
{
    int left = --o->pending[buffer];
    for (int i = o->readers.at[buffer]; i < o->readers.at[buffer + 1] && left <= 1; i++) {
        int reader = o->readers.program[i];
        if (!done[reader] && left == writes(o, reader, buffer) && --o->missing[reader] == 0)
            make_ready(o, reader);
    }
}

static void finish(struct order *o, int program, const bool *done)
{
    const struct program *q = &o->p->program[program];
    if (q->kind == PROGRAM_ATTENTION) write_buffer(o, q->attention.o.buffer, done);
    for (int j = 0; j < q->ports; j++) {
        const struct port *port = &q->port[j];
        bool store = port->kind == PORT_STORE || port->kind == PORT_PARTIAL_STORE;
        if (!store || o->seen[port->buffer] == program + 1) continue;
        o->seen[port->buffer] = program + 1;
        write_buffer(o, port->buffer, done);
    }
}

coda_status plan_order(struct plan *p)
{
    int n = p->programs, placed = 0;
    struct order o = {.p = p};
    struct program *sorted = ARENA_NEW(&p->arena, struct program, n + 1);
    bool *done = ARENA_NEW(&p->arena, bool, n + 1);
    o.missing = ARENA_NEW(&p->arena, int, n + 1);
    o.heap = ARENA_NEW(&p->arena, int, n + 1);
    o.pending = ARENA_NEW(&p->arena, int, p->buffers + 1);
    o.seen = ARENA_NEW(&p->arena, int, p->buffers + 1);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d programs", n);
    qsort(p->program, (size_t)n, sizeof *p->program, by_root);
    if (!fill(&o, &o.writers, false) || !fill(&o, &o.readers, true))
        return fail(CODA_E_MEMORY, "out of memory for %d programs", n);
    find_missing(&o);
    memset(o.seen, 0, sizeof *o.seen * (size_t)p->buffers);
    for (; o.ready; placed++) {
        int i = take_first(&o);
        done[i] = true;
        sorted[placed] = p->program[i];
        finish(&o, i, done);
    }
    if (placed < n) return fail(CODA_E_UNSUPPORTED, "plan: programs %d..%d wait for each other", placed, n);
    p->program = sorted;
    return CODA_OK;
}
