/*
 * allocate.c -- give each buffer of the workspace an offset; buffers that never live at once share bytes.
 *
 * Each takes the lowest gap among those that are placed and live with it. These are kept by offset in chunks,
 * most of which live with a buffer as a whole or not at all: a placement costs some buffers and all chunks.
 * What only coda_prepare reads lies in the workspace, too; what it leaves for runs is placed by folds.c. A
 * plan of one more shape is placed as a larger one was, in whose workspace it fits.
 */
#include "own.h"
#include "plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };
static const int64_t MOST_BYTES = (int64_t)1 << 62;

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

/* ---- Buffers that are placed, by where they lie ---- */

static int64_t end_of(const struct buffer *b) { return (b->offset + b->bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* The bytes of a placed buffer, and its first and last program. */
struct occupied {
    int64_t offset, end;
    int first, last;
};

enum { CHUNK = 32 };

/* Some of these, by offset, and what holds of all of them: between which programs their lives begin and end,
 * where the last one ends, and the largest gap between them. */
struct chunk {
    struct occupied of[CHUNK];
    int n, first_born, last_born, first_gone, last_gone;
    int64_t end, gap;
};

/* All, by offset: the least of a chunk is no less than any of the chunk before. */
struct lives {
    struct chunk **chunk, *made;
    int n;
};

/* A chunk that is parted leaves two that are half full. */
static bool lives_new(struct lives *l, int buffers)
{
    size_t most = (size_t)buffers / (CHUNK / 2) + 2;
    *l = (struct lives){.chunk = calloc(most, sizeof *l->chunk), .made = calloc(most, sizeof *l->made)};
    return l->chunk && l->made;
}

static void lives_free(struct lives *l) { free(l->chunk), free(l->made); }

static void look(struct chunk *c)
{
    c->first_born = c->first_gone = INT_MAX, c->last_born = c->last_gone = -1;
    c->end = c->gap = 0;
    for (int i = 0; i < c->n; i++) {
        const struct occupied *o = &c->of[i];
        c->first_born = MIN(c->first_born, o->first), c->last_born = MAX(c->last_born, o->first);
        c->first_gone = MIN(c->first_gone, o->last), c->last_gone = MAX(c->last_gone, o->last);
        if (i) c->gap = MAX(c->gap, o->offset - c->end);
        c->end = MAX(c->end, o->end);
    }
}

/* Behind chunk i comes its upper half. */
static void part(struct lives *l, int i)
{
    struct chunk *c = l->chunk[i], *upper = &l->made[l->n++];
    memmove(&l->chunk[i + 2], &l->chunk[i + 1], sizeof *l->chunk * (size_t)(l->n - i - 2));
    l->chunk[i + 1] = upper;
    c->n = upper->n = CHUNK / 2;
    memcpy(upper->of, &c->of[CHUNK / 2], sizeof *c->of * (CHUNK / 2));
    look(c), look(upper);
}

static void lives_add(struct lives *l, const struct buffer *b)
{
    int i = 0;
    if (!l->n) l->made[0].n = 0, l->chunk[l->n++] = &l->made[0];
    while (i + 1 < l->n && l->chunk[i + 1]->of[0].offset <= b->offset) i++;
    if (l->chunk[i]->n == CHUNK) part(l, i), i += l->chunk[i + 1]->of[0].offset <= b->offset;
    struct chunk *c = l->chunk[i];
    int at = c->n++;
    for (; at && c->of[at - 1].offset > b->offset; at--) c->of[at] = c->of[at - 1];
    c->of[at] = (struct occupied){b->offset, end_of(b), b->first, b->last};
    look(c);
}

/* The lowest offset where so many bytes meet no placed buffer that lives with b. A chunk that lives whole
 * and has no such gap is not walked, nor is one that does not. */
static int64_t lowest_gap(const struct lives *l, const struct buffer *b, int64_t bytes)
{
    int64_t at = 0;
    for (int k = 0; k < l->n; k++) {
        const struct chunk *c = l->chunk[k];
        if (c->last_gone < b->first || c->first_born > b->last) continue;
        bool whole = c->first_gone >= b->first && c->last_born <= b->last;
        if (whole && c->gap < bytes && c->of[0].offset < at + bytes) {
            at = MAX(at, c->end);
            continue;
        }
        for (int i = 0; i < c->n; i++) {
            const struct occupied *o = &c->of[i];
            if (o->last < b->first || o->first > b->last) continue;
            if (o->offset >= at + bytes) return at;
            at = MAX(at, o->end);
        }
    }
    return at;
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

/* At the lowest gap of so many bytes. */
static void place(struct plan *p, struct lives *l, int buffer, int64_t bytes)
{
    struct buffer *b = &p->buffer[buffer];
    b->offset = lowest_gap(l, b, bytes);
    lives_add(l, b);
    p->workspace = MAX(p->workspace, end_of(b));
}

static bool is_placed(const struct buffer *b) { return b->first >= 0 && b->space == SPACE_WORK; }

static void place_anew(struct plan *p, struct lives *l)
{
    for (int i = 0; i < p->buffers; i++)
        if (is_placed(&p->buffer[i])) place(p, l, i, p->buffer[i].bytes);
}

/* ---- Large ones first, where what is small would part the places of what is large ---- */

static int by_bytes(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;
    if (a->offset != b->offset) return a->offset < b->offset ? 1 : -1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

/* `order`: its offsets are bytes. */
static void place_large_first(struct plan *p, struct lives *l, struct placed *order)
{
    int64_t before = p->workspace;
    int n = 0;
    for (int i = 0; i < p->buffers; i++)
        if (is_placed(&p->buffer[i])) order[n++] = (struct placed){p->buffer[i].bytes, i};
    qsort(order, (size_t)n, sizeof *order, by_bytes);
    l->n = 0, p->workspace = 0;
    for (int k = 0; k < n; k++) place(p, l, order[k].buffer, order[k].offset);
    if (p->workspace <= before) return;
    l->n = 0, p->workspace = 0;
    place_anew(p, l);
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
    for (int k = 0; k < n; k++) place(p, l, order[k].buffer, MOST_BYTES);
}

/* All that lies in the workspace and among the folded constants, end to end, so that no sum of sizes
 * overflows. */
static coda_status check_sizes(const struct plan *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->buffers; i++)
        if (p->buffer[i].space != SPACE_ARG) bytes = add_counts(bytes, add_counts(p->buffer[i].bytes, 256));
    if (bytes <= MOST_BYTES) return CODA_OK;
    return fail(CODA_E_UNSUPPORTED, "plan: %d programs keep %s%lld bytes between them; most are 2^62",
                p->programs, bytes == INT64_MAX ? "more than " : "", (long long)bytes);
}

static coda_status place_all(struct plan *p, const struct plan_options *opt, struct lives *lives)
{
    int like = 0;
    struct placed *order = ARENA_NEW(&p->arena, struct placed, p->buffers + 1);
    if (!order) return fail(CODA_E_MEMORY, "out of memory for %d buffers", p->buffers);
    p->workspace = 0;
    while (like < opt->largers && !is_like(p, opt->larger[like])) like++;
    if (like < opt->largers) place_like(p, lives, opt->larger[like], order);
    else place_anew(p, lives);
    if (p->rearranged) place_large_first(p, lives, order);
    return CODA_OK;
}

coda_status plan_place(struct plan *p, const struct plan_options *opt)
{
    coda_status status = check_sizes(p);
    if (status) return status;
    int first_run = 0;
    struct lives lives;
    while (first_run < p->programs && p->program[first_run].prepare) first_run++;
    find_lifetimes(p, opt);
    for (int i = 0; i < p->buffers; i++) {
        struct buffer *b = &p->buffer[i];
        if (b->first >= 0 && b->space == SPACE_PREPARED && b->last < first_run) b->space = SPACE_WORK;
    }
    status = lives_new(&lives, p->buffers) ? place_all(p, opt, &lives)
                                           : fail(CODA_E_MEMORY, "out of memory for %d buffers", p->buffers);
    lives_free(&lives);
    return status;
}
