/*
 * order_memory.c -- what is kept in the workspace while programs run one after the other: a buffer from the
 * first program that uses it to the last one. Bytes are doubles, as their sums may be large; what a reduction
 * leaves in parts has no size yet, and is small.
 */
#include "order.h"

#include <string.h>

struct ledger {
    const struct plan *p;
    int *users, *left; /* of a buffer: programs that use it, and those that have not run */
    int *stamp, time;  /* of a buffer: when it was last looked at */
};

/* The next use of a program from *j on that is of a buffer of the workspace, each buffer once. */
static const struct tensor_use *next_use(struct ledger *l, int program, int *j)
{
    const struct tensor_use *u;
    while ((u = program_use(&l->p->program[program], (*j)++))) {
        if (l->p->buffer[u->buffer].space != SPACE_WORK || l->stamp[u->buffer] == l->time) continue;
        l->stamp[u->buffer] = l->time;
        return u;
    }
    return NULL;
}

static void begin(struct ledger *l) { memcpy(l->left, l->users, sizeof *l->left * (size_t)l->p->buffers); }

struct ledger *ledger_new(struct plan *p)
{
    struct ledger *l = ARENA_NEW(&p->arena, struct ledger, 1);
    const struct tensor_use *u;
    if (!l) return NULL;
    l->p = p;
    l->users = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->left = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->stamp = ARENA_NEW(&p->arena, int, p->buffers + 1);
    if (p->arena.failed) return NULL;
    for (int i = 0, j = 0; i < p->programs; i++, j = 0)
        for (l->time++; (u = next_use(l, i, &j));) l->users[u->buffer]++;
    begin(l);
    return l;
}

double ledger_growth(struct ledger *l, int program)
{
    const struct tensor_use *u;
    double more = 0;
    int j = 0;
    for (l->time++; (u = next_use(l, program, &j));) {
        int buffer = u->buffer;
        if (l->left[buffer] == l->users[buffer]) more += (double)l->p->buffer[buffer].bytes;
        if (l->left[buffer] == 1) more -= (double)l->p->buffer[buffer].bytes;
    }
    return more;
}

void ledger_enter(struct ledger *l, int program)
{
    const struct tensor_use *u;
    int j = 0;
    for (l->time++; (u = next_use(l, program, &j));) l->left[u->buffer]--;
}

/* Bytes of buffers that begin with the program, of all that it uses if `all`. */
static double bytes_of(struct ledger *l, int program, bool all)
{
    const struct tensor_use *u;
    double bytes = 0;
    int j = 0;
    for (l->time++; (u = next_use(l, program, &j));)
        if (all || l->left[u->buffer] == l->users[u->buffer]) bytes += (double)l->p->buffer[u->buffer].bytes;
    return bytes;
}

double ledger_peak(struct ledger *l, const int *order)
{
    double kept = 0, peak = 0;
    begin(l);
    for (int i = 0; i < l->p->programs; i++) {
        peak = MAX(peak, kept + bytes_of(l, order[i], false));
        kept += ledger_growth(l, order[i]);
        ledger_enter(l, order[i]);
    }
    begin(l);
    return peak;
}

double ledger_least(struct ledger *l)
{
    double least = 0;
    for (int i = 0; i < l->p->programs; i++) least = MAX(least, bytes_of(l, i, true));
    return least;
}
