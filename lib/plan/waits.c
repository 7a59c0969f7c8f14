/*
 * waits.c -- which programs of a call each program has to wait for, if they are not run one after the other.
 *
 * By versions, as in order.c: a program that uses a buffer waits for the epoch ahead; among those that write
 * a version, one that adds to it waits for the one before. By memory: one that is the first to use a buffer
 * of the workspace waits for the last users of what lay there before. A wait that follows from others is left
 * out. Nothing may use a buffer once another one has taken its place, which is checked here.
 *
 * Row i of a matrix has a bit for each program that comes before program i. Rows are as wide as a BLOCK of
 * programs: a plan of more may name programs of earlier blocks although other waits imply them.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, BITS = 64, ROW = BLOCK / BITS };

struct link {
    int program;
    struct link *next;
};

/* How far the uses of a buffer have come. */
struct life {
    int epoch;                    /* 1 + that of the last use; 0: none in this call */
    struct link *ahead, *members; /* of the epoch before it, and of it, so far */
};

/* Bytes of the workspace, and the buffer that used them last. */
struct segment {
    int64_t first, end;
    int buffer;
};

struct search {
    struct plan *p;
    bool placed; /* buffers have their places */
    struct arena arena;
    struct life *life;
    struct segment *segment; /* by address, disjoint */
    int segments;
    int *found, n;        /* programs that the one at hand waits for */
    int *seen;            /* of a program: 1 + the last one that it was found for */
    uint64_t *row, words; /* of each program of the block; of a row */
};

static void find(struct search *s, const struct link *l, int program)
{
    for (; l; l = l->next) {
        if (l->program == program || s->seen[l->program] == program + 1) continue;
        s->seen[l->program] = program + 1;
        s->found[s->n++] = l->program;
    }
}

static struct link *push(struct search *s, struct link *list, int program)
{
    struct link *l = ARENA_NEW(&s->arena, struct link, 1);
    if (!l) return list; /* the arena remembers */
    *l = (struct link){program, list};
    return l;
}

/* ---- Memory ---- */

/* The first segment that ends behind `at`. */
static int segment_at(const struct search *s, int64_t at)
{
    int low = 0, high = s->segments;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->segment[middle].end <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Where it lies among all that is written over; what is not begins at 0. */
static struct segment segment_of(const struct search *s, int buffer)
{
    enum { INBOX_BIT = 62 }; /* of addresses behind those of the workspace */
    const struct buffer *b = &s->p->buffer[buffer];
    int64_t first = b->offset + (b->space == SPACE_INBOX ? (int64_t)1 << INBOX_BIT : 0);
    bool shared = s->placed && (b->space == SPACE_WORK || b->space == SPACE_INBOX);
    return shared ? (struct segment){first, first + b->bytes, buffer} : (struct segment){.buffer = buffer};
}

/* A buffer takes its place; returns those who used what was there. */
static struct link *take_place(struct search *s, int buffer)
{
    const struct segment own = segment_of(s, buffer);
    struct segment piece[3];
    struct link *users = NULL;
    int at = segment_at(s, own.first), end = at, n = 0;
    if (own.first == own.end) return NULL;
    for (; end < s->segments && s->segment[end].first < own.end; end++)
        for (struct link *l = s->life[s->segment[end].buffer].members; l; l = l->next)
            users = push(s, users, l->program);
    if (end > at && s->segment[at].first < own.first)
        piece[n++] = (struct segment){s->segment[at].first, own.first, s->segment[at].buffer};
    piece[n++] = own;
    if (end > at && s->segment[end - 1].end > own.end)
        piece[n++] = (struct segment){own.end, s->segment[end - 1].end, s->segment[end - 1].buffer};
    memmove(&s->segment[at + n], &s->segment[end], sizeof *s->segment * (size_t)(s->segments - end));
    memcpy(&s->segment[at], piece, sizeof *piece * (size_t)n);
    s->segments += n - (end - at);
    return users;
}

static bool has_place(const struct search *s, int buffer)
{
    const struct segment own = segment_of(s, buffer);
    if (own.first == own.end) return true;
    int at = segment_at(s, own.first);
    const struct segment *g = &s->segment[at];
    return at < s->segments && g->buffer == buffer && g->first == own.first && g->end == own.end;
}

/* ---- Programs ---- */

/* Programs that add to one memory do so one after the other, so that sums have the same bits in each run. */
static bool adds_behind(const struct life *l, const struct tensor_use *u, int program)
{
    return use_effect(u) == EFFECT_ADD && l->members && l->members->program != program;
}

static coda_status use(struct search *s, const struct tensor_use *u, int program)
{
    struct life *l = &s->life[u->buffer];
    int epoch = 1 + 2 * u->version + (use_effect(u) == EFFECT_READ);
    if (!l->epoch) l->ahead = take_place(s, u->buffer);
    else if (!has_place(s, u->buffer))
        return fail(CODA_E_INVALID, "plan: @%d uses buffer %d, whose bytes another one has taken", program,
                    u->buffer);
    else if (epoch > l->epoch || adds_behind(l, u, program)) l->ahead = l->members, l->members = NULL;
    if (epoch < l->epoch) { /* of a program that is in both, as it works in place */
        l->ahead = push(s, l->ahead, program);
        return CODA_OK;
    }
    l->epoch = epoch;
    l->members = push(s, l->members, program);
    find(s, l->ahead, program);
    return CODA_OK;
}

static int descending(const void *x, const void *y) { return *(const int *)y - *(const int *)x; }

/* Keeps those that no other one found implies; later ones come first. */
static void keep(struct search *s, int program)
{
    uint64_t *own = &s->row[(uint64_t)(program % BLOCK) * s->words];
    int kept = 0, *on;
    memset(own, 0, sizeof *own * s->words);
    if (s->n > 1) qsort(s->found, (size_t)s->n, sizeof *s->found, descending);
    for (int i = 0; i < s->n; i++) {
        int other = s->found[i], bit = other % BLOCK;
        bool near = other / BLOCK == program / BLOCK;
        if (near && own[bit / BITS] >> bit % BITS & 1) continue;
        s->found[kept++] = other;
        for (int w = 0; near && w <= bit / BITS; w++)
            own[w] |= s->row[(uint64_t)bit * s->words + (uint64_t)w];
        if (near) own[bit / BITS] |= (uint64_t)1 << bit % BITS;
    }
    on = ARENA_NEW(&s->p->arena, int, kept);
    if (kept && on) memcpy(on, s->found, sizeof *on * (size_t)kept);
    s->p->waits[program] = (struct waits){on, on ? kept : 0};
    s->n = 0;
}

static coda_status visit(struct search *s, int program)
{
    const struct program *q = &s->p->program[program];
    const struct tensor_use *u;
    coda_status status = CODA_OK;
    if (program && q[-1].prepare != q->prepare) { /* another call */
        memset(s->life, 0, sizeof *s->life * (size_t)s->p->buffers);
        s->segments = 0;
    }
    for (int i = 0; !status && (u = program_use(q, i)); i++) status = use(s, u, program);
    keep(s, program);
    return status;
}

static coda_status find_waits(struct plan *p, bool placed)
{
    struct search s = {.p = p, .placed = placed, .words = (uint64_t)MIN(CEIL_DIV(p->programs, BITS), ROW)};
    coda_status status = CODA_OK;
    p->waits = ARENA_NEW(&p->arena, struct waits, p->programs + 1);
    s.life = ARENA_NEW(&s.arena, struct life, p->buffers + 1);
    s.segment = ARENA_NEW(&s.arena, struct segment, 2 * p->buffers + 3);
    s.found = ARENA_NEW(&s.arena, int, p->programs + 1);
    s.seen = ARENA_NEW(&s.arena, int, p->programs + 1);
    s.row = ARENA_NEW(&s.arena, uint64_t, s.words * (uint64_t)MIN(p->programs, BLOCK) + 1);
    bool failed = p->arena.failed || s.arena.failed;
    for (int i = 0; i < p->programs && !status && !failed; i++) {
        status = visit(&s, i);
        failed = p->arena.failed || s.arena.failed;
    }
    arena_free(&s.arena);
    return failed ? fail(CODA_E_MEMORY, "out of memory for what %d programs wait for", p->programs) : status;
}

coda_status plan_find_waits(struct plan *p) { return find_waits(p, true); }
coda_status plan_find_order(struct plan *p) { return find_waits(p, false); }
