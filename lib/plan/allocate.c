/*
 * allocate.c -- give each buffer of the workspace an offset; buffers that never live at once share bytes.
 *
 * Each takes the lowest gap among those that are placed and live with it. Only these are looked at: the
 * cost is the number of pairs that live together, which for a chain of layers grows as the chain does. What
 * only coda_prepare reads lies in the workspace, too; what it leaves for runs is placed by folds.c.
 */
#include "plan.h"

#include <stdlib.h>

enum { ALIGN = 256 };

static void touch(struct plan *p, int buffer, int program)
{
    struct buffer *b = &p->buffer[buffer];
    if (b->first < 0) b->first = program;
    b->last = program;
}

static void find_lifetimes(struct plan *p)
{
    const struct tensor_use *u;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++) touch(p, u->buffer, i);
}

/* ---- Buffers that are placed, by when they live ---- */

/*
 * Buffers by the first program that touches each, and over these a tree: node i holds the latest last use
 * of those below it, children 2i and 2i + 1, leaves from `leaves` on.
 */
struct lives {
    const struct plan *p;
    int *head, *next; /* of a program: the buffers whose life begins with it */
    int *latest, leaves;
    int *found, n; /* that live with the one at hand */
};

static bool lives_new(struct lives *l, struct plan *p)
{
    *l = (struct lives){.p = p, .leaves = 1};
    while (l->leaves < p->programs + 1) l->leaves *= 2;
    l->head = ARENA_NEW(&p->arena, int, p->programs + 1);
    l->next = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->found = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->latest = ARENA_NEW(&p->arena, int, 2 * l->leaves);
    if (p->arena.failed) return false;
    for (int i = 0; i <= p->programs; i++) l->head[i] = -1;
    for (int i = 0; i < 2 * l->leaves; i++) l->latest[i] = -1;
    return true;
}

static void lives_add(struct lives *l, int buffer)
{
    const struct buffer *b = &l->p->buffer[buffer];
    l->next[buffer] = l->head[b->first];
    l->head[b->first] = buffer;
    for (int i = l->leaves + b->first; i && l->latest[i] < b->last; i /= 2) l->latest[i] = b->last;
}

static void find_among(struct lives *l, int program, int since)
{
    for (int i = l->head[program]; i >= 0; i = l->next[i])
        if (l->p->buffer[i].last >= since) l->found[l->n++] = i;
}

/* Those that begin before `since` and are still needed then: all of the tree but what ended before. */
static void find_older(struct lives *l, int node, int first, int size, int since)
{
    if (first >= since || l->latest[node] < since) return;
    if (size == 1) {
        find_among(l, first, since);
        return;
    }
    find_older(l, 2 * node, first, size / 2, since);
    find_older(l, 2 * node + 1, first + size / 2, size / 2, since);
}

/* ---- Places ---- */

struct placed {
    int64_t offset, end;
};

static int by_offset(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The lowest offset where the buffer meets no placed one that lives at the same time. */
static int64_t lowest_gap(struct lives *l, const struct buffer *b, struct placed *placed)
{
    int64_t at = 0;
    l->n = 0;
    find_older(l, 1, 0, l->leaves, b->first);
    for (int i = b->first; i <= b->last; i++) find_among(l, i, b->first);
    for (int i = 0; i < l->n; i++) {
        const struct buffer *o = &l->p->buffer[l->found[i]];
        placed[i] = (struct placed){o->offset, o->offset + o->bytes};
    }
    qsort(placed, (size_t)l->n, sizeof *placed, by_offset);
    for (int i = 0; i < l->n && placed[i].offset < at + b->bytes; i++)
        if (at < placed[i].end) at = (placed[i].end + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* All that lies in the workspace and among the folded constants, end to end, so that no sum of sizes
 * overflows. */
static coda_status check_sizes(const struct plan *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->buffers; i++)
        if (p->buffer[i].space != SPACE_ARG) bytes = add_counts(bytes, add_counts(p->buffer[i].bytes, 256));
    if (bytes <= (int64_t)1 << 62) return CODA_OK;
    return fail(CODA_E_UNSUPPORTED, "plan: %d programs keep %s%lld bytes between them; most are 2^62",
                p->programs, bytes == INT64_MAX ? "more than " : "", (long long)bytes);
}

coda_status plan_place(struct plan *p)
{
    coda_status status = check_sizes(p);
    if (status) return status;
    int first_run = 0;
    struct lives lives;
    struct placed *placed = ARENA_NEW(&p->arena, struct placed, p->buffers + 1);
    if (!lives_new(&lives, p) || !placed)
        return fail(CODA_E_MEMORY, "out of memory for %d buffers", p->buffers);
    while (first_run < p->programs && p->program[first_run].prepare) first_run++;
    find_lifetimes(p);
    p->workspace = 0;
    for (int i = 0; i < p->buffers; i++) {
        struct buffer *b = &p->buffer[i];
        if (b->first < 0) continue;
        if (b->space == SPACE_PREPARED && b->last < first_run) b->space = SPACE_WORK;
        if (b->space != SPACE_WORK) continue;
        b->offset = lowest_gap(&lives, b, placed);
        lives_add(&lives, i);
        p->workspace = MAX(p->workspace, (b->offset + b->bytes + ALIGN - 1) / ALIGN * ALIGN);
    }
    return CODA_OK;
}
