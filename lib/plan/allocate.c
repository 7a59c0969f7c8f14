/*
 * allocate.c -- give each buffer of the workspace an offset; buffers that never live at once share bytes.
 *
 * Each takes the lowest gap among those that are placed and live with it. Only these are looked at: the
 * cost is the number of pairs that live together, which for a chain of layers grows as the chain does. What
 * only coda_prepare reads lies in the workspace, too; what it leaves for runs is placed by folds.c. A plan of
 * one more shape is placed as a larger one was, in whose workspace it fits.
 */
#include "own.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

static void touch(struct plan *p, int buffer, int program)
{
    struct buffer *b = &p->buffer[buffer];
    b->first = b->first < 0 ? program : MIN(b->first, program);
    b->last = MAX(b->last, program);
}

/* What ranks add up is read by the program behind, where that makes the sum. */
static void keep_for_next(struct plan *p, int i, const struct plan_options *opt)
{
    const struct program *q = &p->program[i];
    const struct exchange_spec *s = q->spec;
    if (q->own == &own_exchange && i + 1 < p->programs && exchange_trips(s, opt->exchange) == 1)
        touch(p, s->use[ALL_REDUCE_X].buffer, i + 1);
}

/* What an exchange uses stays while others run beside it. */
static void keep_beside(struct plan *p, int i)
{
    const struct tensor_use *u;
    for (int j = 0; p->beside && p->beside[i] && (u = program_use(&p->program[i], j)); j++)
        touch(p, u->buffer, p->beside[i] - 1);
}

/* What programs of one launch use lives as long as the others run. */
static void keep_together(struct plan *p, int i)
{
    const struct tensor_use *u;
    int first = plan_leader(p, i);
    for (int j = 0; (u = program_use(&p->program[i], j)); j++) {
        touch(p, u->buffer, first);
        touch(p, u->buffer, first + plan_together(p, i) - 1);
    }
}

static void find_lifetimes(struct plan *p, const struct plan_options *opt)
{
    for (int i = 0; i < p->programs; i++) {
        keep_together(p, i);
        keep_for_next(p, i, opt);
        keep_beside(p, i);
    }
}

/* ---- Buffers that are placed, by when they live ---- */

enum { LEAF = 8 };

/*
 * Buffers by the first program that touches each, and over these a tree: node i holds the latest last use
 * of those below it, children 2i and 2i + 1, leaves from `leaves` on, each of LEAF programs.
 */
struct lives {
    const struct plan *p;
    int *head, *next; /* of a program: the buffers whose life begins with it */
    int *latest, leaves;
    int *found, n;      /* that live with the one at hand */
    int *sorted, sorts; /* the same by offset; ... */
    int *stamp;         /* ... of a buffer: 1 + the last one that it was found for and is not in order yet */
};

static void lives_clear(struct lives *l)
{
    for (int i = 0; i <= l->p->programs; i++) l->head[i] = -1;
    for (int i = 0; i < 2 * l->leaves; i++) l->latest[i] = -1;
    memset(l->stamp, 0, sizeof *l->stamp * (size_t)l->p->buffers);
    l->sorts = 0;
}

static bool lives_new(struct lives *l, struct plan *p)
{
    *l = (struct lives){.p = p, .leaves = 1};
    while (LEAF * l->leaves < p->programs + 1) l->leaves *= 2;
    l->head = ARENA_NEW(&p->arena, int, p->programs + 1);
    l->next = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->found = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->sorted = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->stamp = ARENA_NEW(&p->arena, int, p->buffers + 1);
    l->latest = ARENA_NEW(&p->arena, int, 2 * l->leaves);
    if (p->arena.failed) return false;
    lives_clear(l);
    return true;
}

static void lives_add(struct lives *l, int buffer)
{
    const struct buffer *b = &l->p->buffer[buffer];
    l->next[buffer] = l->head[b->first];
    l->head[b->first] = buffer;
    for (int i = l->leaves + b->first / LEAF; i && l->latest[i] < b->last; i /= 2) l->latest[i] = b->last;
}

static void find_among(struct lives *l, int program, int since)
{
    for (int i = l->head[program]; i >= 0; i = l->next[i])
        if (l->p->buffer[i].last >= since) l->found[l->n++] = i;
}

/* Finds buffers that begin before `since` and are still needed then: the tree without what ended before. */
static void find_older(struct lives *l, int node, int first, int size, int since)
{
    if (first >= since || l->latest[node] < since) return;
    if (size == LEAF) {
        for (int i = first; i < MIN(first + LEAF, since); i++) find_among(l, i, since);
        return;
    }
    find_older(l, 2 * node, first, size / 2, since);
    find_older(l, 2 * node + 1, first + size / 2, size / 2, since);
}

/* ---- Places ---- */

struct placed {
    int64_t offset;
    int buffer;
};

static int by_offset(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The C library's sort is faster for many, but it asks for memory. */
static void sort(struct placed *placed, int n)
{
    enum { MANY = 64 };
    if (n > MANY) qsort(placed, (size_t)n, sizeof *placed, by_offset);
    for (int i = 1; i < n && n <= MANY; i++) {
        const struct placed one = placed[i];
        int at = i;
        for (; at && placed[at - 1].offset > one.offset; at--) placed[at] = placed[at - 1];
        placed[at] = one;
    }
}

/* Finds what is placed and lives at the same time as b: l->found. */
static void find_contemporaries(struct lives *l, const struct buffer *b)
{
    l->n = 0;
    find_older(l, 1, 0, LEAF * l->leaves, b->first);
    for (int i = b->first; i <= b->last; i++) find_among(l, i, b->first);
}

/* Most of those that live with a buffer lived with the one before it, too, and are in order. The others,
 * which `fresh` has room for, are sorted by themselves and put among them. */
static void sort_found(struct lives *l, int buffer, struct placed *fresh)
{
    const struct buffer *b = l->p->buffer;
    int known = 0, n = 0;
    for (int i = 0; i < l->n; i++) l->stamp[l->found[i]] = buffer + 1;
    for (int i = 0; i < l->sorts; i++) {
        if (l->stamp[l->sorted[i]] != buffer + 1) continue;
        l->stamp[l->sorted[i]] = 0;
        l->sorted[known++] = l->sorted[i];
    }
    for (int i = 0; i < l->n; i++)
        if (l->stamp[l->found[i]]) fresh[n++] = (struct placed){b[l->found[i]].offset, l->found[i]};
    sort(fresh, n);
    l->sorts = known + n;
    for (int at = l->sorts; n;) {
        bool before = !known || b[l->sorted[known - 1]].offset <= fresh[n - 1].offset;
        l->sorted[--at] = before ? fresh[--n].buffer : l->sorted[--known];
    }
}

static int64_t end_of(const struct buffer *b) { return (b->offset + b->bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* The lowest offset where the buffer meets no placed one that lives at the same time. */
static int64_t lowest_gap(struct lives *l, int buffer, struct placed *fresh)
{
    const struct buffer *b = &l->p->buffer[buffer];
    int64_t at = 0;
    find_contemporaries(l, b);
    sort_found(l, buffer, fresh);
    for (int i = 0; i < l->sorts; i++) {
        const struct buffer *o = &l->p->buffer[l->sorted[i]];
        if (o->offset >= at + b->bytes) break;
        at = MAX(at, end_of(o));
    }
    return at;
}

static void place(struct plan *p, struct lives *l, int buffer, int64_t offset)
{
    p->buffer[buffer].offset = offset;
    lives_add(l, buffer);
    p->workspace = MAX(p->workspace, end_of(&p->buffer[buffer]));
}

static bool is_placed(const struct buffer *b) { return b->first >= 0 && b->space == SPACE_WORK; }

static void place_anew(struct plan *p, struct lives *l, struct placed *placed)
{
    for (int i = 0; i < p->buffers; i++)
        if (is_placed(&p->buffer[i])) place(p, l, i, lowest_gap(l, i, placed));
}

/* ---- Large ones first, where what is small would part the places of what is large ---- */

static int by_bytes(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;
    if (a->offset != b->offset) return a->offset < b->offset ? 1 : -1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static bool place_large_first(struct plan *p, struct lives *l, struct placed *placed)
{
    struct placed *order = ARENA_NEW(&p->arena, struct placed, p->buffers + 1); /* its offset: bytes */
    int64_t before = p->workspace;
    int n = 0;
    if (!order) return false;
    for (int i = 0; i < p->buffers; i++)
        if (is_placed(&p->buffer[i])) order[n++] = (struct placed){p->buffer[i].bytes, i};
    qsort(order, (size_t)n, sizeof *order, by_bytes);
    lives_clear(l);
    p->workspace = 0;
    for (int k = 0; k < n; k++) place(p, l, order[k].buffer, lowest_gap(l, order[k].buffer, placed));
    if (p->workspace <= before) return true;
    lives_clear(l);
    p->workspace = 0;
    place_anew(p, l, placed);
    return true;
}

/* ---- Places as in a larger plan ---- */

/* Has it the same buffers at the same times, and none that is smaller? */
static bool is_like(const struct plan *p, const struct plan *larger)
{
    if (p->buffers != larger->buffers || p->programs != larger->programs) return false;
    for (int i = 0; i < p->buffers; i++) {
        const struct buffer *a = &p->buffer[i], *b = &larger->buffer[i];
        if (a->space != b->space || a->first != b->first || a->last != b->last) return false;
        if (is_placed(a) && a->bytes > b->bytes) return false;
    }
    return true;
}

/* In the order in which they lie there, each right behind those that live at the same time. So none is behind
 * its place there, and the larger plan's workspace is enough. */
static void place_like(struct plan *p, struct lives *l, const struct plan *larger, struct placed *order)
{
    int n = 0;
    for (int i = 0; i < p->buffers; i++)
        if (is_placed(&p->buffer[i])) order[n++] = (struct placed){larger->buffer[i].offset, i};
    sort(order, n);
    for (int k = 0; k < n; k++) {
        int buffer = order[k].buffer;
        int64_t at = 0;
        find_contemporaries(l, &p->buffer[buffer]);
        for (int i = 0; i < l->n; i++) at = MAX(at, end_of(&p->buffer[l->found[i]]));
        place(p, l, buffer, at);
    }
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

coda_status plan_place(struct plan *p, const struct plan_options *opt)
{
    coda_status status = check_sizes(p);
    if (status) return status;
    int first_run = 0, like = 0;
    struct lives lives;
    struct placed *placed = ARENA_NEW(&p->arena, struct placed, p->buffers + 1);
    if (!lives_new(&lives, p) || !placed)
        return fail(CODA_E_MEMORY, "out of memory for %d buffers", p->buffers);
    while (first_run < p->programs && p->program[first_run].prepare) first_run++;
    find_lifetimes(p, opt);
    for (int i = 0; i < p->buffers; i++) {
        struct buffer *b = &p->buffer[i];
        if (b->first >= 0 && b->space == SPACE_PREPARED && b->last < first_run) b->space = SPACE_WORK;
    }
    p->workspace = 0;
    while (like < opt->largers && !is_like(p, opt->larger[like])) like++;
    if (like < opt->largers) place_like(p, &lives, opt->larger[like], placed);
    else place_anew(p, &lives, placed);
    if (p->rearranged && !place_large_first(p, &lives, placed))
        return fail(CODA_E_MEMORY, "out of memory for %d buffers", p->buffers);
    return CODA_OK;
}
